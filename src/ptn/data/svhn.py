"""Street View House Numbers: single digits, upright (SVHN) or rotated by any angle (ROTSVHN).

Sources, under `svhn/` in a data folder, here for the split "train":

- `train_32x32.mat`: the official crops, for upright sets only, because they lack the surroundings of the digits.
- `train/digitStruct.mat` and its photos, or `train.tar.gz` with both: the official full numbers.
- `train_00.jpg` … and `train_labels.npz`: 48×48 tiles cut from the full numbers.

Upright sets use the first source that exists, rotated sets the first of the last two. The central 32×32 of a tile
is the official crop.
"""

import gzip
import struct
import tarfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import pi, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..config import check
from ..errors import InputError, optional_module
from ..geometry import Similarity, similarity_warp
from .dataset import Dataset, subset
from .images import open_image
from .store import (
    Bounded,
    cached,
    check_decoded,
    find,
    fingerprint,
    max_decoded,
    missing,
    read_npz,
    reading,
    sha256_of_file,
)

TILE: Literal[48] = 48
CROP: Literal[32] = 32
_MAX_SIDE = 3000
_MAT_COMPRESSED = 15
# Part of hashes; increase it if the same files give other images.
VERSION = 1

_ATLAS_COLUMNS = 64
_CHUNK = 2048

Range = tuple[float, float]
Tensors = dict[str, Tensor]


def load_svhn(
    split: str,
    *,
    rotated: bool = False,
    minus: bool = False,
    size: Literal[32, 48] = CROP,
    scale: Range | None = None,
    training_tiles: bool = False,
    seed: int = 0,
) -> Dataset:
    """Load a split of SVHN, images (N, 3, size, size): "train", "test", "extra", or "fit" and "valid".

    "valid" is 6,000 of the training digits and "fit" the rest, always the same.

    Args:
        rotated: rotate every digit about the middle of its box by a uniform random angle, `meta["rotation"]`.
        minus: leave out 6 and 9; the other classes are numbered 0 to 7.
        size: 48 shows more of the surroundings; rotated, it is black outside the disc that its tile always covers.
        scale: of rotated sets: scale every tile by a random factor in this range, at most 1: `meta["scale"]`. The
            image is black outside the scaled disc.
        training_tiles: load the splits "train", "fit" and "extra" as upright tiles of 48×48, to be rotated and
            cropped in training.
        seed: seed of angles and scales.

    If the source has them, `meta` has "image_id" (the photo) and "frac_outside" (the share of the tile outside the
    photo) of each digit.
    """
    if scale is not None:
        check("scale", scale, 0 < scale[0] <= scale[1] <= 1, "two factors in order, above 0 and at most 1")
    if training_tiles and split in ("train", "fit", "extra"):
        rotated, size, scale = False, TILE, None
    official = "train" if split in ("fit", "valid") else split
    source_name, files, read = _find_source(official, with_context=rotated or size == TILE)
    source = fingerprint(files=files, version=VERSION)
    read = partial(cached, f"svhn-{official}", fingerprint(source=source, split=official), read)
    if rotated:
        parameters: dict[str, Any] = {"split": official, "seed": seed, "version": VERSION}
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
    classes = tuple("0123456789")
    if minus:  # a 6 rotated by 180° is a 9, and vice versa
        classes = tuple("01234578")
        digits = torch.tensor([int(name) for name in classes])
        kept = torch.isin(tensors["labels"], digits)
        tensors, valid = {name: tensor[kept] for name, tensor in tensors.items()}, valid[kept]
        tensors["labels"] = torch.searchsorted(digits, tensors["labels"])
    images, labels = tensors.pop("images"), tensors.pop("labels")
    name = ("rotsvhn" if rotated else "svhn") + ("-minus" if minus else "")
    sha256 = fingerprint(source=source, minus=minus, **parameters)
    meta = {"source": source_name, "sha256": sha256, **tensors}
    whole = Dataset(name, official, images, labels, classes, meta)
    if split == official:
        return whole
    return subset(whole, (valid == (split == "valid")).nonzero()[:, 0], split=split)


def validation_mask(count: int) -> Tensor:
    """Return which of `count` training digits are for validation, bool (count,): 6,000 of 73,257, always the same.

    They are random blocks of 60, because digits of one photo are neighbors.
    """
    blocks = count // 60
    generator = torch.Generator().manual_seed(int(fingerprint(data="svhn", split="valid")[:15], 16))
    chosen = torch.randperm(blocks, generator=generator)[: max(1, round(blocks * 6_000 / 73_257))]
    return torch.isin(torch.arange(count) // 60, chosen)


def _find_source(split: str, *, with_context: bool) -> tuple[str, str, Callable[[], Tensors]]:
    """Return description, hash and reader of the files of a split, `with_context` those that show surroundings."""
    crops = find(f"svhn/{split}_32x32.mat")
    if crops and not with_context:
        return "official crops", sha256_of_file(crops), partial(read_crops, crops)
    if boxes := find(f"svhn/{split}/digitStruct.mat"):
        photos = sorted(boxes.parent.glob("*.png"))
        hashes = fingerprint(files=[sha256_of_file(path) for path in (boxes, *photos)])
        digest = fingerprint(names=[path.name for path in photos], files=hashes)
        return "full numbers", digest, partial(read_photos, boxes.parent)
    if archive := find(f"svhn/{split}.tar.gz"):
        return "full numbers", sha256_of_file(archive), partial(read_archive, archive)
    if labels := find(f"svhn/{split}_labels.npz"):
        atlases = sorted(labels.parent.glob(f"{split}_[0-9][0-9].jpg"))
        hashes = fingerprint(files=[sha256_of_file(path) for path in (*atlases, labels)])
        return "context tiles", hashes, partial(read_atlases, atlases, labels)
    name = ("rotsvhn" if with_context else "svhn") + ("-extra" if split == "extra" else "")
    first = f"svhn/{split}_labels.npz" if with_context else f"svhn/{split}_32x32.mat"
    raise missing(name, f"svhn/{split}.tar.gz", first)


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
    scipy_io = optional_module("scipy.io")
    with reading(path):
        check_decoded(path, 2 * _decoded_bytes(path))  # the images are copied
        content = scipy_io.loadmat(path, variable_names=("X", "y"))
        return {
            "images": torch.from_numpy(content["X"]).permute(3, 2, 0, 1).contiguous(),
            "labels": torch.from_numpy(content["y"]).flatten().long() % 10,
        }


def _decoded_bytes(path: Path) -> int:
    """Return the number of bytes in the compressed elements of a MATLAB 5 file, counted up to their limit."""
    total, limit = 0, max_decoded(path)
    with path.open("rb") as stream:
        order = "<" if stream.read(128)[126:] == b"IM" else ">"  # the end of the header
        while len(tag := stream.read(8)) == 8 and total <= limit:
            kind, length = struct.unpack(f"{order}II", tag)
            decoder, start = zlib.decompressobj(), stream.tell()
            while kind == _MAT_COMPRESSED and not decoder.eof and total <= limit:
                packed = decoder.unconsumed_tail or stream.read(2**16)
                if not packed:
                    raise ValueError("it is truncated")
                total += len(decoder.decompress(packed, 2**20))
            stream.seek(start + length)
    return total


def read_atlases(atlases: list[Path], labels: Path) -> Tensors:
    """Read the tiles in JPEG atlases of 64×64 tiles, and the arrays of `labels` in the same order."""
    y, image_id, frac_outside = read_npz(labels, "y", "image_id", "frac_outside")

    def decode(path: Path) -> NDArray[np.uint8]:
        with reading(path):
            grid = _read_pixels(path).reshape(-1, TILE, _ATLAS_COLUMNS, TILE, 3)
        return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, TILE, TILE)

    with ThreadPoolExecutor() as pool:
        images = np.concatenate(list(pool.map(decode, atlases)))
    if not len(y) <= len(images) < len(y) + _ATLAS_COLUMNS:  # the last row may have unused tiles
        raise InputError(f"{labels} has {len(y)} labels for {len(images)} tiles")
    return _as_tensors(images[: len(y)], y, image_id, frac_outside)


def read_archive(archive: Path) -> Tensors:
    """Cut the tiles of a `train.tar.gz` of full numbers, unpacked into a temporary folder."""
    with reading(archive), TemporaryDirectory(prefix="ptn-") as folder:
        # photos are compressed already; tarfile reads headers of any size into memory
        remaining = 2**28 + 4 * archive.stat().st_size
        with gzip.open(archive) as stream, tarfile.open(fileobj=Bounded(stream, remaining), mode="r|") as file:  # type: ignore[call-overload]
            for member in file:
                remaining -= member.size + 2**14  # also of sparse files; small ones cost time
                if remaining < 0:
                    raise ValueError("it would unpack to too many bytes or files")
                file.extract(member, folder, filter="data")  # refuses members that would land outside the folder
        return read_photos(next(Path(folder).iterdir()))


def read_photos(folder: Path) -> Tensors:
    """Cut the tiles of the photos in a folder, with the boxes of its `digitStruct.mat`."""
    names, tables = read_digit_struct(folder / "digitStruct.mat")
    if not names or len(set(names)) < len(names) or any(Path(name).name != name for name in names):
        raise InputError(f"{folder / 'digitStruct.mat'} must list photos in its own folder with different names")
    area = sum(float((table[:, 2:4].max(axis=1, initial=0) ** 2).sum()) for table in tables)
    if not area <= 2**27 + 16 * sum(path.stat().st_size for path in folder.iterdir()):
        raise InputError(f"{folder / 'digitStruct.mat'} has too many or too large boxes for its photos")

    def cut(name: str, table: NDArray[np.float64]) -> list[tuple[NDArray[np.uint8], float]]:
        pixels = _read_pixels(folder / name)
        return [cut_tile(pixels, row[:4] - (1, 1, 0, 0)) for row in table]

    with ThreadPoolExecutor() as pool:
        cuts = [tile for tiles in pool.map(cut, names, tables) for tile in tiles]
    images, outside = (np.stack(column) for column in zip(*cuts, strict=True))
    image_id = np.repeat(np.arange(len(tables)), list(map(len, tables))) + 1
    return _as_tensors(images, np.concatenate(tables)[:, 4] % 10, image_id, outside)


def _as_tensors(
    images: NDArray[np.uint8], labels: NDArray[Any], image_id: NDArray[Any], frac_outside: NDArray[Any]
) -> Tensors:
    return {
        "images": torch.from_numpy(images),
        "labels": torch.from_numpy(labels).long(),
        "image_id": torch.from_numpy(image_id).long(),
        "frac_outside": torch.from_numpy(frac_outside).float(),
    }


def cut_tile(photo: NDArray[np.uint8], box: NDArray[np.float64]) -> tuple[NDArray[np.uint8], float]:
    """Cut the tile (3, 48, 48) around a digit of `photo` (H, W, 3); also return its share outside the photo.

    `box` is left, top, width, height. Widened to a square, it becomes the central 32×32. Pixels outside the photo
    repeat its edge. The resampling is bicubic and antialiased.
    """
    from PIL import Image

    left, top, width, height = box
    if not (np.abs(box) < _MAX_SIDE).all() or min(width, height) < 0:
        raise InputError(f"a digit has the box {box.tolist()}, which is not in a photo")
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
    with reading(path), open_image(path) as image:
        if image.width * image.height > min(2**24, 2**16 + 64 * path.stat().st_size):
            raise ValueError(f"{image.width}×{image.height} pixels are too many for its size")
        return np.asarray(image.convert("RGB"))


def read_digit_struct(path: Path) -> tuple[list[str], list[NDArray[np.float64]]]:
    """Read the HDF5 file `digitStruct.mat`: the name of each photo, and its digits (n, 5).

    These are left, top, width, height and label. The corner of a photo is (1, 1), and zero has the label 10.
    """
    h5py = optional_module("h5py")
    fields = ("left", "top", "width", "height", "label")
    with reading(path), h5py.File(path, "r") as file:
        remaining = 2**12 + path.stat().st_size // 10  # a file of this kind has some hundred bytes for each number

        def load(dataset: Any) -> NDArray[Any]:
            nonlocal remaining
            remaining -= dataset.size + 8  # each takes time
            if dataset.external or dataset.is_virtual:
                raise ValueError("it refers to another file")
            chunk = prod(dataset.chunks or (1,)) * dataset.dtype.itemsize
            if remaining < 0 or max(chunk, dataset.nbytes) > 2**26:
                raise ValueError("it has too many numbers for its size")
            return np.asarray(dataset[()])

        def member(group: Any, name: str) -> Any:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"it has no {name}, or refers to another file")
            return group[name]

        def read(box: Any, field: str) -> list[float]:
            values = load(member(box, field))  # references to numbers, or the number of a single digit
            return [values[0, 0]] if values.shape == (1, 1) else [load(file[ref])[0, 0] for ref in values[:, 0]]

        photos = member(file, "digitStruct")
        names = ["".join(map(chr, load(file[ref]).ravel())) for ref in load(member(photos, "name"))[:, 0]]
        boxes = (file[ref] for ref in load(member(photos, "bbox"))[:, 0])
        return names, [np.array([read(box, field) for field in fields]).T for box in boxes]
