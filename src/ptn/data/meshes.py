"""Triangle meshes: reading files and turning them into voxels."""

import re
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError, check_choice, optional_module
from .voxelize import Occupancy, voxelize

# Vertices float64 (V, 3) and faces int64 (F, 3).
Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]

MESH_SUFFIXES = (".off", ".ply", ".stl", ".obj")


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
            vertices, faces = _parse_off(data)
        else:
            mesh = trimesh.load(BytesIO(data), file_type=suffix[1:], force="mesh", process=False)
            vertices, faces = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
    except Exception as error:  # the parsers raise exceptions of many types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} is not a readable {suffix} mesh: {reason}") from error
    if faces.ndim != 2 or len(faces) == 0:
        raise InputError(f"{name} has no faces")
    if not np.isfinite(vertices).all():
        raise InputError(f"{name}: a vertex is not finite")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{name}: a face refers to a vertex that does not exist")
    return vertices, faces


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


def view_from_above(volume: Tensor) -> Tensor:
    """Return a height map of voxels (C, X, Y, Z), higher is brighter, rows y and columns x: uint8 (1, Y, X)."""
    filled = volume.bool().any(dim=0).permute(1, 0, 2)
    top = (filled * torch.arange(1, filled.shape[2] + 1)).amax(dim=2)
    shade = 55 + 200 * top // filled.shape[2]
    return torch.where(top > 0, shade, 0).byte()[None]
