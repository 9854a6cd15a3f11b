"""Files: JSON, atomic writes, locks, and safetensors with a digest of their content."""

import glob
import hashlib
import json
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .errors import InputError, first_line, nothing_at

try:
    import fcntl
except ImportError:  # Windows: there are no locks
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from torch import Tensor

LOG = logging.getLogger("ptn")

_DIGEST = re.compile(
    rb'"digest":"([0-9a-f]{64})"'
)  # in the metadata of a safetensors file; quotes in texts are escaped
_NO_DIGEST = "0" * 64


def parse_json(text: str | bytes, where: str) -> Any:
    """Returns a JSON value whose numbers are finite and within 64 bits; `where` starts every error message.

    Raises:
        InputError: Otherwise, and for nesting too deep and strings that are not Unicode. The cause of the error is
            a `json.JSONDecodeError` if `text` is not JSON at all.
    """
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_float)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise InputError(f"{where}: JSON that is nested too deeply") from error
    except UnicodeError as error:
        raise InputError(f"{where}: text that is not Unicode") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({first_line(error)})") from error
    return value


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise InputError(f"an integer of {len(digits)} digits is too large")
    return int(digits)


def _parse_float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise InputError(f"{digits[:20]} is not a finite number")
    return value


def markdown_text(text: str) -> str:
    """Returns a text, such as the name of a class, that Markdown shows as it is, without control characters."""
    return re.sub(r"([\\`*<>&|\[\]])", r"\\\1", "".join(c if c.isprintable() else "_" for c in text))


def real_path(path: Path) -> str:
    """Returns the path without links; unlike `Path.resolve`, also for links in a loop."""
    return os.path.realpath(path)


def check_targets(inputs: Iterable[Path], targets: Iterable[Path]) -> None:
    """Raises `InputError` if one of the files to write is an input, or two of them are the same file."""
    used = set(map(real_path, inputs))
    for target in targets:
        if real_path(target) in used:
            raise InputError(f"{target} would replace an input or another result: choose another folder or name")
        used.add(real_path(target))


def make_folder(folder: Path) -> Path:
    """Creates `folder` with its parents, checks that it is writable, and returns it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # also of names that are not Unicode
        raise InputError(f"cannot create folder {folder}: {getattr(error, 'strerror', error)}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to folder {folder}: choose another one")
    return folder


def try_lock(handle: int | IO[bytes], *, wait: bool = False) -> bool:
    """Takes the lock of an open file or folder; returns False if another one has it. It ends with the process."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Context manager: creates a folder that no other process may lock meanwhile; removes it again if it is empty.

    Raises:
        InputError: Another process has the lock.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    handle = _lock(folder)
    try:
        _remove_abandoned(folder, ".*.part")
        yield
    finally:
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if handle is not None:
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """Creates and locks a folder; returns its open handle, None on Windows."""
    while True:
        make_folder(folder)
        if fcntl is None:
            return None
        handle = os.open(folder, os.O_RDONLY)
        if not try_lock(handle):
            os.close(handle)
            raise InputError(f"another process is training in {folder}: wait for it, or choose another folder")
        if _is_at(handle, folder):
            return handle
        os.close(handle)  # it was removed before it was locked


def empty_folder(folder: Path) -> None:
    """Deletes everything in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_at(handle: int, path: Path | str) -> bool:
    """True if `path` is the file or folder that is open as `handle`."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


def _remove_abandoned(folder: Path, pattern: str) -> None:
    """Deletes temporary files of processes that were killed: those that nobody has locked."""
    for path in folder.glob(pattern) if fcntl is not None else ():
        try:
            with path.open("rb") as stream:
                if try_lock(stream):
                    path.unlink()
        except OSError:  # renamed meanwhile, or the file of another user
            continue


def _create_locked(target: Path) -> tuple[int | None, Path]:
    """Creates a temporary file beside `target` and locks it, so that no other process takes it for abandoned."""
    while True:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        if fcntl is None:  # Windows does not rename open files
            os.close(handle)
            return None, Path(name)
        if try_lock(handle, wait=True) and _is_at(handle, name):
            return handle, Path(name)
        os.close(handle)


@contextmanager
def atomic_path(target: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """Context manager: a temporary path beside `target` that replaces `target` on a normal exit.

    The content is flushed to disk before the rename. If the block raises, `target` is unchanged. `keep` is where
    the present file moves to.

    Raises:
        InputError: `target` cannot be written, or is not a regular file: a rename would replace a device or a pipe.
    """
    special = os.path.exists(target) and not os.path.isfile(target)  # noqa: PTH110, PTH113 (unlike Path, never raise)
    if special or real_path(target.parent) == "/dev":
        raise InputError(f"cannot write {target}: it is not a regular file")
    make_folder(target.parent)
    handle, temporary = None, None
    try:
        _remove_abandoned(target.parent, f".{glob.escape(target.name)}.*.part")
        handle, temporary = _create_locked(target)
        yield temporary
        with temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates files that only their owner can read
        if keep is not None and target.exists():
            target.replace(keep)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str], *, keep: Path | None = None
) -> None:
    """Writes a safetensors file atomically. Equal tensors and metadata give equal bytes.

    The entry "digest" of the metadata is the sha256 of the file with zeros in the place of the digest. `keep` is
    where a file that is there already moves to.
    """
    from safetensors.torch import save

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = memoryview(save(contiguous, {**metadata, "digest": _NO_DIGEST}))
    size = int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8 : 8 + size]))
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # which is in arbitrary order
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size)
    assert len(text) == size
    start, rest = bytes(content[:8]) + text, content[8 + size :]
    digest = hashlib.sha256(start)
    digest.update(rest)
    with atomic_path(path, keep=keep) as temporary, temporary.open("wb") as file:
        file.write(_DIGEST.sub(f'"digest":"{digest.hexdigest()}"'.encode(), start, count=1))
        file.write(rest)


def read_tensors(
    path: Path, kind: str = "safetensors file", *, needs_digest: bool = False
) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Returns the tensors (on the CPU) and the metadata of a safetensors file; `kind` is for error messages.

    The content is compared with its digest. A file without one, of another program, is read with a warning, or
    refused if it `needs_digest`.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise nothing_at(kind, path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
        stored, actual = _digests(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a {kind}: {first_line(error)}") from error
    if stored is None and needs_digest:
        raise InputError(f"{path} is not a {kind} of this version: it has no digest")
    if stored is None:
        LOG.warning("%s has no digest: damage to it would not be noticed", path)
    elif stored != actual:
        raise InputError(f"{path} is not a {kind}: it is damaged, its content does not match its digest")
    metadata.pop("digest", None)
    return tensors, metadata


def _digests(path: Path) -> tuple[str | None, str]:
    """Returns the digest that a safetensors file stores, None without one, and the actual one."""
    with path.open("rb") as file:
        size = file.read(8)
        header = file.read(int.from_bytes(size, "little"))
        stored = _DIGEST.search(header)
        digest = hashlib.sha256(size)
        digest.update(header if stored is None else header.replace(stored[1], _NO_DIGEST.encode(), 1))
        while chunk := file.read(2**20):
            digest.update(chunk)
    return None if stored is None else stored[1].decode(), digest.hexdigest()
