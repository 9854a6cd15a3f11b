"""Files: atomic writes and safetensors."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError, first_line, nothing_at

if TYPE_CHECKING:
    from torch import Tensor


def make_folder(folder: Path) -> Path:
    """Creates `folder` with its parents, checks that it is writable, and returns it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to folder {folder}: choose another one")
    return folder


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Context manager: a temporary path beside `target` that replaces `target` on a normal exit.

    The content is flushed to disk before the rename. If the block raises, `target` is unchanged.
    """
    make_folder(target.parent)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates files that only their owner can read
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file atomically. Equal tensors and metadata give equal bytes."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, dict(metadata))
        except SafetensorError as error:
            raise InputError(f"cannot write {path}: {first_line(error)}") from error
        if metadata:
            _sort_metadata(temporary)


def read_tensors(path: Path, kind: str = "safetensors file") -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Returns the tensors (on the CPU) and the metadata of a safetensors file; `kind` is for error messages."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise nothing_at(kind, path)
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a {kind}: {first_line(error)}") from error


def _sort_metadata(path: Path) -> None:
    """Sorts the metadata of a safetensors file, which is written in arbitrary order."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))
