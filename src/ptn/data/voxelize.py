"""Triangle meshes: reading files, and voxelization of the surface and the solid that it encloses."""

import re
from io import BytesIO
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import InputError, check_choice, optional_module
from .store import reading

Occupancy = Literal["surface", "solid", "surface+solid"]
Grid = NDArray[np.bool_]
# Vertices float64 (V, 3) and faces int64 (F, 3).
Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]
SIZES = (32, 64)
MESH_SUFFIXES = (".off", ".ply", ".stl", ".obj")
# Part of the hash of voxelized data; increase it if the same mesh gives other voxels.
VOXELIZER_VERSION = 1

FINE = 64
# Largest distance of neighboring points on a face, in voxels. Where a face separates the centers of two adjacent
# voxels, one of its points lies in one of the two: the surface has no holes.
SPACING = 0.25
# Coordinates this close below a voxel boundary are on it, so that rounding does not move flat tops.
SNAP = 1e-9
_POINTS_PER_CHUNK = 1_000_000
_MAX_PARTS = 5000
_MAX_POINTS = 10**8  # of a file of the user: about 20 seconds


def voxelize(vertices: ArrayLike, faces: ArrayLike, *, size: int = 32, occupancy: Occupancy = "surface") -> Grid:
    """Return the voxels of a mesh, bool (size, size, size), index [x, y, z], z up.

    With m the middle of the bounding box of the vertices that a face uses, and R the larger of their greatest
    horizontal distance from m and their greatest |z - m_z|, a point p lies in voxel
    ``floor((p - m) · (15/16)(size/2)/R + size/2)``: no rotation about z clips the shape.

    The surface is found at 64³ from points on the faces at most a quarter of a voxel apart; 32³ is 64³ pooled by
    two. Neither the orientation of faces nor duplicates matter, and the mesh need not be closed.

    Args:
        vertices: (V, 3).
        faces: (F, 3) vertex indices.
        size: 32 or 64.
        occupancy: "surface": voxels that a face passes through. "solid": voxels that are not connected to the
            outside through faces of empty voxels at 64³; at 32³, voxels at least half solid, and the surface.
            "surface+solid": both, (2, size, size, size).
    """
    check_choice("occupancy", occupancy, get_args(Occupancy))
    check_choice("size", size, SIZES)
    grids = voxel_grids(vertices, faces, _MAX_POINTS)
    chosen = [grids[f"{kind}{size}"] for kind in occupancy.split("+")]
    return chosen[0] if len(chosen) == 1 else np.stack(chosen)


def voxel_grids(vertices: ArrayLike, faces: ArrayLike, max_points: float = np.inf) -> dict[str, Grid]:
    """Return all grids of a mesh: "surface32", "solid32", "surface64" and "solid64"."""
    triangles = _place(np.asarray(vertices, dtype=np.float64), np.asarray(faces))
    if (count := _count_points(triangles)) > max_points:
        raise InputError(f"the mesh has too many large faces: {count:.2g} points, at most {max_points:.2g}")
    voxels = np.zeros(FINE**3, dtype=np.bool_)
    for chunk in _chunks(triangles):
        x, y, z = np.floor(_points(chunk) + SNAP).astype(np.int32)
        voxels[(x * FINE + y) * FINE + z] = True
    surface = voxels.reshape(FINE, FINE, FINE)
    solid = fill(surface)
    eighths = (32, 2, 32, 2, 32, 2)
    surface32 = surface.reshape(eighths).any(axis=(1, 3, 5))
    solid32 = (solid.reshape(eighths).sum(axis=(1, 3, 5)) >= 4) | surface32
    return {"surface32": surface32, "solid32": solid32, "surface64": surface, "solid64": solid}


def fill(surface: Grid) -> Grid:
    """Return all voxels that are not connected to the corner through faces of empty voxels."""
    regions, _ = optional_module("scipy.ndimage").label(~surface)
    return np.asarray(regions != regions[0, 0, 0])


def _place(vertices: NDArray[np.float64], faces: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the corners of the triangles in voxels of the 64³ grid, (3 axes, 3 corners, F)."""
    integers = np.issubdtype(faces.dtype, np.integer)
    if vertices.shape[1:] != (3,) or faces.shape[1:] != (3,) or not len(faces) or not integers:
        shapes = f"{vertices.shape} and {faces.dtype} {faces.shape}"
        raise InputError(f"a mesh must have vertices (V, 3) and faces (F, 3) of integers; got {shapes}")
    if not np.isfinite(vertices).all() or faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError("the mesh has a vertex that is not finite, or a face of a vertex that does not exist")
    # Sorted corners make the points, and so the voxels, independent of the orientation of a face.
    corners = vertices[np.sort(faces, axis=1)].T
    low, high = corners.min(axis=(1, 2)), corners.max(axis=(1, 2))
    centered = corners - (low / 2 + high / 2)[:, None, None]
    reach = max(np.hypot(centered[0], centered[1]).max(), np.abs(centered[2]).max())
    if not 0 < reach < np.inf:
        raise InputError(f"the mesh cannot be scaled into the grid: it reaches {reach:g} from its middle")
    return np.asarray(centered * (15 / 16 * FINE / 2 / reach) + FINE / 2)


def _chunks(triangles: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Split the triangles into chunks of about a million points each, to bound the memory."""
    sides = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=0).max(axis=0)
    points = np.cumsum((sides / SPACING + 2) ** 2)
    cuts = np.searchsorted(points, np.arange(_POINTS_PER_CHUNK, points[-1], _POINTS_PER_CHUNK))
    return [chunk for chunk in np.split(triangles, np.unique(cuts), axis=2) if chunk.shape[2]]


def _count_points(triangles: NDArray[np.float64]) -> float:
    """Return about how many points `_points` has: (3 axes, 3 corners, F) -> number."""
    longest = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=0).max(axis=0)
    sides = triangles[:, 1:] - triangles[:, :1]
    twice_area = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1], axis=0), axis=0)
    return float((twice_area / 2 / SPACING**2 + 3 * longest / SPACING + 4).sum())


def _points(triangles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points on triangles, corners included: (3 axes, 3 corners, F) -> (3 axes, P).

    Rows parallel to the longest side, at most SPACING apart, of points at most SPACING apart. Every point of a
    triangle is within √5/2 · SPACING of one of them.
    """
    sides = np.linalg.norm(np.roll(triangles, -1, axis=1) - triangles, axis=0)
    longest = sides.argmax(axis=0)
    start, end, apex = (
        np.take_along_axis(triangles, ((longest + offset) % 3)[None, None], axis=1)[:, 0] for offset in range(3)
    )
    length = sides.max(axis=0)
    twice_area = np.linalg.norm(np.cross(end - start, apex - start, axis=0), axis=0)
    height = np.divide(twice_area, length, out=np.zeros_like(length), where=length > 0)

    face, row, rows = _repeat(np.maximum(np.ceil(height / SPACING), 1).astype(np.int64))
    rise = row / rows
    row_start = start[:, face] + rise * (apex - start)[:, face]
    row_vector = (1 - rise) * (end - start)[:, face]
    steps = np.maximum(np.ceil((1 - rise) * length[face] / SPACING), 1).astype(np.int64)
    line, step, count = _repeat(steps)
    return np.asarray(row_start[:, line] + (step / count) * row_vector[:, line])


def _repeat(steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Enumerate 0 … steps for each item: the item's index, the step, and the item's number of steps."""
    counts = steps + 1
    item = np.repeat(np.arange(len(steps)), counts)
    step = np.arange(len(item)) - np.repeat(np.cumsum(counts) - counts, counts)
    return item, step, steps[item]


def parse_mesh(data: bytes, suffix: str) -> Mesh:
    """Parse the content of a mesh file; `suffix` is one of `MESH_SUFFIXES`. Polygons become triangles."""
    if suffix == ".off":
        return _parse_off(data)
    # trimesh joins the parts of a file in quadratic time
    text = data.replace(b"\r", b"").replace(b"\\\n", b"").lower()
    if max(text.count(word) for word in (b"usemtl", b"endsolid")) > _MAX_PARTS:
        raise ValueError(f"it has more than {_MAX_PARTS:,} parts")
    mesh = optional_module("trimesh").load(BytesIO(data), file_type=suffix[1:], force="mesh", process=False)
    return np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)


def _parse_off(data: bytes) -> Mesh:
    """Parse an OFF file. trimesh does not notice truncated files and fails for polygons of five vertices."""
    text = re.sub(rb"#[^\n]*", b"", data.replace(b"\r", b"\n"))
    header = re.match(rb"\s*[CN]*OFF\s*(\d+)\s+(\d+)\b[^\n]*", text)  # ModelNet has headers such as "OFF490 518 0"
    if header is None:
        raise ValueError("it does not begin with OFF and the numbers of vertices and faces")
    vertex_count, face_count = int(header[1]), int(header[2])
    numbers = np.array(text[header.end() :].split(), dtype=np.float64)
    faces = numbers[3 * vertex_count :]
    if faces.size < 4 * face_count:
        raise ValueError("it is truncated")
    if faces.size == 4 * face_count and (faces[::4] == 3).all():  # only triangles: many times faster than by lines
        return numbers[: 3 * vertex_count].reshape(-1, 3), faces.reshape(-1, 4)[:, 1:].astype(np.int64)
    lines = [line.split() for line in text[header.end() :].split(b"\n") if line.strip()]
    vertices = np.array([line[:3] for line in lines[:vertex_count]], dtype=np.float64)
    triangles = []
    for line in lines[vertex_count : vertex_count + face_count]:
        polygon = [int(line[index]) for index in range(1, int(line[0]) + 1)]
        triangles += [(polygon[0], *polygon[index : index + 2]) for index in range(1, len(polygon) - 1)]
    return vertices, np.array(triangles, dtype=np.int64)


def read_voxels(path: Path, *, size: int, occupancy: Occupancy) -> Tensor:
    """Read a mesh file as voxels, z up: uint8 0 or 1 (channels, size, size, size); see `voxelize`."""
    suffix = path.suffix.lower()
    check_choice(f"mesh format of {path}", suffix, MESH_SUFFIXES)
    with reading(path):
        grids = voxelize(*parse_mesh(path.read_bytes(), suffix), size=size, occupancy=occupancy)
    return torch.from_numpy(np.ascontiguousarray(grids).view(np.uint8).reshape(-1, size, size, size))
