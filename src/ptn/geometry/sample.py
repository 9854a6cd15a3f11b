"""Polar images of images, and back: `polar_sample`, `polar_unsample`, `cylindrical_sample`."""

import math

import torch
from torch import Tensor

from ..errors import InputError
from .backend import Backend, uses_triton
from .grid import PolarGrid
from .interpolate import (
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_size,
    coordinate_dtype,
    interpolate,
    nan_where_broken,
    values_known,
)
from .points import sample_points
from .slices import fold_slices, unfold_slices
from .wrap import wrap_pad


def polar_sample(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    *,
    phase: Tensor | float = 0.0,
    dilation: Tensor | float = 1.0,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
    check_finite: bool = True,
) -> Tensor:
    """The polar image of each image around its origin: (N, C, H, W) -> (N, C, angles, radii).

    Value (y, x) is the image at origin + radius(x)·(cos 2πy/H, sin 2πy/H); see `PolarGrid`.
    Differentiable in `images`, `origin`, `phase` and `dilation`.

    Convention: `origin` (N, 2) is (x, y) in [-1, 1] with pixel centres at (2i+1)/n - 1, as
    `torch.nn.functional.grid_sample(align_corners=False)` has it; (0, 0) is the middle of the image.

    Args:
        phase: angle of the first row in radians, a number or (N,). `polar_sample` of an image turned by
            `-phase` about its origin, without resampling it twice.
        dilation: factor on every radius, a number or (N,). `polar_sample` of an image shrunk by `dilation` about
            its origin, without resampling it twice.
        padding: what lies outside the image: "zeros", or its "border" repeated.
        backend: "torch", "triton", or "auto", which picks Triton on a GPU; all mean the same. On a GPU the gradient
            to the images is not deterministic, that to the origin is with Triton.
        check_finite: a non-finite origin is an error. Without the check, and where values cannot be looked at
            without waiting for them (on a GPU, in compiled or transformed code), its polar image is NaN.
    """
    check_images(images)
    return _sample(images, origin, grid, phase, dilation, mode, padding_mode, backend, check_finite)


def polar_unsample(
    polar: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    size: tuple[int, int],
    *,
    mode: Mode = "bilinear",
    fill: float = 0.0,
) -> Tensor:
    """The image whose polar image is `polar`: (N, C, angles, radii) -> (N, C, H, W), `size` = (H, W).

    The inverse of `polar_sample` up to interpolation. Rows interpolate across the angular seam; inside
    r_min the value blends towards the mean of the innermost circle; outside r_max it is `fill`.
    """
    check_images(polar, "(N, C, angles, radii)")
    check_options(mode, "border")
    check_size(size)
    _check_origin(origin, polar.shape[0], True)
    if tuple(polar.shape[-2:]) != (grid.angles, grid.radii):
        shape = tuple(polar.shape[-2:])
        raise InputError(f"the polar image is {shape} but the grid is {(grid.angles, grid.radii)}")
    dtype = coordinate_dtype(polar)
    height, width = size
    x = torch.arange(width, dtype=dtype, device=polar.device)
    y = torch.arange(height, dtype=dtype, device=polar.device)
    centre = origin_px(origin.to(dtype), size)
    dx = x[None, None, :] - centre[:, 0, None, None]
    dy = y[None, :, None] - centre[:, 1, None, None]
    squared = dx.square() + dy.square()
    # the angle at the origin is undefined and its gradient would be NaN: take the one at a point beside it
    at_origin = squared == 0
    radius = torch.where(at_origin, torch.ones_like(squared), squared).sqrt()
    angle = torch.atan2(dy, torch.where(at_origin, torch.ones_like(dx), dx)) % (2 * math.pi)
    row = angle * (grid.angles / (2 * math.pi))
    column = grid.column_at(radius, size)
    if grid.law == "log":
        column = torch.where(radius < grid.r_min_px, radius / grid.r_min_px - 1, column)
    column = torch.where(at_origin, torch.full_like(column, -1.0 if grid.law == "log" else 0.0), column)

    margin = 2  # as far as the bicubic kernel reaches
    middle = polar[..., :1].mean(dim=-2, keepdim=True).expand(-1, -1, grid.angles, margin)
    padded = wrap_pad(torch.cat((middle, polar), dim=-1), (margin, 0))
    column = column.clamp(max=grid.radii - 1)
    images = interpolate(padded, column + margin, row + margin, mode=mode, padding_mode="border")
    outside = (squared > grid.outer_radius(size) ** 2)[:, None]
    images = torch.where(outside, fill, images)
    return nan_where_broken(images, origin)


def cylindrical_sample(
    volumes: Tensor,
    axis_xy: Tensor,
    grid: PolarGrid,
    *,
    phase: Tensor | float = 0.0,
    dilation: Tensor | float = 1.0,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
    check_finite: bool = True,
) -> Tensor:
    """The cylindrical image of each volume around a vertical axis: (N, C, X, Y, Z) -> (N, C, angles, radii, Z).

    One polar transform shared by all z slices. `axis_xy` (N, 2), the angles and the options mean what they mean
    for an image whose rows are y and whose columns are x.
    """
    check_images(volumes, "(N, C, X, Y, Z)")
    return _sample(volumes, axis_xy, grid, phase, dilation, mode, padding_mode, backend, check_finite)


def _sample(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    phase: Tensor | float,
    dilation: Tensor | float,
    mode: Mode,
    padding_mode: PaddingMode,
    backend: Backend,
    check_finite: bool,
) -> Tensor:
    """Images (N, C, H, W) or volumes (N, C, X, Y, Z) around their origins."""
    check_options(mode, padding_mode)
    _check_origin(origin, images.shape[0], check_finite)
    if origin.device != images.device:
        raise InputError(f"images are on {images.device} but origin is on {origin.device}: move one of them")
    _check_number("phase", phase, images.shape[0])
    _check_number("dilation", dilation, images.shape[0])
    if uses_triton(backend, images, (grid.angles, grid.radii)):
        from . import fused

        return fused.polar(
            images,
            origin,
            grid,
            phase=phase,
            dilation=dilation,
            mode=mode,
            padding_mode=padding_mode,
        )
    if images.dim() == 5:
        slices = fold_slices(images)
        polar = _sample(slices, origin, grid, phase, dilation, mode, padding_mode, "torch", check_finite)
        return unfold_slices(polar, images.shape[1])
    polar = sample_points(images, origin, grid, phase, dilation, mode=mode, padding_mode=padding_mode)
    given = [number.expand(images.shape[0]) for number in (phase, dilation) if isinstance(number, Tensor)]
    return nan_where_broken(polar, origin, *given)


def origin_px(origin: Tensor, size: tuple[int, int]) -> Tensor:
    """An origin in [-1, 1] as (x, y) in pixels with pixel centres at whole numbers."""
    height, width = size
    x, y = origin.unbind(dim=-1)
    return torch.stack(((x + 1) * (width / 2) - 0.5, (y + 1) * (height / 2) - 0.5), dim=-1)


def _check_origin(origin: Tensor, count: int, check_finite: bool) -> None:
    if not isinstance(origin, Tensor) or not origin.is_floating_point():
        kind = origin.dtype if isinstance(origin, Tensor) else type(origin).__name__
        raise InputError(f"origin must be a floating-point tensor (N, 2); got {kind}")
    if tuple(origin.shape) != (count, 2):
        raise InputError(f"origin must have shape ({count}, 2), one (x, y) per image; got {tuple(origin.shape)}")
    if check_finite and values_known(origin) and not bool(torch.isfinite(origin).all()):
        index = int((~torch.isfinite(origin).all(dim=1)).nonzero()[0])
        raise InputError(f"origin {index} is not finite: {origin[index].tolist()}")


def _check_number(name: str, value: Tensor | float, count: int) -> None:
    if isinstance(value, Tensor):
        if value.dim() and tuple(value.shape) != (count,):
            raise InputError(f"{name} must be a number or have shape ({count},); got {tuple(value.shape)}")
    elif not abs(value) < math.inf:
        raise InputError(f"{name} must be finite; got {value}")
