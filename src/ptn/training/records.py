"""Records: one JSON line per result, appended so that no crash and no other process can spoil what is there."""

import errno
import json
import logging
import os
import subprocess
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError, unknown_name
from ..files import make_folder
from .recipe import Form

LOG = logging.getLogger("ptn")
SCHEMA = 1
_START = b'{"schema":'  # how every line that we write begins


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one run says about one row of a table.

    `test_error` is in %, None where the run failed; `tta` is how many rotations were averaged at test time (1:
    none), `origins` how many origins in each, which older records do not say; `started` is ISO 8601 with its time
    zone. `table` and `row` are None for one's own data.
    """

    schema: int = SCHEMA
    run: str
    recipe: str
    form: Form
    table: str | None
    row: str | None
    dataset: str
    model: str
    params: int
    seed: int
    test_error: float | None
    metrics: dict[str, Any]
    tta: int
    origins: int = 1
    epochs: int
    train_seconds: float
    seconds_per_epoch: float | None
    selection: Literal["final", "valid"]
    data_sha256: str
    config: dict[str, Any]
    config_sha256: str
    git: str
    torch: str
    device: str
    precision: str
    deterministic: bool
    started: str
    status: Literal["done", "failed"]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise InputError(f"records of schema {self.schema!r} are not known, only of {SCHEMA}: update ptn")
        for name, hint in _hints().items():
            value = getattr(self, name)
            if not _fits(value, hint):
                raise InputError(f"{name} must be {_describe(hint)}; got {value!r}")
        if (self.test_error is None) != (self.status == "failed"):
            raise InputError(f"test_error must be null in failed runs and only there; got {self.test_error!r}")
        _check_time(self.started)

    @property
    def identity(self) -> tuple[str, str | None, int, int]:
        """What no two records share."""
        return self.run, self.row, self.tta, self.origins


def append_record(path: Path, record: Record) -> None:
    """Add `record` to the file at `path`, which is made if need be. See `append_records`."""
    append_records(path, [record])


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Add `records` in one write, under a lock, and see them on the disk; all of them, or on an error none.

    A last line that an interrupted write left unfinished is removed first, and logged.
    """
    lines = b"".join(map(_line, records))
    with _locked(path) as handle:
        _write(handle, path, lines)


def read_records(path: Path) -> list[Record]:
    """The records of a file in their order. An unfinished last line is logged and left out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read records from {path}: {error.strerror}") from error
    return _parse(data, path)


def merge_records(target: Path, sources: Iterable[Path]) -> int:
    """Add to `target` the records of `sources` that are not in it yet; returns how many were added."""
    offered = [record for source in sources for record in read_records(source)]
    with _locked(target) as handle:
        known = {record.identity for record in _parse(_content(handle), target)}
        new: dict[object, Record] = {}
        for record in offered:
            if record.identity not in known:
                new.setdefault(record.identity, record)
        _write(handle, target, b"".join(map(_line, new.values())))
    return len(new)


def timestamp() -> str:
    """Now, as `Record.started` has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit(folder: Path | None = None) -> str:
    """The commit that the code in `folder` (by default this package) is at, "-dirty" if changed since.

    "unknown" where the code is not part of a git repository, though it may be installed within one, and the
    environment variable PTN_COMMIT does not say it.
    """
    if named := os.environ.get("PTN_COMMIT"):
        return named
    folder = folder or Path(__file__).parent
    try:
        tracked = _git(folder, "ls-files", "--", ".")
        return _git(folder, "describe", "--always", "--dirty", "--exclude=*") if tracked else "unknown"
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file at `path`, open to this process alone among those that come through here."""
    import fcntl  # not on Windows, where records can still be read

    make_folder(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"cannot write records to {path}: {error.strerror}") from error


def _content(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


def _write(handle: int, path: Path, lines: bytes) -> None:
    """Append `lines` to a file that is locked, on lines of their own, or leave it with the lines it had."""
    data = _content(handle)
    tail = data[data.rfind(b"\n") + 1 :]
    size = len(data)
    if _torn(tail):
        LOG.warning("%s: removed its last line, which an interrupted write left unfinished", path)
        size -= len(tail)
        os.ftruncate(handle, size)
    elif tail:
        _parse_line(tail, f"{path}, last line")
        lines = b"\n" + lines
    try:
        if os.write(handle, lines) < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _torn(tail: bytes) -> bool:
    """Whether what follows the last newline is the beginning of a record but not the whole of it."""
    if not tail or not (tail.startswith(_START) or _START.startswith(tail)):
        return False
    try:
        json.loads(tail)
    except ValueError:
        return True
    return False


def _line(record: Record) -> bytes:
    try:
        said = asdict(record)
        return json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except ValueError as error:
        raise InputError(f"run {record.run}: a record holds finite numbers only; write null for others") from error


def _parse(data: bytes, path: Path) -> list[Record]:
    *lines, tail = data.split(b"\n")
    if _torn(tail):
        LOG.warning("%s: left out its last line, which is unfinished", path)
    else:
        lines.append(tail)
    numbered = enumerate(lines, start=1)
    return [_parse_line(line, f"{path}, line {number}") for number, line in numbered if line.strip()]


def _parse_line(line: bytes, place: str) -> Record:
    try:
        values = json.loads(line, parse_constant=_refuse)
    except ValueError as error:
        raise InputError(f"{place}: not a record in JSON ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{place}: not a record but {line[:40].decode(errors='replace')!r}")
    try:
        return _record(values)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number that JSON has")


def _record(values: Mapping[str, Any]) -> Record:
    if values.get("schema") != SCHEMA:  # said first: another schema will have other fields too
        raise InputError(f"records of schema {values.get('schema')!r} are not known, only of {SCHEMA}: update ptn")
    names = [field.name for field in fields(Record)]
    if unknown := [name for name in values if name not in names]:
        raise unknown_name("field", unknown[0], names)
    required = [field.name for field in fields(Record) if field.default is MISSING]
    if missing := [name for name in required if name not in values]:
        raise InputError(f"no {', '.join(missing)}")
    return Record(**values)


def _hints() -> dict[str, Any]:
    return typing.get_type_hints(Record)


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else origin or hint)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_describe, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    return _NAMES[origin or hint]


_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    types.NoneType: "null",
}


def _check_time(text: str) -> None:
    try:
        aware = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise InputError(f"started must be a time with its zone, say {timestamp()}; got {text!r}")
