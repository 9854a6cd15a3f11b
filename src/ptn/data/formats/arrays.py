"""numpy's .npz archives, with the arrays in them checked. Nothing is ever unpickled."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError

SIDE = 28


def read_npz(path: Path, *names: str) -> tuple[NDArray[Any], ...]:
    """The arrays of these names in an .npz file."""
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"{path} is no npz file")
            if absent := [name for name in names if name not in file]:
                raise InputError(f"{path} has no array {absent[0]!r}; it has {', '.join(file.files)}")
            return tuple(file[name] for name in names)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from error


def read_rotated_npz(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (N, 28, 28) in [0, 1] and labels (N,) of a `rotated_{train,valid,test}.npz`.

    This is rotated MNIST as the code of Harmonic Networks and of the PTN paper reads it: `x` (N, 784) floats
    row by row, `y` (N,) numbers.
    """
    images, labels = read_npz(path, "x", "y")
    if images.ndim < 2 or images[0].size != SIDE * SIDE or images.dtype.kind != "f":
        raise InputError(f"{path}: x is {images.dtype} {images.shape}, not floats (N, {SIDE * SIDE})")
    if labels.shape != (len(images),):
        raise InputError(f"{path}: {len(images)} images but labels of shape {labels.shape}")
    if not (images.min() >= 0 and images.max() <= 1):
        raise InputError(f"{path}: x has values outside [0, 1]")
    if not np.isin(labels, np.arange(10)).all():
        raise InputError(f"{path}: y has labels that are no digits")
    return images.reshape(-1, SIDE, SIDE).astype(np.float32), labels.astype(np.int64)
