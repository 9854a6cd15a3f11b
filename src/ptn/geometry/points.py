"""Polar sampling by torch's own `grid_sample`: the points of a grid, and the images read there."""

from functools import lru_cache

import torch
from torch import Tensor

from .grid import PolarGrid
from .interpolate import Interpolation, Padding, coordinate_dtype, interpolate_at, values_known
from .pieces import SampleInPieces, piece_length


def sample_points(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    phase: Tensor | float,
    *,
    interpolation: Interpolation,
    padding: Padding,
) -> Tensor:
    """`polar_sample` without its checks, on any device and under any transform of torch."""
    dtype = coordinate_dtype(images)
    size = (images.shape[-2], images.shape[-1])
    origin = origin.to(dtype)
    eager = all(map(values_known, (images, origin, phase) if isinstance(phase, Tensor) else (images, origin)))

    def offsets(part: slice) -> Tensor:
        if isinstance(phase, Tensor):
            return _offsets(grid, size, phase[part] if phase.dim() else phase, dtype, images.device)
        if eager:
            return _kept_offsets(grid, size, phase, dtype)
        return _offsets(grid, size, phase, dtype, images.device)

    if eager and not (isinstance(phase, Tensor) and phase.requires_grad):
        shape = (grid.angles, grid.radii)
        length = piece_length(images, shape, dtype)
        if length < len(images):
            return SampleInPieces.apply(  # type: ignore[no-untyped-call]
                images, origin, offsets, shape, length, interpolation, padding
            )
    points = offsets(slice(None)) + origin[:, :, None, None]
    return interpolate_at(images, points, interpolation=interpolation, padding=padding)


def _offsets(
    grid: PolarGrid,
    size: tuple[int, int],
    phase: Tensor | float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The points of the grid relative to its origin, in units of [-1, 1]: (2, angles, radii), or (N, 2, …)."""
    height, width = size
    x, y = grid.offsets_px(size, phase=phase, dtype=dtype, device=device)
    return torch.stack((x * (2 / width), y * (2 / height)), dim=-3)


@lru_cache(maxsize=8)
def _kept_offsets(grid: PolarGrid, size: tuple[int, int], phase: float, dtype: torch.dtype) -> Tensor:
    """`_offsets` on the CPU, remembered: for a few small images they take as long as the sampling."""
    with torch.inference_mode(False):  # else they would serve no gradient later
        return _offsets(grid, size, phase, dtype, torch.device("cpu"))
