"""Records: one JSON line per result, in files that several processes may append to."""

import errno
import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from ..config import build, check
from ..errors import InputError
from ..files import LOG, make_folder, parse_json, try_lock

SCHEMA = 2
_START = b'{"schema":'  # the first bytes of every line


@dataclass(frozen=True, kw_only=True)
class Record:
    """Result of one evaluation of one run.

    `run` is the name of the run: recipe, seed and start time. `id` identifies the evaluation, as in its
    `EvaluationSpec`. `test_error` in % is None if the run failed; `metrics` then has the reason. `config` and
    `config_sha256` are `Recipe.changes()` and `Recipe.sha256`. `started` is a time in UTC, ISO 8601.
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
        check("test_error", error, error is None or 0 <= error <= 100, "from 0 to 100 %")
        for name in ("params", "seed", "epochs", "train_seconds"):
            check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        for name in ("rotations", "origins"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")

    @property
    def identity(self) -> tuple[str, str | None, int, int]:
        """Key that is unique to a record."""
        return self.run, self.id, self.rotations, self.origins


def read_records(path: Path) -> list[Record]:
    """Returns the records of a file in order, without an incomplete last line."""
    try:
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"cannot read records from {path}: {error.strerror}") from error


def append_records(path: Path, records: Iterable[Record], *, only_new: bool = False) -> None:
    """Appends `records` to a file under a lock, all or none; with `only_new`, those that the file does not have.

    An incomplete last line, left by an interrupted write, is removed first.
    """
    make_folder(path.parent)
    try:
        with path.open("a+b", buffering=0) as file:
            try_lock(file, wait=True)
            file.seek(0)
            complete = _complete(file.read(), path)
            if only_new:
                known = {record.identity for record in _parse(complete, path)}
                records = [record for record in records if record.identity not in known]
            lines = b"".join(map(_line, records))
            file.truncate(len(complete))
            lines = lines if complete[-1:] in (b"", b"\n") else b"\n" + lines
            try:
                if file.write(lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file)
            except BaseException:
                file.truncate(len(complete))
                raise
    except OSError as error:
        raise InputError(f"cannot write records to {path}: {error.strerror}") from error


def check_appendable(path: Path) -> None:
    """Raises `InputError` if records cannot be appended to `path`, which need not exist."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if path.is_file():
        read_records(path)
    suitable = path.is_file() if path.exists() else existing.is_dir() and not path.is_symlink()
    try:
        if suitable:
            with path.open("ab") if path.exists() else TemporaryFile(dir=existing):
                return
    except OSError as error:
        raise InputError(f"cannot write records to {path}: {error.strerror}") from error
    raise InputError(f"cannot write records to {path}: choose another file")


def _complete(data: bytes, path: Path) -> bytes:
    """Returns the content of a file without an incomplete last line."""
    whole, newline, last = data.rpartition(b"\n")
    if not last:
        return data
    try:
        parse_json(last, "the last line")
    except InputError as error:
        if not (last.startswith(_START) or _START.startswith(last)):
            raise InputError(f"{path}, last line: not a record") from error
        LOG.warning("%s: dropped an incomplete last line", path)
        return whole + newline
    return data


def _parse(data: bytes, path: Path) -> list[Record]:
    lines = enumerate(_complete(data, path).split(b"\n"), start=1)
    return [_parse_line(line, f"{path}, line {number}") for number, line in lines if line.strip()]


def _parse_line(line: bytes, where: str) -> Record:
    values = parse_json(line, where)
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != SCHEMA:  # first: its fields differ too
        raise InputError(f"{where}: unknown record schema {schema!r}; this version of ptn reads schema {SCHEMA}")
    return build(Record, values, where)


def _line(record: Record) -> bytes:
    try:
        text = json.dumps(asdict(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError(f"run {record.run}: the numbers of a record must be finite") from error
    return text.encode() + b"\n"


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
