"""Writing files so that a reader sees the old one or the new one, never a half."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


def make_folder(folder: Path) -> Path:
    """`folder`, created with its parents if need be and known to be writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to folder {folder}: choose another one")
    return folder


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside `target` that becomes `target` when the block ends well.

    The content is flushed to disk before the rename; if the block raises, `target` stays as it was.
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
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files that only their owner can read
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:  # say it of the file that was asked for, not of the one beside it
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> None:
    """Write tensors and texts as a safetensors file that is whole or not there at all.

    The same tensors and texts are the same bytes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(held, temporary, dict(metadata))
        except SafetensorError as error:
            raise InputError(f"cannot write {path}: {str(error).splitlines()[0]}") from error
        if metadata:
            _sort_metadata(temporary)


def _sort_metadata(path: Path) -> None:
    """Put the texts of a safetensors file, which come in any order, into that of their names."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size  # the same letters in another order
        file.seek(8)
        file.write(text.ljust(size))
