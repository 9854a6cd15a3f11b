"""The `*_32x32.mat` files of SVHN: MATLAB 5 archives of cropped digits."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, optional_module

SIDE = 32


def read_svhn_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) 0 to 9. The file has `X` (32, 32, 3, N) and calls zero 10."""
    loadmat = optional_module("scipy.io").loadmat
    try:
        content = loadmat(path, variable_names=("X", "y"))
    # A damaged file can fail anywhere in scipy's reader, with whatever exception the bytes lead to.
    except Exception as error:
        raise InputError(f"cannot read {path} as a MATLAB 5 file: {_first_line(error)}") from error
    if absent := {"X", "y"} - content.keys():
        raise InputError(f"{path} has no variable {min(absent)!r}: it is no SVHN file of cropped digits")
    images, labels = content["X"], content["y"].ravel()
    if images.ndim != 4 or images.shape[:3] != (SIDE, SIDE, 3) or images.dtype != np.uint8:
        raise InputError(f"{path}: X is {images.dtype} {images.shape}, not uint8 ({SIDE}, {SIDE}, 3, N)")
    if len(labels) != images.shape[3]:
        raise InputError(f"{path}: {images.shape[3]} images but {len(labels)} labels")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path}: y has labels outside 1 to 10")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
