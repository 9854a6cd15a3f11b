"""ModelNet40 and ModelNet10 as voxels, from packed voxels or from the official meshes.

Packed voxels are `modelnet40/vox32.npz` (arrays "surf" and "solid") and `modelnet40/surf64.npz` ("surf64"). Without
them, the meshes in the official zip, or the folder that it unpacks to, are voxelized once and cached.
ModelNet10 is read only from its own meshes: the same shapes may have other poses in ModelNet40.
"""

import hashlib
import multiprocessing
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .dataset import VoxelDataset, subset
from .store import cached, check_decoded, find, fingerprint, missing, read_npz, reading, sha256_of_file
from .voxelize import FINE, VOXELIZER_VERSION, Occupancy, fill, parse_mesh, voxel_grids

Progress = Callable[[int, int], None]
Packed = dict[str, NDArray[np.uint8]]

# Number of shapes in each split, by number of classes.
SPLITS: Mapping[int, Mapping[str, int]] = {
    40: {"train": 8858, "valid": 985, "test": 2468},
    10: {"train": 3592, "valid": 399, "test": 908},
}
_MAX_MEMBER = 2**25  # bytes of a mesh in an archive, unless that is larger itself
_PACKED_ARRAYS = {("surface", 32): "surf", ("solid", 32): "solid", ("surface", 64): "surf64"}


def load_modelnet(
    split: str,
    *,
    classes: int = 40,
    occupancy: Occupancy = "surface",
    size: Literal[32, 64] = 32,
    progress: Progress | None = None,
) -> VoxelDataset:
    """Load a split of ModelNet40 or ModelNet10: "train", "valid" or "test".

    "valid" is a tenth of each class of the official training part, always the same, and "train" is the rest.

    Args:
        occupancy, size: as in `voxelize`; "surface+solid" gives two channels.
        progress: called as `progress(done, total)` while meshes are voxelized or surfaces are filled.

    `meta` has "source" (the file's name), "sha256", "shape_names" (list), and "from_points", bool (N,): shapes
    voxelized from points because their mesh was not available.
    """
    official = "test" if split == "test" else "train"
    whole = _load_packed(official, occupancy, size, progress) if classes == 40 else None
    if whole is None:
        whole = _load_meshes(classes, official, occupancy, size, progress)
    if split == "test":
        return whole
    valid = validation_mask(whole.labels, whole.meta["shape_names"])
    return subset(whole, (valid == (split == "valid")).nonzero()[:, 0], split=split)


def validation_mask(labels: Tensor, names: Sequence[str]) -> Tensor:
    """Return which training shapes are for validation, bool (N,): of each class, the tenth with the lowest hash."""
    hashes = [hashlib.sha256(name.encode()).digest() for name in names]
    mask = torch.zeros(len(names), dtype=torch.bool)
    for label in labels.unique():
        rows = sorted((labels == label).nonzero()[:, 0].tolist(), key=hashes.__getitem__)
        mask[rows[: round(len(rows) / 10)]] = True
    return mask


def _check_complete(source: Path, split: str, shapes: int, classes: int, *, expected_classes: int) -> None:
    splits = SPLITS[expected_classes]
    expected = splits["test"] if split == "test" else splits["train"] + splits["valid"]
    if (shapes, classes) != (expected, expected_classes):
        raise InputError(
            f"{source} is incomplete: it has {shapes} {split} shapes of {classes} classes, "
            f"not {expected} of {expected_classes}"
        )


def _load_packed(split: str, occupancy: Occupancy, size: int, progress: Progress | None) -> VoxelDataset | None:
    """Return an official part of ModelNet40 from packed voxels, or None without such a file."""
    path = find("modelnet40/surf64.npz" if size == FINE else "modelnet40/vox32.npz")
    if path is None:
        return None
    labels, parts, names, classes, from_points = read_npz(
        path, "labels", "split", "names", "classes", "from_points"
    )
    rows = np.flatnonzero(parts == (split == "test"))
    _check_complete(path, split, len(rows), len(classes), expected_classes=40)
    kinds, file_hash = occupancy.split("+"), sha256_of_file(path)
    if size == FINE and "solid" in kinds:
        arrays = [f"{kind}{size}" for kind in kinds]
        sha256 = fingerprint(file=file_hash, split=split, voxelizer=VOXELIZER_VERSION)

        def build() -> dict[str, Tensor]:
            return _map(_fill_packed, list(read_npz(path, "surf64")[0][rows]), progress)

        filled = cached(f"modelnet40-{split}-filled", sha256, build)
        grids = [filled[array] for array in arrays]
    else:
        arrays = [_PACKED_ARRAYS[kind, size] for kind in kinds]
        grids = [torch.from_numpy(array[rows]) for array in read_npz(path, *arrays)]
    meta = {
        "source": path.name,
        "sha256": fingerprint(file=file_hash, array="+".join(arrays), split=split),
        "shape_names": names[rows].tolist(),
        "from_points": torch.from_numpy(from_points[rows]).bool(),
    }
    packed, targets = torch.cat(grids, dim=1), torch.from_numpy(labels[rows]).long()
    return VoxelDataset("modelnet40", split, packed, size, targets, tuple(classes.tolist()), meta)


def _fill_packed(surface: NDArray[np.uint8]) -> Packed:
    solid = fill(np.unpackbits(surface).view(np.bool_).reshape(FINE, FINE, FINE))
    return {"surface64": surface, "solid64": np.packbits(solid)}


def _load_meshes(
    classes: int, split: str, occupancy: Occupancy, size: int, progress: Progress | None
) -> VoxelDataset:
    name = f"ModelNet{classes}"
    # A class is part of the path because "ModelNet40" and "modelnet40" are the same on some file systems.
    paths = (f"{name.lower()}/{name}.zip", f"{name}.zip", f"{name.lower()}/{name}/bathtub", f"{name}/bathtub")
    source = find(*paths)
    if source is None:
        raise missing(name.lower(), paths[0])
    if source.is_dir():
        source = source.parent
        stats = {f"{name}/{path.relative_to(source).as_posix()}": path.stat() for path in source.glob("*/*/*.off")}
        # ctime, which programs cannot set, changes with every write; hashing gigabytes of text takes too long
        members = {member: (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for member, stat in stats.items()}
    else:
        with reading(source), zipfile.ZipFile(source) as archive:
            members = {info.filename: (info.file_size, info.CRC, 0) for info in archive.infolist()}
            sizes = [size for size, *_ in members.values()]
            check_decoded(source, sum(sizes))
            if max(sizes, default=0) > max(_MAX_MEMBER, source.stat().st_size):
                raise ValueError(f"it has a file of {max(sizes):,} bytes")
    pattern = re.compile(rf"{name}/(([^/]+)/{split}/([^/.]+)\.off)")
    shapes = {member: match for member in sorted(members) if (match := pattern.fullmatch(member))}
    class_names = tuple(sorted({match[2] for match in shapes.values()}))
    _check_complete(source, split, len(shapes), len(class_names), expected_classes=classes)
    stamps = [[match[1], *members[member]] for member, match in shapes.items()]
    build = partial(_map, partial(_voxelize_member, source), list(shapes), progress)
    key = fingerprint(shapes=stamps, voxelizer=VOXELIZER_VERSION)
    grids = cached(f"{name.lower()}-{split}", key, build)
    # The files' own hashes: times and the kind of source must not change that of the data set.
    digests = [row.tobytes().hex() for row in grids["sha256"].numpy()]
    hashes = [[match[1], digest] for match, digest in zip(shapes.values(), digests, strict=True)]
    packed = torch.cat([grids[f"{kind}{size}"] for kind in occupancy.split("+")], dim=1)
    labels = torch.tensor([class_names.index(match[2]) for match in shapes.values()])
    meta = {
        "source": source.name,
        "sha256": fingerprint(meshes=hashes, voxelizer=VOXELIZER_VERSION, occupancy=occupancy, size=size),
        "shape_names": [match[3] for match in shapes.values()],
        "from_points": torch.zeros(len(shapes), dtype=torch.bool),
    }
    return VoxelDataset(name.lower(), split, packed, size, labels, class_names, meta)


def _voxelize_member(source: Path, member: str) -> Packed:
    """Return the packed grids of a mesh, and the sha256 of its file."""
    with reading(f"{source}:{member}"):
        unpacked = source.is_dir()
        data = (source.parent / member).read_bytes() if unpacked else _open_archive(source).read(member)
        grids = voxel_grids(*parse_mesh(data, ".off"))
    digest = np.frombuffer(hashlib.sha256(data).digest(), np.uint8)
    return {"sha256": digest, **{key: np.packbits(grid) for key, grid in grids.items()}}


@lru_cache(maxsize=1)
def _open_archive(source: Path) -> zipfile.ZipFile:
    """Open the zip once per worker process."""
    return zipfile.ZipFile(source)


def _map(function: Callable[[Any], Packed], items: Sequence[Any], progress: Progress | None) -> dict[str, Tensor]:
    """Return the packed grids of all items by name, computed by several processes."""
    # Forked processes need no importable main module, and run array code only, so threads of torch do not matter.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    results = []
    with ProcessPoolExecutor(mp_context=context) as pool:
        for result in pool.map(function, items, chunksize=8):
            results.append(result)
            if progress is not None:
                progress(len(results), len(items))
    return {key: torch.from_numpy(np.stack([result[key] for result in results])) for key in results[0]}
