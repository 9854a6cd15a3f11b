"""Records: one JSON line per result, in files that several processes may append to."""

import errno
import json
import logging
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..config import build
from ..errors import InputError
from ..files import make_folder

LOG = logging.getLogger("ptn")
SCHEMA = 2
_START = b'{"schema":'  # the first bytes of every line


@dataclass(frozen=True, kw_only=True)
class Record:
    """Result of one evaluation of one run.

    Attributes:
        run: Name of the run: recipe, seed and start time.
        id: Identifier of the evaluation, as in its `EvaluationSpec`, or None.
        params: Number of parameters of the model.
        test_error: Test error in %, None if the run failed.
        metrics: Further results; "reason" of a failed run.
        rotations, origins: Test-time augmentation: rotated copies of an image, and origins in each.
        epochs: Number of epochs trained.
        data_sha256: Hash of the training data.
        config, config_sha256: `Recipe.changes()` and `Recipe.sha256`.
        git, torch, device: Versions and hardware of the training.
        started: Start of the run, ISO 8601 with time zone.
    """

    schema: int = SCHEMA
    run: str
    id: str | None = None
    recipe: str
    dataset: str
    model: str
    params: int
    seed: int
    test_error: float | None
    metrics: dict[str, Any]
    rotations: int = 1
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
    started: str
    status: Literal["done", "failed"]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise _unknown_schema(self.schema)
        if (self.test_error is None) != (self.status == "failed"):
            raise InputError(f"test_error must be null if and only if a run failed; got {self.test_error!r}")
        _check_time(self.started)

    @property
    def identity(self) -> tuple[str, str | None, int, int]:
        """Key that is unique to a record."""
        return self.run, self.id, self.rotations, self.origins


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Appends `records` to a file in one write, under a lock: all of them or, on an error, none.

    An incomplete last line, left by an interrupted write, is removed first.
    """
    lines = b"".join(map(_line, records))
    with _locked(path) as handle:
        _write(handle, path, lines)


def read_records(path: Path) -> list[Record]:
    """Returns the records of a file in order, without an incomplete last line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read records from {path}: {error.strerror}") from error
    return _parse(data, path)


def merge_records(target: Path, sources: Iterable[Path]) -> int:
    """Appends the records of `sources` that `target` does not have; returns their number."""
    candidates = [record for source in sources for record in read_records(source)]
    with _locked(target) as handle:
        known = {record.identity for record in _parse(_content(handle), target)}
        new: dict[object, Record] = {}
        for record in candidates:
            if record.identity not in known:
                new.setdefault(record.identity, record)
        _write(handle, target, b"".join(map(_line, new.values())))
    return len(new)


def timestamp() -> str:
    """Returns the current time in the format of `Record.started`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit(folder: Path | None = None) -> str:
    """Returns the commit of the code in `folder` (default: this package), with "-dirty" if it was changed.

    The environment variable PTN_COMMIT takes precedence. "unknown" if the code is not tracked by git.
    """
    if commit := os.environ.get("PTN_COMMIT"):
        return commit
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
    """Context manager: the file descriptor of `path`, under an exclusive lock."""
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
    """Appends whole lines to a locked file, or leaves it unchanged on an error."""
    data = _content(handle)
    tail = data[data.rfind(b"\n") + 1 :]
    size = len(data)
    if _is_incomplete(tail):
        LOG.warning("%s: removed an incomplete last line", path)
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


def _is_incomplete(tail: bytes) -> bool:
    """True if the bytes after the last newline are a record that was cut off."""
    if not tail or not (tail.startswith(_START) or _START.startswith(tail)):
        return False
    try:
        json.loads(tail)
    except ValueError:
        return True
    return False


def _line(record: Record) -> bytes:
    try:
        return (
            json.dumps(asdict(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        )
    except ValueError as error:
        raise InputError(f"run {record.run}: the numbers of a record must be finite") from error


def _parse(data: bytes, path: Path) -> list[Record]:
    *lines, tail = data.split(b"\n")
    if _is_incomplete(tail):
        LOG.warning("%s: ignored an incomplete last line", path)
    else:
        lines.append(tail)
    numbered = enumerate(lines, start=1)
    return [_parse_line(line, f"{path}, line {number}") for number, line in numbered if line.strip()]


def _parse_line(line: bytes, where: str) -> Record:
    try:
        values = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InputError(f"{where}: not a record in JSON ({error})") from error
    if isinstance(values, dict) and values.get("schema") != SCHEMA:  # first: its fields differ too
        raise InputError(f"{where}: {_unknown_schema(values.get('schema'))}")
    return build(Record, values, where)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _unknown_schema(schema: object) -> InputError:
    return InputError(f"unknown record schema {schema!r}; this version of ptn reads schema {SCHEMA}")


def _check_time(text: str) -> None:
    try:
        aware = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise InputError(f"started must be a time with its zone, say {timestamp()}; got {text!r}")
