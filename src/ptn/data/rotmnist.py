"""Rotated MNIST (Larochelle et al., 2007): the original where its files are at hand, otherwise made from MNIST.

The original, under `rotmnist/` in a data folder, is one of

- `rotated_train.npz`, `rotated_valid.npz`, `rotated_test.npz`;
- `mnist_all_rotation_normalized_float_train_valid.amat` and `…_test.amat`, 10,000 and then 2,000 images in
  the first;
- `mnist_rotation_new.zip`, with those two in it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError, check_choice
from .checks import check_device, check_seed
from .dataset import Dataset
from .digits import DIGIT_NAMES, SPECS, load_made, pool
from .formats.amat import TEST_NAME, TRAIN_VALID_NAME, read_amat
from .formats.arrays import read_rotated_npz
from .mnist import load_mnist
from .store import MissingDataError, cached, find, fingerprint, missing, sha256_of_file

ZIP_NAME = "mnist_rotation_new.zip"
SOURCES = ("any", "original", "regenerated")
SPLITS = SPECS["rotmnist"].splits

Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]
# A file, and how to read it.
Original = tuple[Path, Callable[[], Arrays]]


def load_rotmnist(
    split: str,
    *,
    source: Literal["any", "original", "regenerated"] = "any",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Dataset:
    """A split of rotated MNIST: "train" 10,000, "valid" 2,000 or "test" 50,000 images of 28×28.

    The splits are all original or all regenerated: "any" is the original if its files are at hand, and an error
    if only some are. `meta["source"]` says whether it is the "original" or "regenerated" by `seed`.
    `meta["mnist_index"]` is which of MNIST's 70,000 digits each is, -1 where nobody knows: the original does
    not say.
    """
    check_choice("split of rotmnist", split, SPLITS)
    check_choice("source of rotmnist", source, SOURCES)
    check_seed(seed)
    check_device(device)
    if source != "regenerated":
        originals = _find_originals()
        if originals:
            return _load_original(*originals[split], split)
        if source == "original":
            raise missing("rotmnist", f"rotmnist/{ZIP_NAME}", f"rotmnist/rotated_{split}.npz")
    spec = replace(SPECS["rotmnist"], seed=seed)
    return load_made(
        "rotmnist",
        pool(load_mnist()),
        spec,
        split,
        source="regenerated",
        index_name="mnist_index",
        device=device,
    )


def _find_originals() -> dict[str, Original]:
    """The original files of every split, or none of them.

    One split alone is an error: the others would be made from digits that are in it too.
    """
    found = {split: original for split in SPLITS if (original := _find_original(split))}
    absent = [f"rotmnist/rotated_{split}.npz" for split in SPLITS if split not in found]
    if found and absent:
        raise MissingDataError(
            f"rotmnist: {next(iter(found.values()))[0]} is there but not {' and '.join(absent)}: get all with "
            "ptn data fetch rotmnist, or ask for source='regenerated'"
        )
    return found


def _find_original(split: str) -> Original | None:
    """The file that the original split is in, and how to read all of that file."""
    amat = TEST_NAME if split == "test" else TRAIN_VALID_NAME
    if path := find(f"rotmnist/rotated_{split}.npz"):
        return path, partial(read_rotated_npz, path)
    if path := find(f"rotmnist/{amat}"):
        return path, partial(read_amat, path)
    if path := find(f"rotmnist/{ZIP_NAME}"):
        return path, partial(read_amat, path, member=amat)
    return None


def _load_original(path: Path, read: Callable[[], Arrays], split: str) -> Dataset:
    sha256 = fingerprint(source=sha256_of_file(path), split=split)
    tensors = cached(f"rotmnist-original-{split}", sha256, lambda: _to_bytes(path, *read(), split))
    unknown = torch.full((SPLITS[split],), -1)
    meta = {"source": "original", "sha256": sha256, "mnist_index": unknown}
    return Dataset("rotmnist", split, tensors["images"], tensors["labels"], DIGIT_NAMES, meta)


def _to_bytes(path: Path, images: NDArray[np.float32], labels: NDArray[np.int64], split: str) -> dict[str, Tensor]:
    """The rows of `split` of a whole file, in [0, 1] -> uint8 (N, 1, 28, 28)."""
    first = 0
    expected = count = SPLITS[split]
    if not path.name.startswith("rotated_") and split != "test":
        first = SPLITS["train"] if split == "valid" else 0
        expected = SPLITS["train"] + SPLITS["valid"]
    if len(images) != expected:
        raise InputError(f"{path} has {len(images)} images for {split}, not {expected}")
    rows = slice(first, first + count)
    pixels = torch.from_numpy(images[rows])[:, None].mul(255).round().to(torch.uint8)
    return {"images": pixels, "labels": torch.from_numpy(labels[rows])}
