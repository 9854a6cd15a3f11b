"""Mesh files as networks of voxels take them."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .formats.mesh import read_mesh
from .voxelize import Occupancy, voxelize


def read_voxels(path: Path, *, size: int, occupancy: Occupancy) -> Tensor:
    """The voxels of a `.off`, `.ply`, `.stl` or `.obj` file, z up: uint8 0 or 1, (channels, size, size, size).

    As ModelNet's are made; see `voxelize`.
    """
    vertices, faces = read_mesh(path)
    try:
        grids = voxelize(vertices, faces, size=size, occupancy=occupancy)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return torch.from_numpy(np.ascontiguousarray(grids).view(np.uint8).reshape(-1, size, size, size))


def seen_from_above(volume: Tensor) -> Tensor:
    """A picture of voxels (C, X, Y, Z), the higher the brighter, rows y and columns x: uint8 (1, Y, X)."""
    full = volume.bool().any(dim=0).permute(1, 0, 2)
    top = (full * torch.arange(1, full.shape[2] + 1)).amax(dim=2)
    shade = 55 + 200 * top // full.shape[2]
    return torch.where(top > 0, shade, 0).byte()[None]
