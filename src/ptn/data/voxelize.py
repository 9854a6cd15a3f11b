"""Triangle meshes: reading files, and voxelization of the surface and the solid that it encloses."""

import re
import warnings
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..config import check
from ..errors import InputError, check_choice, optional_module
from .store import first_line

Occupancy = Literal["surface", "solid", "surface+solid"]
Grid = NDArray[np.bool_]
# Vertices float64 (V, 3) and faces int64 (F, 3).
Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]
OCCUPANCIES: tuple[Occupancy, ...] = ("surface", "solid", "surface+solid")
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
    check_choice("occupancy", occupancy, OCCUPANCIES)
    check_grid_size(size)
    grids = _voxelize(vertices, faces)
    chosen = [grids[f"{kind}{size}"] for kind in occupancy.split("+")]
    return chosen[0] if len(chosen) == 1 else np.stack(chosen)


def voxelize_packed(vertices: ArrayLike, faces: ArrayLike) -> dict[str, NDArray[np.uint8]]:
    """Return all grids of a mesh as packed bits: "surface32", "solid32", "surface64", "solid64" (size³/8,)."""
    return {name: np.packbits(grid) for name, grid in _voxelize(vertices, faces).items()}


def _voxelize(vertices: ArrayLike, faces: ArrayLike) -> dict[str, Grid]:
    triangles = _place(np.asarray(vertices, dtype=np.float64), np.asarray(faces))
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


def check_grid_size(size: int) -> None:
    check("size", size, size in SIZES, "32 or 64")


def fill(surface: Grid) -> Grid:
    """Return all voxels that are not connected to the corner through faces of empty voxels."""
    regions, _ = optional_module("scipy.ndimage").label(~surface)
    return np.asarray(regions != regions[0, 0, 0])


def _place(vertices: NDArray[np.float64], faces: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the corners of the triangles in voxels of the 64³ grid, (3 axes, 3 corners, F)."""
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3 or not len(faces):
        raise InputError(f"a mesh has vertices (V, 3) and faces (F, 3), not {vertices.shape} and {faces.shape}")
    if not np.isfinite(vertices).all():
        raise InputError("a vertex of the mesh is not finite")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError("a face of the mesh refers to a vertex that does not exist")
    # Sorted corners make the points, and so the voxels, independent of the orientation of a face.
    corners = vertices[np.sort(faces, axis=1)].T
    low, high = corners.min(axis=(1, 2)), corners.max(axis=(1, 2))
    centered = corners - (low / 2 + high / 2)[:, None, None]
    reach = max(np.hypot(centered[0], centered[1]).max(), np.abs(centered[2]).max())
    if not 1e-150 < reach < 1e150:
        raise InputError(f"the mesh cannot be scaled into the grid: its vertices reach {reach:g} from its middle")
    return np.asarray(centered * (15 / 16 * FINE / 2 / reach) + FINE / 2)


def _chunks(triangles: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Split the triangles into chunks of about a million points each, to bound the memory."""
    sides = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=0).max(axis=0)
    points = np.cumsum((sides / SPACING + 2) ** 2)
    cuts = np.searchsorted(points, np.arange(_POINTS_PER_CHUNK, points[-1], _POINTS_PER_CHUNK))
    return [chunk for chunk in np.split(triangles, np.unique(cuts), axis=2) if chunk.shape[2]]


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


def read_mesh(path: Path | str) -> Mesh:
    """Read a `.off`, `.ply`, `.stl` or `.obj` file as one mesh."""
    path = Path(path)
    suffix = path.suffix.lower()
    check_choice(f"mesh format of {path}", suffix, MESH_SUFFIXES)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return parse_mesh(data, suffix, str(path))


def parse_mesh(data: bytes, suffix: str, name: str) -> Mesh:
    """Parse the content of a mesh file. Polygons become triangles.

    Args:
        suffix: the format, one of `MESH_SUFFIXES`.
        name: the file's name in error messages.
    """
    trimesh = None if suffix == ".off" else optional_module("trimesh")
    try:
        if trimesh is None:
            return _parse_off(data)
        mesh = trimesh.load(BytesIO(data), file_type=suffix[1:], force="mesh", process=False)
        return np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
    except Exception as error:  # the parsers raise exceptions of many types
        raise InputError(f"{name} is not a readable {suffix} mesh: {first_line(error)}") from error


def _parse_off(data: bytes) -> Mesh:
    """Parse an OFF file; colors and normals are dropped.

    Not with trimesh, which does not notice truncated files and fails for polygons with more than four vertices.
    """
    text = re.sub(rb"#[^\n]*", b"", data.replace(b"\r", b"\n"))
    header = re.match(rb"\s*[CN]*OFF\s*(\d+)\s+(\d+)\b[^\n]*", text)  # ModelNet has headers such as "OFF490 518 0"
    if header is None:
        raise ValueError("it does not begin with OFF and the numbers of vertices and faces")
    vertex_count, face_count = int(header[1]), int(header[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's, for text that is not all numbers
        numbers = np.fromstring(text[header.end() :], dtype=np.float64, sep=" ")
    faces = numbers[3 * vertex_count :]
    if faces.size == 4 * face_count and (faces[::4] == 3).all():  # only triangles: many times faster than by lines
        return numbers[: 3 * vertex_count].reshape(-1, 3), faces.reshape(-1, 4)[:, 1:].astype(np.int64)
    lines = [line.split() for line in text[header.end() :].split(b"\n") if line.strip()]
    if len(lines) < vertex_count + face_count:
        raise ValueError(f"it has {len(lines)} lines for {vertex_count} vertices and {face_count} faces")
    vertices = np.array([line[:3] for line in lines[:vertex_count]], dtype=np.float64).reshape(-1, 3)
    triangles = []
    for line in lines[vertex_count : vertex_count + face_count]:
        polygon = [int(vertex) for vertex in line[1 : int(line[0]) + 1]]
        if len(polygon) != int(line[0]):
            raise ValueError("the line of a face is too short")
        triangles += [(polygon[0], *polygon[index : index + 2]) for index in range(1, len(polygon) - 1)]
    return vertices, np.array(triangles, dtype=np.int64)


def read_voxels(path: Path, *, size: int, occupancy: Occupancy) -> Tensor:
    """Read a mesh file as voxels, z up: uint8 0 or 1 (channels, size, size, size); see `voxelize`."""
    vertices, faces = read_mesh(path)
    try:
        grids = voxelize(vertices, faces, size=size, occupancy=occupancy)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return torch.from_numpy(np.ascontiguousarray(grids).view(np.uint8).reshape(-1, size, size, size))
