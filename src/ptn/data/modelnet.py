"""ModelNet40 and ModelNet10 as voxels: from packed voxels, or from the official meshes.

Packed voxels are `modelnet40/vox32.npz` ("surf" and "solid", 32³) and `modelnet40/surf64.npz` ("surf64").
The meshes are the official zip, or the folder that it unpacks to; they are voxelised once, at both sizes and
both occupancies, and kept in the cache. Packed voxels come first where they have what is asked for; the solid
at 64³ is their surface filled, which is what voxelising does too.
The official sets have a training and a test part. Here "valid" is a tenth of each class of the training part,
the same for everybody: to choose on, so that the test shapes are looked at once.
ModelNet10 has as many shapes as ModelNet40 has of the same ten classes, but it was published as aligned anew:
that they are the same shapes in the same pose is not known, so it is read from its own meshes only.
"""

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError, check_choice
from .dataset import VoxelDataset, subset
from .formats.off import read_off
from .modelnet_packed import OFFICIAL, as_channels, check_complete, find_packed
from .store import LOG, MissingDataError, cached, find, fingerprint, missing
from .voxelize import (
    OCCUPANCIES,
    VOXELIZER_VERSION,
    Occupancy,
    Progress,
    check_size,
    each_mesh,
    voxelize_packed,
)

# By number of classes: the shapes of each official part, and of each split here.
SHAPES: Mapping[int, Mapping[str, int]] = {
    40: {"train": 9843, "test": 2468},
    10: {"train": 3991, "test": 908},
}
SPLITS: Mapping[int, Mapping[str, int]] = {
    40: {"train": 8858, "valid": 985, "test": 2468},
    10: {"train": 3592, "valid": 399, "test": 908},
}


def load_modelnet(
    split: str,
    *,
    classes: int = 40,
    occupancy: Occupancy = "surface",
    size: int = 32,
    workers: int | None = None,
    progress: Progress | None = None,
) -> VoxelDataset:
    """One split of ModelNet40 or ModelNet10: "train", "valid" or "test"; "train" and "valid" are the official
    9,843 (3,991) training shapes.

    `voxelize` says what `occupancy` and `size` mean; "surface+solid" is both, as two channels. `workers` and
    `progress(done, total)` are for what is made once, the first time: from meshes, minutes long, or by filling
    packed surfaces. A mesh that cannot be read is an error, told after all others were tried: with
    shapes missing it would be another test set, and its numbers not comparable.
    `meta`: "source" (the file's name), "sha256", "shape_names" (list), and "from_points", bool (N,): shapes
    that were filled in from points because there was no mesh of them.
    """
    if classes not in SHAPES:
        raise InputError(f"ModelNet comes with 40 classes or 10, not {classes!r}")
    check_choice("split", split, SPLITS[classes])
    check_choice("occupancy", occupancy, OCCUPANCIES)
    check_size(size)
    official = "test" if split == "test" else "train"
    whole: VoxelDataset | None = None
    if classes == 40:
        whole = find_packed(official, occupancy, size, expected=(SHAPES[40][official], 40), progress=progress)
    if whole is None:
        source = _find_meshes(classes)
        if source is None:
            raise _no_meshes(classes)
        whole = _from_meshes(source, classes, official, occupancy, size, workers, progress)
    if split == "test":
        return whole
    chosen = held_out(whole.labels, whole.meta["shape_names"])
    return subset(whole, (chosen == (split == "valid")).nonzero()[:, 0], split=split)


def held_out(labels: Tensor, names: Sequence[str]) -> Tensor:
    """Which training shapes are for validation, bool (N,): of each class the tenth whose names hash lowest."""
    hashes = [hashlib.sha256(name.encode()).digest() for name in names]
    chosen = torch.zeros(len(names), dtype=torch.bool)
    for label in labels.unique():
        rows = sorted((labels == label).nonzero()[:, 0].tolist(), key=hashes.__getitem__)
        chosen[rows[: round(len(rows) / 10)]] = True
    return chosen


def _no_meshes(classes: int) -> MissingDataError:
    """The error for meshes that are not at hand, saying why packed voxels would not do, if so."""
    error = missing(f"modelnet{classes}", f"modelnet{classes}/ModelNet{classes}.zip")
    if classes == 10:
        return MissingDataError(f"{error} (voxels of modelnet40 are not taken for it: poses may differ)")
    return error


def _find_meshes(classes: int) -> Path | None:
    """The official zip, or the folder of its classes."""
    name = f"ModelNet{classes}"
    # Looking for one of the classes tells the folder from modelnet40/ where file names have no case.
    found = find(f"{name.lower()}/{name}.zip", f"{name}.zip", f"{name.lower()}/{name}/bathtub", f"{name}/bathtub")
    return found.parent if found and found.is_dir() else found


def _from_meshes(
    source: Path,
    classes: int,
    split: str,
    occupancy: Occupancy,
    size: int,
    workers: int | None,
    progress: Progress | None,
) -> VoxelDataset:
    name = f"modelnet{classes}"
    members = _zip_members(source, classes) if source.is_file() else _folder_members(source)
    class_names = tuple(sorted({member.split("/")[0] for member in members}))
    shapes = sorted((member for member in members if member.split("/")[1] == split), key=_class_and_name)
    check_complete(source, split, (len(shapes), len(class_names)), (SHAPES[classes][split], classes))
    made = cached(
        f"{name}-{split}",
        fingerprint(shapes=[[shape, *members[shape]] for shape in shapes], voxelizer=VOXELIZER_VERSION),
        partial(_voxelize_shapes, source, classes, shapes, workers, progress),
    )
    hashes = [bytes(row).hex() for row in made["sha256"].numpy()]
    return VoxelDataset(
        name=name,
        split=split,
        packed=as_channels([made[f"{kind}{size}"] for kind in occupancy.split("+")]),
        size=size,
        labels=torch.tensor([class_names.index(shape.split("/")[0]) for shape in shapes]),
        classes=class_names,
        meta={
            "source": source.name,
            "sha256": fingerprint(
                meshes=list(zip(shapes, hashes, strict=True)),
                voxelizer=VOXELIZER_VERSION,
                occupancy=occupancy,
                size=size,
            ),
            "shape_names": [Path(shape).stem for shape in shapes],
            "from_points": torch.zeros(len(shapes), dtype=torch.bool),
        },
    )


def _class_and_name(member: str) -> tuple[str, ...]:
    return tuple(member.split("/"))


def _zip_members(source: Path, classes: int) -> dict[str, tuple[int, int]]:
    """The meshes in the official zip, `<class>/<split>/<name>.off`, with their sizes and CRCs."""
    try:
        with zipfile.ZipFile(source) as archive:
            infos = archive.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{source} is not a readable zip file: {error}") from error
    members = {}
    for info in infos:
        # Nothing is unpacked, but a zip with such a name is not what it says it is.
        if info.filename.startswith("/") or ".." in re.split(r"[/\\]", info.filename):
            raise InputError(f"{source} has a member outside its folder, {info.filename!r}: it is not used")
        if match := re.fullmatch(rf"ModelNet{classes}/([^/]+/(?:train|test)/[^/.][^/]*\.off)", info.filename):
            members[match[1]] = (info.file_size, info.CRC)
    return members


def _folder_members(source: Path) -> dict[str, tuple[int, int]]:
    """The meshes in the folder, `<class>/<split>/<name>.off`, with their sizes and times of change."""
    members = {}
    for split in OFFICIAL:
        for path in source.glob(f"*/{split}/[!.]*.off"):
            stat = path.stat()
            members[path.relative_to(source).as_posix()] = (stat.st_size, stat.st_mtime_ns)
    return members


def _voxelize_shapes(
    source: Path, classes: int, shapes: list[str], workers: int | None, progress: Progress | None
) -> dict[str, Tensor]:
    """The packed grids of the shapes, by name, and the sha256 of each file, uint8 (N, 32)."""
    LOG.info("voxelising %d meshes of %s, once", len(shapes), source)
    made: dict[str, NDArray[np.uint8]] = {}
    _archive.cache_clear()
    work = partial(_voxelize_shape, source, classes)
    try:
        for row, arrays in each_mesh(work, shapes, workers=workers, progress=progress):
            for name, array in arrays.items():
                made.setdefault(name, np.zeros((len(shapes), len(array)), dtype=np.uint8))[row] = array
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    finally:
        _archive.cache_clear()
    return {name: torch.from_numpy(array) for name, array in made.items()}


def _voxelize_shape(source: Path, classes: int, shape: str) -> dict[str, NDArray[np.uint8]]:
    try:
        if source.is_dir():
            data = (source / shape).read_bytes()
        else:
            data = _archive(source, os.getpid()).read(f"ModelNet{classes}/{shape}")
    except (OSError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"{shape} is damaged: {error}") from error
    digest = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
    return {"sha256": digest, **voxelize_packed(*read_off(data, name=shape))}


@lru_cache(maxsize=1)
def _archive(source: Path, process: int) -> zipfile.ZipFile:
    """The zip, open for reading in this process: forked processes must not share a position in the file."""
    return zipfile.ZipFile(source)
