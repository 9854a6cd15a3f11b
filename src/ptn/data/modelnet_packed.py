"""ModelNet40 from files of packed voxels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .dataset import VoxelDataset
from .formats.arrays import read_npz
from .store import LOG, cached, find, fingerprint, sha256_of_file
from .threads import in_threads
from .voxelize import FINE, VOXELIZER_VERSION, Occupancy, Progress, fill_packed

OFFICIAL = ("train", "test")
# By occupancy and size: the file of packed voxels and the array in it.
PACKED = {
    ("surface", 32): ("modelnet40/vox32.npz", "surf"),
    ("solid", 32): ("modelnet40/vox32.npz", "solid"),
    ("surface", 64): ("modelnet40/surf64.npz", "surf64"),
}
_FILLED_AT_ONCE = 64


def find_packed(
    split: str,
    occupancy: Occupancy,
    size: int,
    *,
    expected: tuple[int, int],
    progress: Progress | None = None,
) -> VoxelDataset | None:
    """The shapes of an official part from packed voxels; None if those at hand do not have such grids.

    `expected` is how many shapes and classes there must be; `progress(done, total)` is for the filling of
    surfaces, a minute long, the first time.
    """
    wanted = [(kind, size) for kind in occupancy.split("+")]
    surface = find("modelnet40/surf64.npz") if size == FINE else None
    if surface is not None and ("solid", FINE) in wanted:
        return _from_filled(_Packed.read(surface, split, expected), wanted, split, progress)
    paths = [find(PACKED[key][0]) if key in PACKED else None for key in wanted]
    facts = [_Packed.read(path, split, expected) for path in paths if path is not None]
    if len(facts) < len(wanted):
        return None
    arrays = [PACKED[key][1] for key in wanted]
    grids = [packed.grids(array, size) for packed, array in zip(facts, arrays, strict=True)]
    return facts[0].dataset(split, size, grids, arrays)


def _from_filled(
    packed: "_Packed", wanted: Sequence[tuple[str, int]], split: str, progress: Progress | None
) -> VoxelDataset:
    """The surface at 64³ and what it encloses, kept in the cache."""
    sha256 = fingerprint(file=sha256_of_file(packed.path), split=split, voxelizer=VOXELIZER_VERSION)

    def fill_all() -> dict[str, Tensor]:
        surface = packed.grids("surf64", FINE)
        LOG.info("filling %d shapes of %s, once", len(surface), packed.path)
        done = 0

        def fill_some(rows: slice) -> NDArray[np.uint8]:
            nonlocal done
            filled = fill_packed(surface[rows].numpy())
            done += len(filled)
            if progress is not None:
                progress(done, len(surface))
            return filled

        solid = np.concatenate(in_threads(fill_some, len(surface), _FILLED_AT_ONCE))
        return {"surface64": surface, "solid64": torch.from_numpy(solid)}

    made = cached(f"modelnet40-{split}-filled", sha256, fill_all)
    names = [f"{kind}{size}" for kind, size in wanted]
    return packed.dataset(split, FINE, [made[name] for name in names], names)


@dataclass(frozen=True)
class _Packed:
    """A file of packed voxels without the voxels: what it says of the shapes of one official part."""

    path: Path
    rows: NDArray[np.intp]
    labels: Tensor
    names: list[str]
    classes: tuple[str, ...]
    from_points: Tensor

    @classmethod
    def read(cls, path: Path, split: str, expected: tuple[int, int]) -> "_Packed":
        labels, splits, names, classes, from_points = read_npz(
            path, "labels", "split", "names", "classes", "from_points"
        )
        for name, values, kinds in (
            ("labels", labels, "iu"),
            ("split", splits, "iu"),
            ("names", names, "U"),
            ("from_points", from_points, "iub"),
        ):
            if values.shape != (splits.size,) or values.dtype.kind not in kinds:
                raise InputError(f"{path}: {name} is {values.dtype} {values.shape} beside {splits.size} shapes")
        if classes.ndim != 1 or classes.dtype.kind != "U":
            raise InputError(f"{path}: classes is {classes.dtype} {classes.shape}, not names")
        rows = np.flatnonzero(splits == OFFICIAL.index(split))
        check_complete(path, split, (len(rows), len(classes)), expected)
        return cls(
            path,
            rows,
            torch.from_numpy(labels[rows].astype(np.int64)),
            names[rows].tolist(),
            tuple(classes.tolist()),
            torch.from_numpy(from_points[rows].astype(np.bool_)),
        )

    def grids(self, array: str, size: int) -> Tensor:
        """The packed voxels of the shapes, uint8 (N, size³/8)."""
        (packed,) = read_npz(self.path, array)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != size**3 // 8:
            raise InputError(
                f"{self.path}: {array} is {packed.dtype} {packed.shape}, not uint8 (N, {size**3 // 8})"
            )
        if len(packed) <= self.rows[-1]:
            raise InputError(f"{self.path}: {array} has {len(packed)} shapes, fewer than there are labels")
        return torch.from_numpy(_taken(packed, self.rows))

    def dataset(self, split: str, size: int, grids: list[Tensor], names: list[str]) -> VoxelDataset:
        """The shapes with these grids as channels."""
        return VoxelDataset(
            name="modelnet40",
            split=split,
            packed=as_channels(grids),
            size=size,
            labels=self.labels,
            classes=self.classes,
            meta={
                "source": self.path.name,
                "sha256": fingerprint(file=sha256_of_file(self.path), array="+".join(names), split=split),
                "shape_names": self.names,
                "from_points": self.from_points,
            },
        )


def as_channels(grids: Sequence[Tensor]) -> Tensor:
    """Packed grids of the same shapes, each (N, size³/8), as channels of them."""
    return grids[0] if len(grids) == 1 else torch.cat(list(grids), dim=1)


def _taken(packed: NDArray[np.uint8], rows: NDArray[np.intp]) -> NDArray[np.uint8]:
    """`packed[rows]`, not copied where it is a run of most rows: at 64³ the copy takes as long as reading."""
    first, end = int(rows[0]), int(rows[-1]) + 1
    return packed[first:end] if len(packed) < 2 * len(rows) == 2 * (end - first) else packed[rows]


def check_complete(source: Path, split: str, found: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raise unless a set has as many (shapes, classes) as it should."""
    if found != expected:
        raise InputError(
            f"{source} is not the whole set: it has {found[0]} {split} shapes of {found[1]} classes, "
            f"not {expected[0]} of {expected[1]}"
        )
