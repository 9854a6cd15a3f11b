"""Triangle meshes: reading files and turning them into voxels."""

import re
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
    """Parse the content of a mesh file. Polygons become triangle fans.

    Args:
        suffix: the format, one of `MESH_SUFFIXES`.
        name: the file's name in error messages.
    """
    if suffix == ".off":
        _check_off_counts(data, name)
    try:
        trimesh = optional_module("trimesh")
        mesh = trimesh.load(BytesIO(data), file_type=suffix[1:], force="mesh", process=False)
        vertices = np.asarray(mesh.vertices, dtype=np.float64)
        faces = np.asarray(mesh.faces, dtype=np.int64)
    except InputError:
        raise
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


def _check_off_counts(data: bytes, name: str) -> None:
    """Raise if an OFF file has fewer lines than its header declares, which trimesh does not notice."""
    text = re.sub(rb"#[^\n]*", b"", data.replace(b"\r", b"\n"))
    # ModelNet has headers such as "OFF490 518 0".
    header = re.match(rb"\s*[A-Z]*OFF\s*(\d{1,12})\s+(\d{1,12})\b[^\n]*", text)
    if header is None:
        raise InputError(f"{name} is not an OFF mesh: it does not begin with OFF and the counts")
    declared = int(header[1]) + int(header[2])
    lines = sum(1 for line in text[header.end() :].split(b"\n") if line.strip())
    if lines < declared:
        raise InputError(f"{name} is truncated: it has {lines} of {declared} lines of vertices and faces")


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
