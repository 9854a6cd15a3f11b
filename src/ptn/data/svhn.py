"""Street View House Numbers: single digits, upright (SVHN) or turned by any angle (ROTSVHN).

Three sources, in a data folder under `svhn/`, here for the split "train":

- `train_32x32.mat`, the official crops. They show nothing around the digit, so they serve upright sets only.
- `train/digitStruct.mat` and its photos, or `train.tar.gz` with both: the official full numbers.
- `train_00.jpg` … and `train_labels.npz`: 48×48 tiles cut from the full numbers beforehand.

Upright sets come from the first of these that is there, turned ones from the first of the last two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import pi
from pathlib import Path

import torch
from torch import Tensor

from ..errors import InputError, check_choice
from ..geometry import similarity_warp
from .checks import check_device, check_seed
from .dataset import Dataset
from .formats.mat import read_svhn_mat
from .store import MissingDataError, cached, find, fingerprint, missing, sha256_of_file, sha256_of_files
from .svhn_tiles import CROP, TILE, tiles_from_archive, tiles_from_atlases, tiles_from_photos

SPLITS = ("train", "test", "extra")
DIGITS = tuple("0123456789")
# Turned upside down, they become each other.
AMBIGUOUS = (6, 9)
TILES_VERSION = 1
ROTATION_VERSION = 1
CHUNK = 2048


@dataclass(frozen=True)
class _Source:
    """Files that a split can be read from: their hash, and how to read them."""

    name: str
    sha256: str
    read: Callable[[], dict[str, Tensor]]


def load_svhn(
    split: str,
    *,
    rotated: bool = False,
    minus: bool = False,
    size: int = CROP,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Dataset:
    """A split of SVHN as images (N, 3, size, size): "train", "test" or "extra".

    Args:
        rotated: turn every digit about the middle of its box by an angle of its own, uniform in [0, 2π) and
            given by `seed`: `meta["rotation"]`, in the direction of `similarity_warp`. It is cut from a
            larger tile, so it is covered everywhere.
        minus: leave out 6 and 9, and number the other eight classes 0 to 7.
        size: 32, the usual crop, or 48, half as much again of what is around it (upright only).
        device: where the digits are turned. The angles do not depend on it.

    `meta` has "source", "sha256", and per digit "image_id" (the photo) and "frac_outside" (the share of its
    48×48 tile that lay outside the photo) where the source knows them.
    """
    check_choice("split", split, SPLITS)
    check_seed(seed)
    device = check_device(device)
    if size not in ((CROP,) if rotated else (CROP, TILE)):
        raise InputError(f"{'rotated ' if rotated else ''}SVHN has no images of size {size}")
    source = _find_source(split, with_context=rotated or size == TILE)
    if rotated:
        made_from = {"source": source.sha256, "split": split, "seed": seed, "version": ROTATION_VERSION}
        build = partial(_rotate_digits, source, split, seed, device)
        tensors = cached(f"rotsvhn-{split}", fingerprint(**made_from), build)
    else:
        made_from = {"source": source.sha256, "split": split, "size": size}
        tensors = _read_cached(source, split)
        tensors["images"] = _centre(tensors["images"], size)
    classes = DIGITS
    if minus:
        tensors, classes = _without_ambiguous(tensors)
    images, labels = tensors.pop("images"), tensors.pop("labels")
    name = ("rotsvhn" if rotated else "svhn") + ("-minus" if minus else "")
    meta = {"source": source.name, "sha256": fingerprint(minus=minus, **made_from), **tensors}
    return Dataset(name, split, images, labels, classes, meta)


def _find_source(split: str, *, with_context: bool) -> _Source:
    """The files to read a split from; `with_context` if they must show what is around the digits."""
    crops = find(f"svhn/{split}_32x32.mat")
    if crops and not with_context:
        return _source("official crops", sha256_of_file(crops), partial(_read_crops, crops))
    if boxes := find(f"svhn/{split}/digitStruct.mat"):
        return _source("full numbers", _sha256_of_photos(boxes), partial(tiles_from_photos, boxes.parent))
    if archive := find(f"svhn/{split}.tar.gz"):
        return _source("full numbers", sha256_of_file(archive), partial(tiles_from_archive, archive))
    if labels := find(f"svhn/{split}_labels.npz"):
        atlases = sorted(labels.parent.glob(f"{split}_[0-9][0-9].jpg"))
        digest = sha256_of_files([*atlases, labels])
        return _source("context tiles", digest, partial(tiles_from_atlases, atlases, labels))
    if crops:
        name = f"svhn/{split}.tar.gz"
        raise MissingDataError(
            f"{crops} does not show what is around the digits, which rotated SVHN and size {TILE} need: "
            f"get {name} with: ptn data fetch {_dataset('rotsvhn', split)}"
        )
    if with_context:
        raise missing(_dataset("rotsvhn", split), f"svhn/{split}.tar.gz", f"svhn/{split}_labels.npz")
    raise missing(_dataset("svhn", split), f"svhn/{split}_32x32.mat", f"svhn/{split}.tar.gz")


def _source(name: str, sha256: str, read: Callable[[], dict[str, Tensor]]) -> _Source:
    return _Source(name, fingerprint(files=sha256, version=TILES_VERSION), read)


def _dataset(name: str, split: str) -> str:
    """What the files of a split are called in `ptn data fetch`."""
    return f"{name}-extra" if split == "extra" else name


def _sha256_of_photos(boxes: Path) -> str:
    """A hash of a folder of full numbers: its `digitStruct.mat`, and the names and bytes of its photos."""
    photos = sorted(boxes.parent.glob("*.png"))
    return fingerprint(names=[path.name for path in photos], files=sha256_of_files([boxes, *photos]))


def _read_crops(path: Path) -> dict[str, Tensor]:
    images, labels = read_svhn_mat(path)
    return {"images": torch.from_numpy(images), "labels": torch.from_numpy(labels)}


def _read_cached(source: _Source, split: str) -> dict[str, Tensor]:
    """All digits of a source as it has them, decoded once."""
    return cached(f"svhn-{split}", fingerprint(source=source.sha256, split=split), source.read)


def _rotate_digits(source: _Source, split: str, seed: int, device: torch.device) -> dict[str, Tensor]:
    """Every digit of a split turned by its own angle, cut from its tile: (N, 3, 32, 32)."""
    tensors = _read_cached(source, split)
    stream = int(fingerprint(data="rotsvhn", split=split, seed=seed)[:15], 16)
    generator = torch.Generator().manual_seed(stream)
    angles = 2 * pi * torch.rand(len(tensors["labels"]), generator=generator)
    parts = []
    for tiles, rotation in zip(tensors["images"].split(CHUNK), angles.split(CHUNK), strict=True):
        # A 48-pixel tile covers a turned 32-pixel crop with all that the cubic kernel reads.
        turned = similarity_warp(
            tiles.to(device).float(), rotation=rotation.to(device), size=(CROP, CROP), interpolation="bicubic"
        )
        parts.append(turned.round().clamp(0, 255).byte().cpu())
    return tensors | {"images": torch.cat(parts), "rotation": angles}


def _centre(images: Tensor, size: int) -> Tensor:
    """The middle `size` × `size` pixels of square images."""
    margin = (images.shape[-1] - size) // 2
    return images[:, :, margin : margin + size, margin : margin + size].contiguous()


def _without_ambiguous(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The digits other than 6 and 9, their labels renumbered, and the names of their classes."""
    kept = torch.tensor([digit for digit in range(10) if digit not in AMBIGUOUS])
    mask = torch.isin(tensors["labels"], kept)
    chosen = {name: tensor[mask] for name, tensor in tensors.items()}
    chosen["labels"] = torch.searchsorted(kept, chosen["labels"])
    return chosen, tuple(DIGITS[digit] for digit in kept.tolist())
