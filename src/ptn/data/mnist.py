"""MNIST, from the original idx files or from one npz file."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .formats.arrays import read_npz
from .formats.idx import read_idx
from .store import find, missing

NPZ = "mnist/mnist.npz"
NPZ_NAMES = ("x_train", "y_train", "x_test", "y_test")
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SIDE = 28
COUNTS = (60_000, 10_000)


class Mnist(NamedTuple):
    """Images uint8 (N, 28, 28) and labels int64 (N,) of both splits, 60,000 and 10,000 of them.

    `sha256` is that of the pixel and label bytes, so it does not depend on the kind of file they came from.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    sha256: str


def load_mnist() -> Mnist:
    """MNIST as the data folders have it: `mnist/mnist.npz`, or else the four idx files, gzipped or not."""
    npz = find(NPZ)
    idx = [find(f"mnist/{name}.gz", f"mnist/{name}") for name in IDX_NAMES]
    if npz is not None:
        arrays = read_npz(npz, *NPZ_NAMES)
        places = [f"{npz}:{name}" for name in NPZ_NAMES]
    elif any(idx):
        paths = [_present(path, name) for path, name in zip(idx, IDX_NAMES, strict=True)]
        arrays = tuple(read_idx(path) for path in paths)
        places = [str(path) for path in paths]
    else:
        raise missing("mnist", NPZ, f"mnist/{IDX_NAMES[0]}.gz")
    for first, count in zip((0, 2), COUNTS, strict=True):
        _check(places[first], arrays[first], places[first + 1], arrays[first + 1])
        if len(arrays[first]) != count:
            raise InputError(
                f"{places[first]} has {len(arrays[first]):,} images, not the {count:,} of MNIST: "
                "remove that file, then: ptn data fetch mnist"
            )
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    train, train_labels, test, test_labels = (torch.tensor(array) for array in arrays)
    return Mnist(train, train_labels.long(), test, test_labels.long(), digest.hexdigest())


def _present(path: Path | None, name: str) -> Path:
    if path is None:
        raise missing("mnist", f"mnist/{name}.gz")
    return path


def _check(image_place: str, images: NDArray[np.uint8], label_place: str, labels: NDArray[np.uint8]) -> None:
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{image_place} holds {images.dtype} {images.shape}, not uint8 (N, {SIDE}, {SIDE})")
    if labels.dtype != np.uint8 or labels.shape != (len(images),):
        raise InputError(f"{label_place} holds {labels.dtype} {labels.shape}; {image_place} {len(images)} images")
    if labels.max(initial=0) > 9:
        raise InputError(f"{label_place} has the label {labels.max()}, which is no digit")
