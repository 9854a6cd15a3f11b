"""Triangle meshes to occupancy grids: the surface, and the solid that it encloses.

A shape is moved so that the middle of its bounding box is the middle of the grid, and scaled (uniformly) to
fill 15/16 of the grid's inscribed z-cylinder, so that no rotation about z ever clips it. Everything is made
on a 64³ grid; the 32³ grid is that one pooled by two.

The surface is found by points on the faces, never further apart than a quarter of a voxel. Against exact
triangle–box overlap this leaves out only voxels that a face barely grazes, is a few lines of array code, and
agrees better with the packed ModelNet40 voxels, which were made from points too. No hole can open: if the
centres of two face neighbours lie on different sides of a face, all of the face within half a voxel of where
it crosses between them lies in the two, and some point is always nearer than that.
"""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError, check_choice, optional_module

Occupancy = Literal["surface", "solid", "surface+solid"]
Grid = NDArray[np.bool_]
Progress = Callable[[int, int], None]
Result = TypeVar("Result")
OCCUPANCIES: tuple[Occupancy, ...] = ("surface", "solid", "surface+solid")
SIZES = (32, 64)
VOXELIZER_VERSION = 1

FINE = 64
SPACING = 0.25
# A coordinate this little below a voxel boundary is on it: rounding must not decide where a flat top lands.
SNAP = 1e-9
POINTS_AT_ONCE = 1_000_000


def voxelize(vertices: ArrayLike, faces: ArrayLike, *, size: int = 32, occupancy: Occupancy = "surface") -> Grid:
    """The voxels of a mesh, bool (size, size, size), index [x, y, z], z up; size is 32 or 64.

    "surface+solid" is the two of them, (2, size, size, size).

    `vertices` (V, 3) and `faces` (F, 3). With m the middle of the bounding box of the vertices that a face
    uses, and R the larger of their greatest horizontal distance from m and greatest |z - m_z|, a point p
    lies in voxel ``floor((p - m) · (15/16)(size/2)/R + size/2)``.
    "surface": voxels that a face passes through. "solid": everything that the outside cannot reach through
    faces of empty voxels at 64³; at 32³, voxels at least half full of that, and the surface.
    Neither the direction of a face nor its repetition matters, and the mesh need not be closed.
    """
    check_choice("occupancy", occupancy, OCCUPANCIES)
    check_size(size)
    surface = surface64(vertices, faces)
    made = {}
    if occupancy != "solid":
        made["surface"] = surface if size == FINE else halve_surface(surface)
    if occupancy != "surface":
        solid = fill(surface)
        made["solid"] = solid if size == FINE else halve_solid(surface, solid)
    return made[occupancy] if occupancy in made else np.stack(list(made.values()))


def voxelize_packed(vertices: ArrayLike, faces: ArrayLike) -> dict[str, NDArray[np.uint8]]:
    """Every grid of a mesh in one pass, packed: "surface32", "solid32", "surface64", "solid64" (size³/8,)."""
    surface = surface64(vertices, faces)
    solid = fill(surface)
    grids = {
        "surface32": halve_surface(surface),
        "solid32": halve_solid(surface, solid),
        "surface64": surface,
        "solid64": solid,
    }
    return {name: np.packbits(grid) for name, grid in grids.items()}


def each_mesh(
    work: Callable[[str], Result],
    names: Sequence[str],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Result]]:
    """(row, work(name)) for every name, in order, made by `workers` processes (one per core by default).

    `progress(done, total)` is called after each. Names on which `work` raises InputError are passed over
    until the end and then reported together, in one InputError: a long job tells of every bad file at once,
    and a set with shapes missing is never mistaken for the whole one.
    """
    faults = []
    outcomes = _in_processes(partial(_attempt, work), names, workers or _cores())
    for row, outcome in enumerate(outcomes):
        if isinstance(outcome, InputError):
            faults.append(str(outcome))
        else:
            yield row, outcome
        if progress is not None:
            progress(row + 1, len(names))
    if faults:
        shown = "; ".join(faults[:5]) + ("; …" if len(faults) > 5 else "")
        raise InputError(f"{len(faults)} of {len(names)} meshes cannot be voxelised: {shown}")


def _attempt(work: Callable[[str], Result], name: str) -> Result | InputError:
    """What `work` makes of `name`, or the error, naming the mesh."""
    try:
        return work(name)
    except InputError as error:
        return error if name in str(error) else InputError(f"{name}: {error}")


def _in_processes(work: Callable[[str], Result], names: Sequence[str], workers: int) -> Iterator[Result]:
    workers = min(workers, len(names))
    if workers <= 1:
        yield from map(work, names)
        return
    # Forked children need no importable main module. That other threads are not forked, of which newer
    # Pythons warn, is no matter here: the children run array code only and never enter torch.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            results = pool.map(work, names, chunksize=8)
        try:
            yield from results
        except BrokenProcessPool as error:
            raise InputError(
                "a voxelising process was killed, perhaps for want of memory; use workers=1"
            ) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def check_size(size: int) -> None:
    """Raise unless grids of this size are made."""
    if size not in SIZES:
        raise InputError(f"voxel grids are made at size 32 or 64, not {size!r}")


def surface64(vertices: ArrayLike, faces: ArrayLike) -> Grid:
    """The voxels at 64³ that a face of the mesh passes through."""
    triangles = _placed(np.asarray(vertices, dtype=np.float64), np.asarray(faces))
    grid = np.zeros(FINE**3, dtype=np.bool_)
    for part in _parts(triangles):
        x, y, z = np.floor(_points(part) + SNAP).astype(np.int32)
        grid[(x * FINE + y) * FINE + z] = True
    return grid.reshape(FINE, FINE, FINE)


def fill(surface: Grid) -> Grid:
    """All that the corner voxel cannot reach by steps through faces of empty voxels: surface and inside."""
    regions, _ = optional_module("scipy.ndimage").label(~surface)
    return np.asarray(regions != regions[0, 0, 0])


def fill_packed(surface: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`fill` of packed 64³ surfaces: (N, 64³/8) -> (N, 64³/8)."""
    filled = np.empty_like(surface)
    for row, bits in enumerate(surface):
        grid = np.unpackbits(bits).view(np.bool_).reshape(FINE, FINE, FINE)
        filled[row] = np.packbits(fill(grid))
    return filled


def halve_surface(surface: Grid) -> Grid:
    """(X, Y, Z) -> (X/2, Y/2, Z/2): voxels with any of their eight parts set."""
    return np.asarray(_eighths(surface).any(axis=(1, 3, 5)))


def halve_solid(surface: Grid, solid: Grid) -> Grid:
    """(X, Y, Z) -> (X/2, Y/2, Z/2): voxels at least half solid, and those of the surface."""
    return np.asarray((_eighths(solid).sum(axis=(1, 3, 5)) >= 4) | halve_surface(surface))


def _eighths(grid: Grid) -> Grid:
    x, y, z = (side // 2 for side in grid.shape)
    return grid.reshape(x, 2, y, 2, z, 2)


def _placed(vertices: NDArray[np.float64], faces: NDArray[np.integer]) -> NDArray[np.float64]:
    """Corners of the triangles in voxels of the 64³ grid, from its corner: (3 axes, 3 corners, F)."""
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise InputError(f"a mesh is vertices (V, 3) and faces (F, 3), not {vertices.shape} and {faces.shape}")
    if len(faces) == 0:
        raise InputError("the mesh has no faces")
    if not np.isfinite(vertices).all():
        raise InputError("a vertex of the mesh is not finite")
    if faces.dtype.kind not in "iu" or faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"a face of the mesh names a vertex that is not one of 0 to {len(vertices) - 1}")
    # Sorted corners make the points, and so the voxels, independent of the direction of a face.
    corners = vertices[np.sort(faces, axis=1)].T
    low, high = corners.min(axis=(1, 2)), corners.max(axis=(1, 2))
    centred = corners - (low / 2 + high / 2)[:, None, None]
    reach = max(np.hypot(centred[0], centred[1]).max(), np.abs(centred[2]).max())
    if not 1e-150 < reach < 1e150:
        raise InputError(f"the mesh cannot be scaled into the grid: its vertices reach {reach:g} from its middle")
    return np.asarray(centred * (15 / 16 * FINE / 2 / reach) + FINE / 2)


def _parts(triangles: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The triangles in runs that need about POINTS_AT_ONCE points each, to bound the memory."""
    sides = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=0).max(axis=0)
    needed = np.cumsum((sides / SPACING + 2) ** 2)
    cuts = np.searchsorted(needed, np.arange(POINTS_AT_ONCE, needed[-1], POINTS_AT_ONCE))
    return [part for part in np.split(triangles, np.unique(cuts), axis=2) if part.shape[2]]


def _points(triangles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points on triangles (3 axes, 3 corners, F) -> (3 axes, P), corners among them.

    Rows parallel to the longest side, at most SPACING apart, of points at most SPACING apart: as many as the
    area needs, even for slivers. No point of a triangle is further than √5/2 · SPACING from one of them.
    """
    sides = np.linalg.norm(np.roll(triangles, -1, axis=1) - triangles, axis=0)
    longest = sides.argmax(axis=0)
    start, end, apex = (
        np.take_along_axis(triangles, ((longest + turn) % 3)[None, None], axis=1)[:, 0] for turn in range(3)
    )
    length = sides.max(axis=0)
    twice_area = np.linalg.norm(np.cross(end - start, apex - start, axis=0), axis=0)
    height = np.divide(twice_area, length, out=np.zeros_like(length), where=length > 0)

    face, row, rows = _counted(np.maximum(np.ceil(height / SPACING), 1).astype(np.int64))
    rise = row / rows
    row_start = start[:, face] + rise * (apex - start)[:, face]
    row_run = (1 - rise) * (end - start)[:, face]
    steps = np.maximum(np.ceil((1 - rise) * length[face] / SPACING), 1).astype(np.int64)
    line, step, count = _counted(steps)
    return np.asarray(row_start[:, line] + (step / count) * row_run[:, line])


def _counted(steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each item its steps + 1 stations in turn: item number, station 0 … steps, and the item's steps."""
    stations = steps + 1
    item = np.repeat(np.arange(len(steps)), stations)
    station = np.arange(len(item)) - np.repeat(np.cumsum(stations) - stations, stations)
    return item, station, steps[item]
