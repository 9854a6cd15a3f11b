"""Street View House Numbers: single digits, upright (SVHN) or turned by any angle (ROTSVHN).

Three sources, in a data folder under `svhn/`, here for the split "train":

- `train_32x32.mat`, the official crops. They show nothing around the digit, so they serve upright sets only.
- `train/digitStruct.mat` and its photos, or `train.tar.gz` with both: the official full numbers.
- `train_00.jpg` … and `train_labels.npz`: 48×48 tiles cut from the full numbers beforehand.

Upright sets come from the first of these that is there, turned ones from the first of the last two.

Beside the official splits there are "valid", 6,000 of the training digits to choose on, and "fit", the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import pi
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, check_choice
from ..geometry import Similarity, similarity_warp
from .checks import check_device, check_seed
from .dataset import Dataset, subset
from .formats.mat import read_svhn_mat
from .store import MissingDataError, cached, find, fingerprint, missing, sha256_of_file, sha256_of_files
from .svhn_tiles import CROP, TILE, tiles_from_archive, tiles_from_atlases, tiles_from_photos

SPLITS = ("train", "fit", "valid", "test", "extra")
# Held out for validation are so many of the training digits, in blocks of neighbours: digits of one photo follow
# each other, and show each other.
HELD_OUT, HELD_OUT_OF = 6_000, 73_257
BLOCK = 60
Range = tuple[float, float]
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
    scale: Sequence[float] | None = None,
    training_tiles: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Dataset:
    """A split of SVHN as images (N, 3, size, size): "train", its parts "fit" and "valid", "test" or "extra".

    Args:
        rotated: turn every digit about the middle of its box by an angle of its own, uniform in [0, 2π) and
            given by `seed`: `meta["rotation"]`, in the direction of `similarity_warp`. It is cut from a
            larger tile, so it is covered everywhere.
        minus: leave out 6 and 9, and number the other eight classes 0 to 7.
        size: 32, the usual crop, or 48, half as much again of what is around it. Turned, that is seen through
            the disc which the tile covers at every angle, black outside.
        scale: of rotated sets: shrink every tile by a factor of its own too, uniform between these two:
            `meta["scale"]`. It is seen through the disc as well, which shrinks with it.
        training_tiles: the splits that are trained on ("train", "fit", "extra") come as whole tiles, upright, 48
            pixels wide, for whoever turns and crops them anew whenever they are seen.
        device: where the digits are turned. The angles do not depend on it.

    `meta` has "source", "sha256", and per digit "image_id" (the photo) and "frac_outside" (the share of its
    48×48 tile that lay outside the photo) where the source knows them.
    """
    check_choice("split", split, SPLITS)
    check_seed(seed)
    device = check_device(device)
    if size not in (CROP, TILE):
        raise InputError(f"SVHN has no images of size {size}: take {CROP} or {TILE}")
    between = _check_scale(scale, rotated=rotated)
    if training_tiles and split in ("train", "fit", "extra"):
        rotated, size, between = False, TILE, None
    official = "train" if split in ("fit", "valid") else split
    source = _find_source(official, with_context=rotated or size == TILE)
    if rotated:
        made_from: dict[str, object] = {"source": source.sha256, "split": official, "seed": seed}
        made_from |= {"version": ROTATION_VERSION}
        if (size, between) != (CROP, None):
            made_from |= {"size": size, "scale": between}
        build = partial(_turn_digits, source, official, seed, size, between, device)
        tensors = cached(f"rotsvhn-{official}", fingerprint(**made_from), build)
    else:
        made_from = {"source": source.sha256, "split": official, "size": size}
        tensors = _read_cached(source, official)
        tensors["images"] = _centre(tensors["images"], size)
    held_out = held_out_digits(len(tensors["labels"]))
    classes = DIGITS
    if minus:
        mask, classes = _unambiguous(tensors["labels"])
        tensors, held_out = {name: tensor[mask] for name, tensor in tensors.items()}, held_out[mask]
        tensors["labels"] = torch.searchsorted(torch.tensor([int(name) for name in classes]), tensors["labels"])
    images, labels = tensors.pop("images"), tensors.pop("labels")
    name = ("rotsvhn" if rotated else "svhn") + ("-minus" if minus else "")
    meta = {"source": source.name, "sha256": fingerprint(minus=minus, **made_from), **tensors}
    whole = Dataset(name, official, images, labels, classes, meta)
    return (
        whole if split == official else subset(whole, (held_out == (split == "valid")).nonzero()[:, 0], split=split)
    )


def held_out_digits(count: int) -> Tensor:
    """Which of `count` training digits are for validation, bool (count,): blocks of neighbours, drawn once for
    everybody."""
    blocks = count // BLOCK
    generator = torch.Generator().manual_seed(int(fingerprint(data="svhn", split="valid")[:15], 16))
    drawn = torch.randperm(blocks, generator=generator)[: max(1, round(blocks * HELD_OUT / HELD_OUT_OF))]
    return torch.isin(torch.arange(count) // BLOCK, drawn)


def _check_scale(scale: Sequence[float] | None, *, rotated: bool) -> Range | None:
    if scale is None:
        return None
    if not rotated:
        raise InputError("only rotated SVHN is scaled: take rotsvhn")
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
        raise InputError(f"scale must be two factors in order, above 0 and at most 1; got {scale!r}")
    return float(scale[0]), float(scale[1])


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


def _turn_digits(
    source: _Source, split: str, seed: int, size: int, between: Range | None, device: torch.device
) -> dict[str, Tensor]:
    """Every digit of a split turned by its own angle, and shrunk by its own factor: (N, 3, size, size)."""
    tensors = _read_cached(source, split)
    stream = int(fingerprint(data="rotsvhn", split=split, seed=seed)[:15], 16)
    generator = torch.Generator().manual_seed(stream)
    count = len(tensors["labels"])
    angles = 2 * pi * torch.rand(count, generator=generator)
    factors = torch.ones(count)
    if between is not None:
        factors = between[0] + (between[1] - between[0]) * torch.rand(count, generator=generator)
    parts = []
    columns = (tensors["images"], angles, factors)
    for tiles, rotation, scale in zip(*(column.split(CHUNK) for column in columns), strict=True):
        turned = _turn(tiles.to(device).float(), rotation.to(device), scale.to(device), size, shrunk=bool(between))
        parts.append(turned.round().clamp(0, 255).byte().cpu())
    made = tensors | {"images": torch.cat(parts), "rotation": angles}
    return made if between is None else made | {"scale": factors}


def _turn(tiles: Tensor, rotation: Tensor, scale: Tensor, size: int, *, shrunk: bool) -> Tensor:
    """Tiles turned and scaled, as images of `size` pixels."""
    if size == CROP and not shrunk:
        # A 48-pixel tile covers a turned 32-pixel crop with all that the cubic kernel reads.
        return similarity_warp(tiles, Similarity(rotation), size=(CROP, CROP), mode="bicubic")
    fine = 2 if shrunk else 1  # what is made smaller is averaged, or it would alias
    turned = similarity_warp(
        tiles,
        Similarity(rotation, fine * scale),
        size=(fine * size, fine * size),
        mode="bicubic",
        padding_mode="border",
    )
    from_middle = torch.arange(size, device=tiles.device) - (size - 1) / 2
    radius = torch.hypot(from_middle[:, None], from_middle[None, :])
    covered = radius <= scale[:, None, None] * (TILE - 1) / 2
    return F.avg_pool2d(turned, fine) * covered[:, None]


def _centre(images: Tensor, size: int) -> Tensor:
    """The middle `size` × `size` pixels of square images."""
    margin = (images.shape[-1] - size) // 2
    return images[:, :, margin : margin + size, margin : margin + size].contiguous()


def _unambiguous(labels: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """Which digits are other than 6 and 9, bool (N,), and the names of their classes."""
    kept = [digit for digit in range(10) if digit not in AMBIGUOUS]
    return torch.isin(labels, torch.tensor(kept)), tuple(DIGITS[digit] for digit in kept)
