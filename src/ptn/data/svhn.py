"""Street View House Numbers: single digits, upright (SVHN) or rotated by any angle (ROTSVHN).

Sources, under `svhn/` in a data folder, here for the split "train":

- `train_32x32.mat`: the official crops, for upright sets only, because they lack the surroundings of the digits.
- `train/digitStruct.mat` and its photos, or `train.tar.gz` with both: the official full numbers.
- `train_00.jpg` … and `train_labels.npz`: 48×48 tiles cut from the full numbers.

Upright sets use the first source that exists, rotated sets the first of the last two. The central 32×32 of a tile
is the official crop.
"""

import tarfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil, pi
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..config import check
from ..errors import InputError, optional_module
from ..geometry import Similarity, similarity_warp
from .dataset import Dataset, subset
from .store import cached, find, fingerprint, first_line, missing, read_npz, sha256_of_file

TILE = 48
CROP = 32
# The part of the training digits held out for validation, in blocks: digits of one photo are neighbors.
HELD_OUT, HELD_OUT_OF = 6_000, 73_257
BLOCK = 60
DIGITS = tuple("0123456789")
# A 6 rotated by 180° is a 9, and vice versa.
AMBIGUOUS = (6, 9)
# Parts of hashes; increase them if the same files give other images.
TILES_VERSION = 1
ROTATION_VERSION = 1

_ATLAS_COLUMNS = 64
_ATLAS_TILES = _ATLAS_COLUMNS**2
_CHUNK = 2048

Range = tuple[float, float]
Tensors = dict[str, Tensor]
# Files of a split: description, hash and reader.
Source = tuple[str, str, Callable[[], Tensors]]


def load_svhn(
    split: str,
    *,
    rotated: bool = False,
    minus: bool = False,
    size: int = CROP,
    scale: tuple[float, float] | None = None,
    training_tiles: bool = False,
    seed: int = 0,
) -> Dataset:
    """Load a split of SVHN, images (N, 3, size, size): "train", "test", "extra", or "fit" and "valid".

    "valid" is 6,000 of the training digits and "fit" the rest, always the same.

    Args:
        rotated: rotate every digit about the middle of its box by a uniform random angle, `meta["rotation"]`.
        minus: leave out 6 and 9; the other classes are numbered 0 to 7.
        size: 32, or 48 for more of the surroundings. A rotated image of size 48 is black outside the disc that its
            tile covers at every angle.
        scale: of rotated sets: scale every tile by a random factor in this range, at most 1: `meta["scale"]`. The
            image is black outside the scaled disc.
        training_tiles: load the splits "train", "fit" and "extra" as upright tiles of 48×48, to be rotated and
            cropped in training.
        seed: seed of angles and scales.

    `meta` has "source", "sha256" and, if the source has them, "image_id" (the photo) and "frac_outside" (the share
    of the tile outside the photo) of each digit.
    """
    check("size", size, size in (CROP, TILE), f"{CROP} or {TILE}")
    check("seed", seed, 0 <= seed < 2**63, "at least 0 and less than 2^63")
    if scale is not None:
        check("scale", scale, 0 < scale[0] <= scale[1] <= 1, "two factors in order, above 0 and at most 1")
    if training_tiles and split in ("train", "fit", "extra"):
        rotated, size, scale = False, TILE, None
    official = "train" if split in ("fit", "valid") else split
    source_name, files, read = _find_source(official, with_context=rotated or size == TILE)
    source = fingerprint(files=files, version=TILES_VERSION)
    read = partial(cached, f"svhn-{official}", fingerprint(source=source, split=official), read)
    if rotated:
        parameters: dict[str, Any] = {"split": official, "seed": seed, "version": ROTATION_VERSION}
        if (size, scale) != (CROP, None):
            parameters |= {"size": size, "scale": scale}
        build = partial(_rotate_all, read, official, seed, size, scale)
        tensors = cached(f"rotsvhn-{official}", fingerprint(source=source, **parameters), build)
    else:
        parameters = {"split": official, "size": size}
        tensors = read()
        margin = (tensors["images"].shape[-1] - size) // 2
        tensors["images"] = tensors["images"][..., margin : margin + size, margin : margin + size].contiguous()
    valid = validation_mask(len(tensors["labels"]))
    classes = DIGITS
    if minus:
        kept = [digit for digit in range(10) if digit not in AMBIGUOUS]
        mask = torch.isin(tensors["labels"], torch.tensor(kept))
        tensors, valid = {name: tensor[mask] for name, tensor in tensors.items()}, valid[mask]
        tensors["labels"] = torch.searchsorted(torch.tensor(kept), tensors["labels"])
        classes = tuple(DIGITS[digit] for digit in kept)
    images, labels = tensors.pop("images"), tensors.pop("labels")
    name = ("rotsvhn" if rotated else "svhn") + ("-minus" if minus else "")
    sha256 = fingerprint(source=source, minus=minus, **parameters)
    meta = {"source": source_name, "sha256": sha256, **tensors}
    whole = Dataset(name, official, images, labels, classes, meta)
    if split == official:
        return whole
    return subset(whole, (valid == (split == "valid")).nonzero()[:, 0], split=split)


def validation_mask(count: int) -> Tensor:
    """Return which of `count` training digits are for validation, bool (count,): random blocks, always the same."""
    blocks = count // BLOCK
    generator = torch.Generator().manual_seed(int(fingerprint(data="svhn", split="valid")[:15], 16))
    chosen = torch.randperm(blocks, generator=generator)[: max(1, round(blocks * HELD_OUT / HELD_OUT_OF))]
    return torch.isin(torch.arange(count) // BLOCK, chosen)


def _find_source(split: str, *, with_context: bool) -> Source:
    """Find the files of a split; `with_context` if they must show the surroundings of the digits."""
    crops = find(f"svhn/{split}_32x32.mat")
    if crops and not with_context:
        return "official crops", sha256_of_file(crops), partial(read_crops, crops)
    if boxes := find(f"svhn/{split}/digitStruct.mat"):
        photos = sorted(boxes.parent.glob("*.png"))
        digest = fingerprint(names=[path.name for path in photos], files=_sha256_of_files([boxes, *photos]))
        return "full numbers", digest, partial(read_photos, boxes.parent)
    if archive := find(f"svhn/{split}.tar.gz"):
        return "full numbers", sha256_of_file(archive), partial(read_archive, archive)
    if labels := find(f"svhn/{split}_labels.npz"):
        atlases = sorted(labels.parent.glob(f"{split}_[0-9][0-9].jpg"))
        return "context tiles", _sha256_of_files([*atlases, labels]), partial(read_atlases, atlases, labels)
    name = ("rotsvhn" if with_context else "svhn") + ("-extra" if split == "extra" else "")
    first = f"svhn/{split}_labels.npz" if with_context else f"svhn/{split}_32x32.mat"
    raise missing(name, f"svhn/{split}.tar.gz", first)


def _sha256_of_files(paths: Sequence[Path]) -> str:
    return fingerprint(files=[sha256_of_file(path) for path in paths])


def _rotate_all(read: Callable[[], Tensors], split: str, seed: int, size: int, limits: Range | None) -> Tensors:
    """Rotate every digit of a split by its own angle, and scale it by its own factor: (N, 3, size, size)."""
    tensors = read()
    generator = torch.Generator().manual_seed(int(fingerprint(data="rotsvhn", split=split, seed=seed)[:15], 16))
    count = len(tensors["labels"])
    angles = 2 * pi * torch.rand(count, generator=generator)
    factors = torch.ones(count)
    if limits is not None:
        factors = limits[0] + (limits[1] - limits[0]) * torch.rand(count, generator=generator)
    fine = 1 if limits is None else 2  # scaled tiles are averaged to avoid aliasing
    offset = torch.arange(size) - (size - 1) / 2
    radius = torch.hypot(offset[:, None], offset)
    chunks = []
    columns = (tensors["images"], angles, factors)
    for tiles, rotation, scale in zip(*(column.split(_CHUNK) for column in columns), strict=True):
        pose, out = Similarity(rotation, fine * scale), (fine * size, fine * size)
        rotated = similarity_warp(tiles.float(), pose, size=out, mode="bicubic", padding_mode="border")
        covered = radius <= scale[:, None, None] * (TILE - 1) / 2
        rotated = F.avg_pool2d(rotated, fine) * covered[:, None]
        chunks.append(rotated.round().clamp(0, 255).byte())
    tensors |= {"images": torch.cat(chunks), "rotation": angles}
    return tensors if limits is None else tensors | {"scale": factors}


def read_crops(path: Path) -> Tensors:
    """Read a MATLAB 5 file of crops: `X` (32, 32, 3, N), and `y` with 10 for zero."""
    loadmat = optional_module("scipy.io").loadmat
    try:
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = content["X"], content["y"].ravel()
    except Exception as error:  # scipy raises exceptions of many types for damaged files
        raise InputError(f"cannot read {path} as a MATLAB file of SVHN: {first_line(error)}") from error
    valid = images.dtype == np.uint8 and images.shape == (CROP, CROP, 3, len(labels))
    if not valid or not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path}: X is {images.dtype} {images.shape} for {len(labels)} labels, 1 to 10")
    return {
        "images": torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1))),
        "labels": torch.from_numpy(labels.astype(np.int64) % 10),
    }


def read_atlases(atlases: list[Path], labels: Path) -> Tensors:
    """Read the tiles in JPEG atlases of 64×64 tiles, and the arrays of `labels` in the same order."""
    y, image_id, frac_outside = read_npz(labels, "y", "image_id", "frac_outside")
    if not len(y) == len(image_id) == len(frac_outside) or ceil(len(y) / _ATLAS_TILES) != len(atlases):
        raise InputError(
            f"{labels} has {len(y)} labels, which do not match its arrays or the {len(atlases)} atlases"
        )
    images = np.empty((len(y), 3, TILE, TILE), dtype=np.uint8)

    def decode(index: int) -> None:
        target = images[index * _ATLAS_TILES : (index + 1) * _ATLAS_TILES]
        pixels = _read_pixels(atlases[index])
        rows = ceil(len(target) / _ATLAS_COLUMNS)
        if pixels.shape != (rows * TILE, _ATLAS_COLUMNS * TILE, 3):
            raise InputError(
                f"{atlases[index]} has shape {pixels.shape}, not {rows}×{_ATLAS_COLUMNS} tiles of {TILE}"
            )
        grid = pixels.reshape(rows, TILE, _ATLAS_COLUMNS, TILE, 3)
        target[:] = grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, TILE, TILE)[: len(target)]

    with ThreadPoolExecutor() as pool:
        list(pool.map(decode, range(len(atlases))))
    return _as_tensors(images, y, image_id, frac_outside)


def read_archive(archive: Path) -> Tensors:
    """Cut the tiles of a `train.tar.gz` of full numbers, unpacked into a temporary folder."""
    with TemporaryDirectory(prefix="ptn-") as folder:
        try:
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")  # refuses members that would land outside the folder
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise InputError(f"cannot unpack {archive}: {first_line(error)}") from error
        struct_files = sorted(Path(folder).rglob("digitStruct.mat"))
        if not struct_files:
            raise InputError(f"{archive} has no digitStruct.mat")
        return read_photos(struct_files[0].parent)


def read_photos(folder: Path) -> Tensors:
    """Cut the tiles of a folder of full numbers: its photos, and the boxes in its `digitStruct.mat`."""
    names, tables = read_digit_struct(folder / "digitStruct.mat")
    table = np.concatenate(tables)
    counts = [len(rows) for rows in tables]
    starts = np.cumsum(counts) - counts
    images = np.empty((len(table), 3, TILE, TILE), dtype=np.uint8)
    outside = np.empty(len(table), dtype=np.float32)

    def cut(photo: int) -> None:
        pixels = _read_pixels(folder / names[photo])
        for index, row in enumerate(tables[photo], start=starts[photo]):
            images[index], outside[index] = cut_tile(pixels, row[:4] - (1, 1, 0, 0))

    with ThreadPoolExecutor() as pool:
        list(pool.map(cut, range(len(names))))
    return _as_tensors(images, table[:, 4] % 10, np.repeat(np.arange(len(tables)), counts) + 1, outside)


def _as_tensors(
    images: NDArray[np.uint8], labels: NDArray[Any], image_id: NDArray[Any], frac_outside: NDArray[Any]
) -> Tensors:
    return {
        "images": torch.from_numpy(images),
        "labels": torch.from_numpy(labels.astype(np.int64)),
        "image_id": torch.from_numpy(image_id.astype(np.int64)),
        "frac_outside": torch.from_numpy(frac_outside.astype(np.float32)),
    }


def cut_tile(photo: NDArray[np.uint8], box: NDArray[np.float64]) -> tuple[NDArray[np.uint8], float]:
    """Cut the tile (3, 48, 48) around a digit of `photo` (H, W, 3); also return its share outside the photo.

    `box` is left, top, width, height. Widened to a square, it becomes the central 32×32. Pixels outside the photo
    repeat its edge. The resampling is bicubic and antialiased.
    """
    from PIL import Image

    left, top, width, height = box
    reach = max(width, height) * TILE / CROP / 2
    low = np.array((left + width / 2 - reach, top + height / 2 - reach))
    high = low + 2 * reach
    margin = 2 * max(1, reach * 2 / TILE) + 1  # support of the cubic kernel
    start = np.floor(low - margin).astype(int)
    stop = np.ceil(high + margin).astype(int)
    columns = np.arange(start[0], stop[0]).clip(0, photo.shape[1] - 1)
    rows = np.arange(start[1], stop[1]).clip(0, photo.shape[0] - 1)
    patch = Image.fromarray(photo[rows[:, None], columns])
    tile = patch.resize((TILE, TILE), Image.Resampling.BICUBIC, box=(*(low - start), *(high - start)))
    extent = (photo.shape[1], photo.shape[0])
    overlap = (np.minimum(high, extent) - np.maximum(low, 0)).clip(0)
    return np.asarray(tile).transpose(2, 0, 1), float(1 - overlap.prod() / (2 * reach) ** 2)


def _read_pixels(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"cannot read {path}: {first_line(error)}") from error


def read_digit_struct(path: Path) -> tuple[list[str], list[NDArray[np.float64]]]:
    """Read the HDF5 file `digitStruct.mat`: the name of each photo, and its digits (n, 5).

    These are left, top, width, height and label. The corner of a photo is (1, 1), and zero has the label 10.
    """
    h5py = optional_module("h5py")
    fields = ("left", "top", "width", "height", "label")
    try:
        with h5py.File(path, "r") as file:

            def read(box: Any, field: str) -> list[float]:
                values = box[field][()]  # one number if the photo has one digit, otherwise references to numbers
                return [values[0, 0]] if values.shape == (1, 1) else [file[ref][0, 0] for ref in values[:, 0]]

            photos = file["digitStruct"]
            names = ["".join(map(chr, file[ref][()].ravel())) for ref in photos["name"][:, 0]]
            boxes = (file[ref] for ref in photos["bbox"][:, 0])
            tables = [np.array([read(box, field) for field in fields]).T for box in boxes]
        table = np.concatenate(tables)
    except Exception as error:  # h5py raises exceptions of many types for damaged files
        raise InputError(f"cannot read {path} as a digitStruct file: {first_line(error)}") from error
    valid = np.isfinite(table).all() and (table[:, 2:4] > 0).all() and np.isin(table[:, 4], np.arange(1, 11)).all()
    if len(names) != len(tables) or not valid:
        raise InputError(f"{path} has photos without boxes, boxes without a size, or labels outside 1 to 10")
    return names, tables
