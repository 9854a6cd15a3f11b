"""ModelNet40 and ModelNet10 as voxels, from packed voxels or from the official meshes.

Packed voxels are `modelnet40/vox32.npz` (arrays "surf" and "solid") and `modelnet40/surf64.npz` ("surf64"). Without
them, meshes are read from the official zip, or the folder that it unpacks to, voxelized once and cached.
ModelNet10 is read only from its own meshes: the same shapes may have other poses in ModelNet40.
"""

import hashlib
import multiprocessing
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .dataset import VoxelDataset, subset
from .store import LOG, cached, find, fingerprint, missing, read_npz, sha256_of_file
from .voxelize import FINE, VOXELIZER_VERSION, Occupancy, check_grid_size, fill, parse_mesh, voxelize_packed

Progress = Callable[[int, int], None]

# Number of shapes in each split, by number of classes.
SPLITS: Mapping[int, Mapping[str, int]] = {
    40: {"train": 8858, "valid": 985, "test": 2468},
    10: {"train": 3592, "valid": 399, "test": 908},
}
_PACKED_ARRAYS = {("surface", 32): "surf", ("solid", 32): "solid", ("surface", 64): "surf64"}


def load_modelnet(
    split: str,
    *,
    classes: int = 40,
    occupancy: Occupancy = "surface",
    size: int = 32,
    progress: Progress | None = None,
) -> VoxelDataset:
    """Load a split of ModelNet40 or ModelNet10: "train", "valid" or "test".

    "valid" is a tenth of each class of the official training part, always the same, and "train" is the rest.

    Args:
        occupancy, size: as in `voxelize`; "surface+solid" gives two channels.
        progress: called as `progress(done, total)` while meshes are voxelized or surfaces are filled.

    `meta` has "source" (the file's name), "sha256", "shape_names" (list), and "from_points", bool (N,): shapes
    voxelized from points because their mesh was not available.

    Raises:
        InputError: a mesh cannot be read. A data set without some of its shapes is never returned.
    """
    check_grid_size(size)
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


def _check_complete(source: Path, split: str, counts: tuple[int, int], classes: int) -> None:
    splits = SPLITS[classes]
    expected = (splits["test"] if split == "test" else splits["train"] + splits["valid"], classes)
    if counts != expected:
        raise InputError(
            f"{source} is incomplete: it has {counts[0]} {split} shapes of {counts[1]} classes, "
            f"not {expected[0]} of {expected[1]}"
        )


def _load_packed(split: str, occupancy: Occupancy, size: int, progress: Progress | None) -> VoxelDataset | None:
    """Return an official part of ModelNet40 from packed voxels, or None without such a file."""
    path = find("modelnet40/surf64.npz" if size == FINE else "modelnet40/vox32.npz")
    if path is None:
        return None
    labels, parts, names, classes, from_points = read_npz(
        path, "labels", "split", "names", "classes", "from_points"
    )
    if any(values.shape != (parts.size,) for values in (labels, names, from_points)) or classes.ndim != 1:
        raise InputError(f"{path}: labels, split, names and from_points are not equally long")
    rows = np.flatnonzero(parts == (split == "test"))
    _check_complete(path, split, (len(rows), len(classes)), 40)
    kinds = occupancy.split("+")
    if size == FINE and "solid" in kinds:
        arrays = [f"{kind}{size}" for kind in kinds]
        filled = _fill_all(path, rows, split, progress)
        grids = [filled[array] for array in arrays]
    else:
        arrays = [_PACKED_ARRAYS[kind, size] for kind in kinds]
        grids = [_read_grids(path, array, rows, size) for array in arrays]
    return VoxelDataset(
        name="modelnet40",
        split=split,
        packed=torch.cat(grids, dim=1),
        size=size,
        labels=torch.from_numpy(labels[rows].astype(np.int64)),
        classes=tuple(classes.tolist()),
        meta={
            "source": path.name,
            "sha256": fingerprint(file=sha256_of_file(path), array="+".join(arrays), split=split),
            "shape_names": names[rows].tolist(),
            "from_points": torch.from_numpy(from_points[rows].astype(np.bool_)),
        },
    )


def _read_grids(path: Path, array: str, rows: NDArray[np.intp], size: int) -> Tensor:
    """Return packed grids, uint8 (N, size³/8)."""
    (packed,) = read_npz(path, array)
    if packed.dtype != np.uint8 or packed.shape[1:] != (size**3 // 8,) or len(packed) <= rows[-1]:
        raise InputError(f"{path}: {array} is {packed.dtype} {packed.shape}, not uint8 (N, {size**3 // 8})")
    return torch.from_numpy(packed[rows])


def _fill_all(path: Path, rows: NDArray[np.intp], split: str, progress: Progress | None) -> dict[str, Tensor]:
    """Return "surface64" and "solid64", the latter by filling the surface, from the cache if possible."""

    def build() -> dict[str, Tensor]:
        surface = _read_grids(path, "surf64", rows, FINE)
        LOG.info("filling %d shapes of %s", len(surface), path)
        solid = torch.empty_like(surface)
        with ThreadPoolExecutor() as pool:
            for row, bits in enumerate(pool.map(_fill_packed, surface.numpy())):
                solid[row] = torch.from_numpy(bits)
                if progress is not None:
                    progress(row + 1, len(surface))
        return {"surface64": surface, "solid64": solid}

    sha256 = fingerprint(file=sha256_of_file(path), split=split, voxelizer=VOXELIZER_VERSION)
    return cached(f"modelnet40-{split}-filled", sha256, build)


def _fill_packed(surface: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.packbits(fill(np.unpackbits(surface).view(np.bool_).reshape(FINE, FINE, FINE)))


def _load_meshes(
    classes: int, split: str, occupancy: Occupancy, size: int, progress: Progress | None
) -> VoxelDataset:
    name = f"ModelNet{classes}"
    # A class is part of the path because "ModelNet40" and "modelnet40" are the same on some file systems.
    paths = (f"{name.lower()}/{name}.zip", f"{name}.zip", f"{name.lower()}/{name}/bathtub", f"{name}/bathtub")
    source = find(*paths)
    if source is None:
        raise missing(name.lower(), paths[0])
    source = source.parent if source.is_dir() else source
    members = _list_members(source, name)
    class_names = tuple(sorted({member.split("/")[0] for member in members}))
    shapes = sorted((member for member in members if member.split("/")[1] == split), key=lambda m: m.split("/"))
    _check_complete(source, split, (len(shapes), len(class_names)), classes)
    grids = cached(
        f"{name.lower()}-{split}",
        fingerprint(shapes=[[shape, *members[shape]] for shape in shapes], voxelizer=VOXELIZER_VERSION),
        partial(_voxelize_all, source, name, shapes, progress),
    )
    hashes = [bytes(row).hex() for row in grids["sha256"].numpy()]
    return VoxelDataset(
        name=name.lower(),
        split=split,
        packed=torch.cat([grids[f"{kind}{size}"] for kind in occupancy.split("+")], dim=1),
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


def _list_members(source: Path, name: str) -> dict[str, tuple[int, int]]:
    """Return the meshes `<class>/<split>/<name>.off`, with size and CRC (of a zip) or modification time."""
    if source.is_dir():
        stats = {path.relative_to(source).as_posix(): path.stat() for path in source.glob("*/*/*.off")}
        members = {member: (stat.st_size, stat.st_mtime_ns) for member, stat in stats.items()}
    else:
        try:
            with zipfile.ZipFile(source) as archive:
                infos = [info for info in archive.infolist() if info.filename.startswith(f"{name}/")]
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{source} is not a readable zip file: {error}") from error
        members = {info.filename.removeprefix(f"{name}/"): (info.file_size, info.CRC) for info in infos}
    pattern = re.compile(r"[^/]+/(train|test)/[^/.][^/]*\.off")
    return {member: stamp for member, stamp in members.items() if pattern.fullmatch(member)}


def _voxelize_all(source: Path, name: str, shapes: list[str], progress: Progress | None) -> dict[str, Tensor]:
    """Return the packed grids of all shapes by name, and the sha256 of each file, uint8 (N, 32)."""
    LOG.info("voxelizing %d meshes of %s", len(shapes), source)
    grids: dict[str, NDArray[np.uint8]] = {}
    errors: list[str] = []
    # Forked processes need no importable main module, and run array code only, so threads of torch do not matter.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    try:
        with ProcessPoolExecutor(mp_context=context) as pool:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                results = pool.map(partial(_voxelize_shape, source, name), shapes, chunksize=8)
            for row, result in enumerate(results):
                if isinstance(result, str):
                    errors.append(result)
                else:
                    for key, array in result.items():
                        grids.setdefault(key, np.zeros((len(shapes), len(array)), dtype=np.uint8))[row] = array
                if progress is not None:
                    progress(row + 1, len(shapes))
    except BrokenProcessPool as error:
        raise InputError("a voxelization process was killed, perhaps for lack of memory") from error
    if errors:
        shown = "; ".join(errors[:5]) + ("; …" if len(errors) > 5 else "")
        raise InputError(f"{source}: {len(errors)} of {len(shapes)} meshes cannot be voxelized: {shown}")
    return {key: torch.from_numpy(array) for key, array in grids.items()}


def _voxelize_shape(source: Path, name: str, shape: str) -> dict[str, NDArray[np.uint8]] | str:
    """Return the packed grids of a shape and the sha256 of its file by name, or why it cannot be voxelized."""
    try:
        if source.is_dir():
            data = (source / shape).read_bytes()
        else:
            data = _open_archive(source, os.getpid()).read(f"{name}/{shape}")
        digest = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
        return {"sha256": digest, **voxelize_packed(*parse_mesh(data, ".off", shape))}
    except (InputError, OSError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        return str(error) if shape in str(error) else f"{shape}: {error}"


@lru_cache(maxsize=1)
def _open_archive(source: Path, process: int) -> zipfile.ZipFile:
    """Open the zip once per process: forked processes must not share a position in the file."""
    return zipfile.ZipFile(source)
