"""The text files of Larochelle et al. (2007): a row for each image, its 784 values, then its label."""

import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError

SIDE = 28
CLASSES = 10
TRAIN_VALID_NAME = "mnist_all_rotation_normalized_float_train_valid.amat"
TEST_NAME = "mnist_all_rotation_normalized_float_test.amat"

# The values are decimal renderings of numbers in [0, 1]; rounding may carry them this far beyond.
TOLERANCE = 1e-3


def read_amat(path: Path, *, member: str | None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (N, 28, 28) in [0, 1] and labels (N,) of an .amat file, or of the .amat `member` of a zip.

    Rotated MNIST is stored row by row and needs no transposition. Some other sets of the same paper do (the
    reader of its co-author Bergstra, skdata, turns those with backgrounds over, and leaves this one alone).
    """
    name = f"{path}:{member}" if member else str(path)
    with _opened(path, member) as stream:
        table = _read_table(stream, name)
    if table.shape[1] != SIDE * SIDE + 1:
        raise InputError(f"{name} has {table.shape[1]} columns, not {SIDE * SIDE} values and a label")
    values, labels = table[:, :-1], table[:, -1]
    inside = (values >= -TOLERANCE) & (values <= 1 + TOLERANCE)
    _refuse(name, np.flatnonzero(~inside) // values.shape[1], "values outside [0, 1]")
    _refuse(name, np.flatnonzero(~np.isin(labels, np.arange(CLASSES))), "a label that is no digit")
    return values.clip(0, 1).reshape(-1, SIDE, SIDE), labels.astype(np.int64)


def _read_table(stream: TextIO, name: str) -> NDArray[np.float32]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # how numpy says that there are no rows
            return np.loadtxt(stream, dtype=np.float32, ndmin=2)
    except UserWarning as error:
        raise InputError(f"{name} is empty") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is no text file") from error
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {name}: {str(error).splitlines()[0]}") from error


def _refuse(name: str, rows: NDArray[np.intp], fault: str) -> None:
    if rows.size:
        raise InputError(f"{name}: row {rows[0] + 1} has {fault}")


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[TextIO]:
    try:
        if member is None:
            with path.open(encoding="ascii") as stream:
                yield stream
        else:
            with zipfile.ZipFile(path) as archive, archive.open(_locate(archive, path, member)) as content:
                yield TextIOWrapper(content, encoding="ascii")
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _locate(archive: zipfile.ZipFile, path: Path, member: str) -> str:
    """The full name of `member`, in whatever folder of the archive it lies."""
    for name in archive.namelist():
        if name.rpartition("/")[2] == member:
            return name
    raise InputError(f"{path} holds no {member}")
