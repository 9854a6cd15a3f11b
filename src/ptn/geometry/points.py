"""Polar sampling by torch's own `grid_sample`: the points of a grid, and the images read there."""

from functools import lru_cache

import torch
from torch import Tensor

from .grid import PolarGrid
from .interpolate import Mode, PaddingMode, coordinate_dtype, interpolate_at, values_known
from .pieces import SampleInPieces, piece_length


def sample_points(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    phase: Tensor | float,
    dilation: Tensor | float,
    *,
    mode: Mode,
    padding_mode: PaddingMode,
) -> Tensor:
    """`polar_sample` without its checks, on any device and under any transform of torch."""
    dtype = coordinate_dtype(images)
    size = (images.shape[-2], images.shape[-1])
    origin = origin.to(dtype)
    given = [number for number in (phase, dilation) if isinstance(number, Tensor)]
    eager = all(map(values_known, (images, origin, *given)))

    def offsets(part: slice) -> Tensor:
        if eager and not isinstance(phase, Tensor) and not isinstance(dilation, Tensor):
            return _kept_offsets(grid, size, phase, dilation, dtype)
        turn, factor = (n[part] if isinstance(n, Tensor) and n.dim() else n for n in (phase, dilation))
        return _offsets(grid, size, turn, factor, dtype, images.device)

    if eager and not any(number.requires_grad for number in given):
        shape = (grid.angles, grid.radii)
        length = piece_length(images, shape, dtype)
        if length < len(images):
            return SampleInPieces.apply(  # type: ignore[no-untyped-call]
                images, origin, offsets, shape, length, mode, padding_mode
            )
    points = offsets(slice(None)) + origin[:, :, None, None]
    return interpolate_at(images, points, mode=mode, padding_mode=padding_mode)


def _offsets(
    grid: PolarGrid,
    size: tuple[int, int],
    phase: Tensor | float,
    dilation: Tensor | float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The points of the grid relative to its origin, in units of [-1, 1]: (2, angles, radii), or (N, 2, …)."""
    height, width = size
    x, y = grid.offsets_px(size, phase=phase, dilation=dilation, dtype=dtype, device=device)
    return torch.stack((x * (2 / width), y * (2 / height)), dim=-3)


@lru_cache(maxsize=8)
def _kept_offsets(
    grid: PolarGrid, size: tuple[int, int], phase: float, dilation: float, dtype: torch.dtype
) -> Tensor:
    """`_offsets` on the CPU, remembered: for a few small images they take as long as the sampling."""
    with torch.inference_mode(False):  # else they would serve no gradient later
        return _offsets(grid, size, phase, dilation, dtype, torch.device("cpu"))
