"""SVHN digits with what surrounds them: 48×48 tiles whose central 32×32 is the usual cropped digit."""

from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .formats.archive import unpack
from .formats.arrays import read_npz
from .formats.digit_struct import read_digit_struct
from .store import scratch_folder

TILE = 48
CROP = 32
ATLAS_COLUMNS = 64
ATLAS_TILES = ATLAS_COLUMNS * ATLAS_COLUMNS


def tiles_from_atlases(atlases: list[Path], labels: Path) -> dict[str, Tensor]:
    """The tiles in JPEG atlases of 64 × 64, and the arrays that `labels` has for them, in the same order."""
    y, image_id, frac_outside = read_npz(labels, "y", "image_id", "frac_outside")
    if not len(y) == len(image_id) == len(frac_outside):
        raise InputError(f"{labels}: y, image_id and frac_outside are not equally long")
    if ceil(len(y) / ATLAS_TILES) != len(atlases):
        raise InputError(f"{labels} is about {len(y)} digits; {len(atlases)} atlases lie beside it")
    images = np.empty((len(y), 3, TILE, TILE), dtype=np.uint8)

    def decode(index: int) -> None:
        part = images[index * ATLAS_TILES : (index + 1) * ATLAS_TILES]
        part[:] = _read_atlas(atlases[index], len(part))

    with ThreadPoolExecutor() as pool:
        list(pool.map(decode, range(len(atlases))))
    return {
        "images": torch.from_numpy(images),
        "labels": torch.from_numpy(y.astype(np.int64)),
        "image_id": torch.from_numpy(image_id.astype(np.int64)),
        "frac_outside": torch.from_numpy(frac_outside.astype(np.float32)),
    }


def _read_atlas(path: Path, count: int) -> NDArray[np.uint8]:
    """The first `count` tiles (count, 3, 48, 48) of an atlas, row by row."""
    pixels = _read_pixels(path)
    rows = ceil(count / ATLAS_COLUMNS)
    if pixels.shape != (rows * TILE, ATLAS_COLUMNS * TILE, 3):
        height, width, _ = pixels.shape
        raise InputError(f"{path} is {width}×{height} pixels, not {ATLAS_COLUMNS}×{rows} tiles of {TILE}")
    grid = pixels.reshape(rows, TILE, ATLAS_COLUMNS, TILE, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, TILE, TILE)[:count]


def tiles_from_archive(archive: Path) -> dict[str, Tensor]:
    """The tiles of a `train.tar.gz` of full numbers, unpacked only for as long as they are cut."""
    with scratch_folder() as scratch:
        folder = unpack(archive, scratch / "photos")
        found = sorted(folder.rglob("digitStruct.mat"))
        if not found:
            raise InputError(f"{archive} holds no digitStruct.mat")
        return tiles_from_photos(found[0].parent)


def tiles_from_photos(folder: Path) -> dict[str, Tensor]:
    """The tiles of a folder of full numbers: its photos, cut by its `digitStruct.mat`."""
    digits = read_digit_struct(folder / "digitStruct.mat")
    images = np.empty((len(digits.labels), 3, TILE, TILE), dtype=np.uint8)
    outside = np.empty(len(digits.labels), dtype=np.float32)
    bounds = np.searchsorted(digits.photo, np.arange(len(digits.names) + 1))

    def cut(photo: int) -> None:
        pixels = _read_pixels(folder / digits.names[photo])
        for index in range(bounds[photo], bounds[photo + 1]):
            images[index], outside[index] = cut_tile(pixels, digits.boxes[index])

    with ThreadPoolExecutor() as pool:
        list(pool.map(cut, range(len(digits.names))))
    return {
        "images": torch.from_numpy(images),
        "labels": torch.from_numpy(digits.labels),
        "image_id": torch.from_numpy(digits.photo + 1),
        "frac_outside": torch.from_numpy(outside),
    }


def cut_tile(photo: NDArray[np.uint8], box: NDArray[np.float64]) -> tuple[NDArray[np.uint8], float]:
    """The tile (3, 48, 48) around a digit of `photo` (H, W, 3), and the share of it outside the photo.

    `box` is left, top, width, height. Widened to a square, it becomes the central 32×32. Beyond the photo its
    edge is repeated. The resampling is bicubic, antialiased where the tile is smaller than what it shows.
    """
    from PIL import Image

    left, top, width, height = box
    reach = max(width, height) * TILE / CROP / 2
    low = np.array((left + width / 2 - reach, top + height / 2 - reach))
    high = low + 2 * reach
    margin = 2 * max(1, reach * 2 / TILE) + 1  # what the cubic kernel reads around the tile
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
    """The pixels (H, W, 3) of an image file."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
