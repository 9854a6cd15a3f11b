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
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from ..config import build, check
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
        started: Start of the run in UTC, ISO 8601.
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
        error, failed = self.test_error, self.status == "failed"
        check("test_error", error, (error is None) == failed, "null if and only if a run failed")
        check("started", self.started, self.started.endswith("+00:00"), "a time in UTC")

    @property
    def identity(self) -> tuple[str, str | None, int, int]:
        """Key that is unique to a record."""
        return self.run, self.id, self.rotations, self.origins


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Appends `records` to a file in one write, under a lock: all of them or, on an error, none.

    An incomplete last line, left by an interrupted write, is removed first.
    """
    lines = b"".join(map(_line, records))
    with _locked(path) as file:
        _append(file, path, lines)


def merge_records(target: Path, sources: Iterable[Path]) -> int:
    """Appends the records of `sources` that `target` does not have; returns their number."""
    candidates = [record for source in sources for record in read_records(source)]
    with _locked(target) as file:
        known = {record.identity for record in _parse(file.readall(), target)}
        new: dict[object, Record] = {}
        for record in candidates:
            if record.identity not in known:
                new.setdefault(record.identity, record)
        _append(file, target, b"".join(map(_line, new.values())))
    return len(new)


def read_records(path: Path) -> list[Record]:
    """Returns the records of a file in order, without an incomplete last line."""
    try:
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"cannot read records from {path}: {error.strerror}") from error


def timestamp() -> str:
    """Returns the current time in the format of `Record.started`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit(folder: Path | None = None) -> str:
    """Returns the commit of the code in `folder` (default: this package), with "-dirty" if it was changed.

    The environment variable PTN_COMMIT takes precedence. "unknown" if the code is not tracked by git.
    """
    if commit := os.environ.get("PTN_COMMIT"):
        return commit
    command = ["git", "-C", str(folder or Path(__file__).parent)]
    run = partial(subprocess.run, capture_output=True, text=True, check=True)
    try:
        if not run([*command, "ls-files", "--", "."]).stdout:
            return "unknown"
        return str(run([*command, "describe", "--always", "--dirty", "--exclude=*"]).stdout).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@contextmanager
def _locked(path: Path) -> Iterator[FileIO]:
    """Context manager: `path` open for reading and appending, at its start, under an exclusive lock."""
    import fcntl  # not on Windows, where records can still be read

    make_folder(path.parent)
    try:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file
    except OSError as error:
        raise InputError(f"cannot write records to {path}: {error.strerror}") from error


def _append(file: FileIO, path: Path, lines: bytes) -> None:
    """Appends whole lines to a locked file, or leaves it unchanged on an error."""
    file.seek(0)
    data = _complete(file.readall(), path)
    file.truncate(len(data))
    last = data[data.rfind(b"\n") + 1 :]
    if last:
        _parse_line(last, f"{path}, last line")
        lines = b"\n" + lines
    try:
        if file.write(lines) < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)
    except OSError:
        file.truncate(len(data))
        raise


def _complete(data: bytes, path: Path) -> bytes:
    """Returns the content of a file without a truncated last record."""
    start = data.rfind(b"\n") + 1
    last = data[start:]
    if not last or not (last.startswith(_START) or _START.startswith(last)):
        return data
    try:
        json.loads(last)
    except ValueError:
        LOG.warning("%s: dropped an incomplete last line", path)
        return data[:start]
    return data


def _line(record: Record) -> bytes:
    try:
        text = json.dumps(asdict(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError(f"run {record.run}: the numbers of a record must be finite") from error
    return text.encode() + b"\n"


def _parse(data: bytes, path: Path) -> list[Record]:
    lines = enumerate(_complete(data, path).split(b"\n"), start=1)
    return [_parse_line(line, f"{path}, line {number}") for number, line in lines if line.strip()]


def _parse_line(line: bytes, where: str) -> Record:
    try:
        values = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InputError(f"{where}: not a record in JSON ({error})") from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != SCHEMA:  # first: its fields differ too
        raise InputError(f"{where}: unknown record schema {schema!r}; this version of ptn reads schema {SCHEMA}")
    return build(Record, values, where)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
