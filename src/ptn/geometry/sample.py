"""Polar and cylindrical sampling, and its inverse."""

import importlib.util
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable

from ..errors import InputError, InputTypeError, check_choice
from .grid import (
    MAX_PIXELS,
    GridPose,
    PolarGrid,
    cached_points,
    check_grid,
    check_number,
    finer_grids,
    origin_px,
    reduce_angle,
    relative_points,
    shift_origin,
)
from .wrap import wrap_pad

Mode = Literal["bilinear", "bicubic", "nearest"]
PaddingMode = Literal["zeros", "border"]
Backend = Literal["auto", "torch", "triton"]

MODES = ("bilinear", "bicubic", "nearest")
PADDING_MODES = ("zeros", "border")
BACKENDS = ("auto", "torch", "triton")
# the numbers of `torch.grid_sampler`
_MODE_NUMBERS = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDING_NUMBERS = {"zeros": 0, "border": 1}

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_TRITON_INSTALLED = importlib.util.find_spec("triton") is not None
# output values from which on Triton is faster in eager calls
_MIN_VALUES = 2**26
_transforms_active = torch._C._are_functorch_transforms_active
_TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def polar_sample(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    *,
    phase: Tensor | float = 0.0,
    dilation: Tensor | float = 1.0,
    aspect: Tensor | None = None,
    tilt: Tensor | None = None,
    outer_px: Tensor | None = None,
    antialias: bool = False,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
) -> Tensor:
    """Return the polar image of each image around its origin: (N, C, H, W) -> (N, C, angles, radii).

    The value at (y, x) is the image at origin + radius(x)·(cos 2πy/H, sin 2πy/H); see `PolarGrid`, also for
    sectors, ellipses and circles with different centres. Differentiable in `images`, `origin`, `phase`, `dilation`,
    `aspect`, `tilt` and `outer_px`.

    Convention: `origin` (N, 2) is (x, y) in [-1, 1] with pixel centres at (2i+1)/n - 1, as in
    `torch.nn.functional.grid_sample(align_corners=False)`; (0, 0) is the middle of the image.

    The polar image around a non-finite origin is NaN; in eager calls on a GPU it may be that of an origin outside
    the image, as in `grid_sample`.

    Args:
        images: (N, C, H, W), floats.
        origin: (N, 2), (x, y) in [-1, 1].
        grid: angles, radii and radial law of the polar image.
        phase: angle of the first row in radians; a number or (N,). Equals rotating the image by `-phase` about its
            origin, without a second interpolation.
        dilation: factor on every radius; a number or (N,). Equals shrinking the image by `dilation` about its
            origin, without a second interpolation.
        aspect: replaces that of the grid; a tensor (N,), or of one value. `phase` does not rotate the ellipse.
        tilt: replaces that of the grid; a tensor (N,), or of one value.
        outer_px: replaces that of the grid; a tensor (N, 2) or (2,).
        antialias: average the image over the area of each polar pixel, in samples at most one pixel apart, instead
            of reading one point. Otherwise detail at large radii is skipped if a polar pixel covers several pixels.
            The samples do not depend on tensors: they are those of the grid and of dilation 1.
        mode: interpolation: "bilinear", "bicubic" or "nearest".
        padding_mode: values outside the image: "zeros", or the nearest pixel of the "border".
        backend: "torch", "triton", or "auto", the faster one (see `uses_triton`). On a GPU the gradient to the
            images is not deterministic; that to the origin is, with Triton.

    Raises:
        InputError: for wrong shapes, dtypes or options; in eager calls on a CPU also for origins in pixels and for
            images in [0, 255].
    """
    plain = type(images) is Tensor is type(origin) and type(phase) is float is type(dilation) and images.is_cuda
    plain = plain and aspect is None and tilt is None and outer_px is None and not antialias
    if plain and not torch.compiler.is_compiling() and not _transforms_active():
        device = images.get_device()
        points, mode_number, padding_number = _checked_call(
            images.shape, images.dtype, device, origin.shape, origin.dtype, origin.get_device(), grid, phase,
            dilation, mode, padding_mode, backend,
        )  # fmt: skip
        if points is not None and prefers_torch(device):
            points = points + origin.view(-1, 1, 1, 2)
            return torch.grid_sampler(images, points, mode_number, padding_number, False)
    check_images(images)
    if not isinstance(antialias, bool):
        raise InputTypeError(f"antialias must be true or false; got {antialias!r}")
    pose = GridPose(phase, dilation, aspect, tilt, outer_px)
    _check_call(images, origin, grid, pose, mode, padding_mode)
    sample = _sample_areas if antialias else _sample
    return sample(images, origin, grid, pose, mode, padding_mode, backend)


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
) -> Tensor:
    """Return the cylindrical image of each volume around an axis: (N, C, X, Y, Z) -> (N, C, angles, radii, Z).

    The axis is parallel to z; all slices share one polar transform. `axis_xy` (N, 2), angles and options are those
    of `polar_sample` for an image whose rows are y and whose columns are x.

    Args:
        volumes: (N, C, X, Y, Z), floats.
        axis_xy: (N, 2), (x, y) in [-1, 1].
        grid: as in `polar_sample`.
        phase: as in `polar_sample`.
        dilation: as in `polar_sample`.
        mode: as in `polar_sample`.
        padding_mode: as in `polar_sample`.
        backend: as in `polar_sample`.
    """
    check_images(volumes, "(N, C, X, Y, Z)")
    pose = GridPose(phase, dilation)
    _check_call(volumes, axis_xy, grid, pose, mode, padding_mode)
    return _sample(volumes, axis_xy, grid, pose, mode, padding_mode, backend)


def polar_unsample(
    polar: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    size: tuple[int, int],
    *,
    aspect: Tensor | None = None,
    tilt: Tensor | None = None,
    outer_px: Tensor | None = None,
    mode: Mode = "bilinear",
    fill: float | None = 0.0,
) -> Tensor:
    """Return the image whose polar image is `polar`: (N, C, angles, radii) -> (N, C, H, W), with `size` = (H, W).

    The inverse of `polar_sample` up to interpolation. Rows of a full circle are interpolated across the angular
    seam. Inside r_min the value blends towards the mean of the innermost circle with the log law, and is `fill`
    with the linear one; outside r_max and outside a sector it is `fill`.

    Args:
        polar: (N, C, angles, radii).
        origin: as in `polar_sample`.
        grid: that of the polar image.
        size: (H, W) of the image.
        aspect: as in `polar_sample`.
        tilt: as in `polar_sample`.
        outer_px: as in `polar_sample`.
        mode: as in `polar_sample`.
        fill: value outside the grid; None repeats the nearest row or column.
    """
    check_images(polar, "(N, C, angles, radii)")
    check_options(mode, "border")
    check_grid(grid)
    _check_origin(origin, polar, grid)
    check_size(size)
    pose = GridPose(aspect=aspect, tilt=tilt, outer_px=outer_px)
    _check_pose(grid, pose, polar.shape[0], size)
    if tuple(polar.shape[-2:]) != (grid.angles, grid.radii):
        shape = tuple(polar.shape[-2:])
        raise InputError(f"the polar image is {shape} but the grid is {(grid.angles, grid.radii)}")
    dtype = coordinate_dtype(polar)
    if fill is not None:
        check_number("fill", fill)
    if isinstance(fill, Tensor) and fill.dim():
        raise InputTypeError(f"fill must be one number; got shape {tuple(fill.shape)}")
    height, width = size
    x = torch.arange(width, dtype=dtype, device=polar.device)
    y = torch.arange(height, dtype=dtype, device=polar.device)
    center = origin_px(origin.to(dtype), size)
    dx = x[None, None, :] - center[:, 0, None, None]
    dy = y[None, :, None] - center[:, 1, None, None]
    first, r_min, r_max = reduce_angle(grid.start), grid.inner_radius, grid.outer_radius(size)
    if not grid.is_circular(pose):
        first = 0.0
        dx, dy = _to_circles(dx, dy, grid.frame(size, pose, dtype, polar.device), r_min)
    squared = dx.square() + dy.square()
    # the angle at the origin is undefined and its gradient would be NaN: use that of a point beside it
    at_origin = squared == 0
    radius = torch.where(at_origin, torch.ones_like(squared), squared).sqrt()
    angle = torch.atan2(dy, torch.where(at_origin, torch.ones_like(dx), dx))
    row = ((angle - first if first else angle) % (2 * math.pi)) * (grid.angles / grid.sweep)
    column = grid.column_at(radius, size)
    if grid.law == "log":
        column = torch.where(radius < r_min, radius / r_min - 1, column)
    column = torch.where(at_origin, torch.full_like(column, -1.0 if grid.law == "log" else 0.0), column)

    outside = squared > r_max**2
    margin = 2  # the reach of the bicubic kernel
    middle = polar[..., :1]
    if grid.law == "linear" and r_min > 0:
        outside = outside | (squared < r_min**2)
    else:
        middle = middle.mean(dim=-2, keepdim=True)
    padded = torch.cat((middle.expand(-1, -1, grid.angles, margin), polar), dim=-1)
    if grid.wraps:
        padded, row = wrap_pad(padded, (margin, 0)), row + margin
    else:
        outside = outside | (row >= grid.angles)
        turn = 2 * math.pi * grid.angles / grid.sweep
        row = torch.where(row > (grid.angles - 1 + turn) / 2, row - turn, row)  # nearer to the first row
    column = column.clamp(max=grid.radii - 1)
    del dx, dy, squared, at_origin, radius, angle  # several times the memory of an image
    images = interpolate(padded, column + margin, row, mode=mode, padding_mode="border")
    if fill is not None:
        images = torch.where(outside[:, None], fill, images)
    return nan_where_not_finite(images, origin, *pose_tensors(pose, polar.shape[0]))


def _to_circles(dx: Tensor, dy: Tensor, frame: Tensor, r_min: float) -> tuple[Tensor, Tensor]:
    """Return radius·(cos t, sin t) of points (dx, dy) from the origin, each (N, H, W); see `PolarGrid.frame`."""
    a, b, m, c, d, n = (entry.reshape(-1, 1, 1) for entry in frame.flatten(-2).unbind(dim=-1))
    dx, dy = dx + r_min * m, dy + r_min * n
    determinant = a * d - b * c
    x, y = (d * dx - b * dy) / determinant, (a * dy - c * dx) / determinant
    kx, ky = (d * m - b * n) / determinant, (a * n - c * m) / determinant
    # x, y = radius·(u + k) with a unit vector u: a quadratic equation for the radius
    rest, dot = 1 - kx**2 - ky**2, kx * x + ky * y
    square = dot**2 + rest * (x**2 + y**2)
    root = torch.where(square == 0, 0.0, torch.where(square == 0, 1.0, square).sqrt())
    radius = (root - dot) / rest
    return x - radius * kx, y - radius * ky


def interpolate(images: Tensor, x_px: Tensor, y_px: Tensor, *, mode: Mode, padding_mode: PaddingMode) -> Tensor:
    """Return `images` (N, C, H, W) at the points (`x_px`, `y_px`), each (N, h, w) -> (N, C, h, w).

    Convention: pixel centres are at integers, so (0, 0) is the middle of the top left pixel. Beyond the outermost
    pixel centres, "zeros" blends to zero over one pixel and "border" repeats the edge.
    Half-precision images are read with coordinates and weights in the precision of the points.
    """
    height, width = images.shape[-2:]
    points = torch.stack(((x_px + 0.5) * (2 / width) - 1, (y_px + 0.5) * (2 / height) - 1), dim=1)
    return sample_points(images, points.permute(0, 2, 3, 1), mode, padding_mode)


def fold_slices(volumes: Tensor) -> Tensor:
    """Move z into the channels: (N, C, X, Y, Z) -> (N, C·Z, Y, X)."""
    count, channels, width, height, depth = volumes.shape
    return volumes.permute(0, 1, 4, 3, 2).reshape(count, channels * depth, height, width)


def _sample(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    pose: GridPose,
    mode: Mode,
    padding_mode: PaddingMode,
    backend: Backend,
) -> Tensor:
    origin_only = torch.is_grad_enabled() and origin.requires_grad and not images.requires_grad
    minimum = 4 * _MIN_VALUES if origin_only else _MIN_VALUES
    if uses_triton(backend, images, (grid.angles, grid.radii), minimum):
        from . import triton_ops

        return triton_ops.polar_sample(images, origin, grid, pose, mode, padding_mode)
    if images.dim() == 5:
        polar = _sample_torch(fold_slices(images), origin, grid, pose, mode, padding_mode)
        return polar.unflatten(1, (images.shape[1], -1)).permute(0, 1, 3, 4, 2)
    return _sample_torch(images, origin, grid, pose, mode, padding_mode)


def _check_call(
    images: Tensor, origin: Tensor, grid: PolarGrid, pose: GridPose, mode: str, padding_mode: str
) -> None:
    check_options(mode, padding_mode)
    check_grid(grid)
    _check_origin(origin, images, grid)
    check_range(images)
    _check_pose(grid, pose, images.shape[0], (images.shape[2], images.shape[3]))


def _check_pose(grid: PolarGrid, pose: GridPose, count: int, size: tuple[int, int]) -> None:
    phase, dilation, aspect, tilt, outer_px = pose
    if type(phase) is float is type(dilation) and aspect is tilt is outer_px is None:  # saves ten microseconds
        check_number("phase or dilation", phase * dilation, tensors=False)
        return
    for name, value in pose._asdict().items():
        if name in ("phase", "dilation"):
            check_number(name, value, tensors=isinstance(value, Tensor))
        elif value is not None and (not isinstance(value, Tensor) or value.is_complex()):
            raise InputTypeError(f"{name} must be a real tensor, or a number in the grid; got {value!r}")
        shape = (count, 2) if name == "outer_px" else (count,)
        # by the number of axes: comparing (N, 2) with (2,) would make torch.export exclude batches of 2
        if isinstance(value, Tensor) and value.shape != (shape if value.dim() == len(shape) else shape[1:]):
            raise InputError(f"{name} must be constant or have shape {shape}; got {tuple(value.shape)}")
    if aspect is not None and values_known(aspect) and bool((aspect <= 0).any()):
        raise InputError("aspect must be positive")
    if outer_px is not None and values_known(outer_px):
        room, distance = grid.outer_radius(size) - grid.inner_radius, outer_px.float().norm(dim=-1)
        if bool((distance.isfinite() & (distance >= room)).any()):
            raise InputError(f"outer_px must be less than r_max - r_min ({room:g} px) from the origin")


@lru_cache(maxsize=64)
def _checked_call(
    shape: torch.Size,
    dtype: torch.dtype,
    device: int,
    origin_shape: torch.Size,
    origin_dtype: torch.dtype,
    origin_device: int,
    grid: PolarGrid,
    phase: float,
    dilation: float,
    mode: Mode,
    padding_mode: PaddingMode,
    backend: Backend,
) -> tuple[Tensor | None, int, int]:
    """Check an eager call on a GPU, once for equal arguments; return points, mode and padding of `grid_sampler`.

    The points are None where `uses_triton` decides.
    """
    if origin_device != device:
        place = f"GPU {origin_device}" if origin_device >= 0 else "the CPU"
        raise InputError(f"images are on GPU {device} but origin is on {place}: move one of them")
    images = torch.empty(shape, dtype=dtype, device="meta")
    origin = torch.empty(origin_shape, dtype=origin_dtype, device="meta")
    check_images(images)
    pose = GridPose(phase, dilation)
    _check_call(images, origin, grid, pose, mode, padding_mode)
    check_choice("backend", backend, BACKENDS)
    numbers = _MODE_NUMBERS[mode], _PADDING_NUMBERS[padding_mode]
    values = shape[0] * shape[1] * grid.angles * grid.radii
    if backend == "triton" or values >= _MIN_VALUES or not dtype == origin_dtype == coordinate_dtype(images):
        return None, *numbers
    size = shape[2], shape[3]
    return cached_points(grid, size, pose, origin_dtype, torch.device("cuda", device)), *numbers


def _sample_torch(
    images: Tensor, origin: Tensor, grid: PolarGrid, pose: GridPose, mode: Mode, padding_mode: PaddingMode
) -> Tensor:
    dtype, size = coordinate_dtype(images), (images.shape[2], images.shape[3])
    if origin.dtype != dtype:
        origin = origin.to(dtype)
    eager = runs_eagerly() and not isinstance(images, FakeTensor)
    phase, dilation, aspect, tilt, outer_px = pose
    varies = isinstance(phase, Tensor) or isinstance(dilation, Tensor) or not (aspect is tilt is outer_px is None)
    if eager and not varies:
        points = cached_points(grid, size, pose, dtype, images.device)
        if images.is_cpu and (length := _chunk_length(images, points)) < len(images):
            polar = _SampleInThreads.apply(  # type: ignore[no-untyped-call]
                images, origin, points, length, mode, padding_mode
            )
            return nan_where_not_finite(polar, origin)
    else:
        points = relative_points(grid, size, pose, dtype, images.device)
    if images.is_cuda and _transforms_active():
        # vmap of the backward on a GPU fails if only the points need a gradient: let the images need one too
        images = images + 0 * origin.sum().to(images.dtype)
    polar = sample_points(images, points + origin.view(-1, 1, 1, 2), mode, padding_mode)
    if eager and images.is_cuda:  # a check would take three more kernels
        return polar
    return nan_where_not_finite(polar, origin, *(pose_tensors(pose, images.shape[0]) if varies else ()))


def pose_tensors(pose: GridPose, count: int) -> list[Tensor]:
    """Return the tensors of a pose, each with one entry per image."""
    tensors = {name: value for name, value in pose._asdict().items() if isinstance(value, Tensor)}
    return [value.expand(count, *(2,) * (name == "outer_px")) for name, value in tensors.items()]


def _sample_areas(images: Tensor, origin: Tensor, grid: PolarGrid, pose: GridPose, *options: Any) -> Tensor:
    """`_sample` averaged over the areas of the polar pixels, on finer grids."""
    size, dtype = (images.shape[2], images.shape[3]), coordinate_dtype(images)
    frame = None if grid.is_circular(pose) else grid.frame(size, pose, dtype, images.device)
    parts = []
    for fine, along, across in finer_grids(grid, size, 1.0 if isinstance(pose.dilation, Tensor) else pose.dilation):
        center, fine_pose = origin, pose
        if frame is not None:  # the centre of the first circle of the finer grid
            center = shift_origin(origin, frame[..., 2] * (fine.inner_radius - grid.inner_radius), size)
        if pose.outer_px is not None:
            extents = [g.outer_radius(size) - g.inner_radius for g in (fine, grid)]
            fine_pose = pose._replace(outer_px=pose.outer_px * (extents[0] / extents[1]))
        polar = _sample(images, center, fine, fine_pose, *options)
        polar = polar.unflatten(3, (-1, across)).unflatten(2, (-1, along)).mean(dim=3)
        area = fine.radius_at(torch.arange(fine.radii, dtype=dtype, device=images.device), size)
        area = (area.square() if grid.law == "log" else area).view(-1, across)
        parts.append((polar * (area / area.sum(dim=1, keepdim=True)).to(polar.dtype)).sum(dim=4))
    return torch.cat(parts, dim=3)


def sample_points(images: Tensor, points: Tensor, mode: Mode, padding_mode: PaddingMode) -> Tensor:
    """`F.grid_sample` in the precision of `points` (N, h, w, 2), without its checks."""
    mode_number, padding_number = _MODE_NUMBERS[mode], _PADDING_NUMBERS[padding_mode]
    if images.dtype == points.dtype:  # `to` costs a microsecond even if there is nothing to do
        return torch.grid_sampler(images, points, mode_number, padding_number, False)
    return torch.grid_sampler(images.to(points.dtype), points, mode_number, padding_number, False).to(images.dtype)


# Choice of the backend


def uses_triton(backend: str, images: Tensor, size: tuple[int, int], minimum: int) -> bool:
    """Return whether Triton samples `images` (N, C, …) at `size` = (rows, columns) points.

    "auto" takes Triton on a GPU under `torch.compile`, on a side stream (where CUDA graphs are warmed up and
    captured), under `torch.use_deterministic_algorithms` (where the backward of `grid_sampler` raises), and in
    other eager calls from `minimum` output values on; otherwise torch. The time of a small eager call is that of
    its launches, which cost torch less: on an H200, 200×1×96×96 images forward and backward to the origin take
    173 µs with `grid_sampler` and 666 µs with Triton; in CUDA graphs Triton is 1.5 to 4.5 times as fast.
    `torch.export` gets torch, so that programs run anywhere.
    """
    check_choice("backend", backend, BACKENDS)
    if backend == "torch" or (backend == "auto" and (not images.is_cuda or torch.compiler._is_exporting_flag)):
        return False
    if backend == "auto" and runs_eagerly():
        values = images.numel() // (images.shape[2] * images.shape[3]) * size[0] * size[1]
        if values < minimum and prefers_torch(images.get_device()):
            return False
    supported = _triton_supports(images, size)
    if backend == "triton" and not supported:
        raise InputError(
            "backend 'triton' needs the package triton, images on a GPU in float32, bfloat16 or float16 with fewer "
            f"than 2**31 values each, and no transform of torch.func; got {images.dtype} on {images.device.type}"
        )
    return supported


def prefers_torch(device: int) -> bool:
    """Return whether the current state of torch makes it faster for small eager calls; see `uses_triton`."""
    return not torch._C._cuda_getCurrentRawStream(device) and not torch.are_deterministic_algorithms_enabled()


def _triton_supports(images: Tensor, size: tuple[int, int]) -> bool:
    if not _TRITON_INSTALLED or not (images.is_cuda or INTERPRETED) or images.dtype not in _TRITON_DTYPES:
        return False
    if _transforms_active():
        return False
    extent = sum((n - 1) * stride for n, stride in zip(images.shape[1:], images.stride()[1:], strict=True))
    values = math.prod(images.shape[1:])
    outputs = values // math.prod(images.shape[2:4]) * size[0] * size[1]
    return max(extent, values, outputs) < 2**31


# Many images on a CPU

# pixels and points of a chunk, in bytes: they stay in the cache of a core
_CHUNK_BYTES = 2**20
# with more channels, copying pixels costs more than it saves
_MAX_CHANNELS = 8
_MAX_THREADS = 16


def _chunk_length(images: Tensor, points: Tensor) -> int:
    """Return how many images to sample at a time; all of them if chunks are not faster."""
    values = images[0].numel() + points.numel() if len(images) else 1
    length = max(1, _CHUNK_BYTES // (values * points.element_size()))
    if images.shape[1] > _MAX_CHANNELS or len(images) < 2 * length * torch.get_num_threads():
        return len(images)
    return length


class _SampleInThreads(torch.autograd.Function):
    """`sample_points` of `images` at `points` + origin in chunks; differentiable once, in images and origin.

    The backward computes the points again instead of keeping them.
    """

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, origin: Tensor, points: Tensor, length: int, mode: Mode, padding_mode: PaddingMode
    ) -> Tensor:
        ctx.save_for_backward(images, origin)
        ctx.points, ctx.length = points, length
        ctx.numbers = _MODE_NUMBERS[mode], _PADDING_NUMBERS[padding_mode]
        polar = images.new_empty(*images.shape[:2], *points.shape[:2])

        def sample(chunk: slice, pixels: Tensor, around: Tensor) -> None:
            polar[chunk] = sample_points(pixels, around, mode, padding_mode)

        _in_threads(sample, images, origin, points, length)
        return polar

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        images, origin = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        grad_images = torch.empty_like(images) if needed[0] else None
        grad_origin = torch.empty_like(origin) if needed[1] else None

        def differentiate(chunk: slice, pixels: Tensor, around: Tensor) -> None:
            grad = grad_output[chunk].to(origin.dtype, memory_format=torch.contiguous_format)
            grad_pixels, grad_points = torch.ops.aten.grid_sampler_2d_backward(
                grad, pixels, around, *ctx.numbers, False, needed
            )
            if grad_images is not None:
                grad_images[chunk] = grad_pixels
            if grad_origin is not None:
                grad_origin[chunk] = grad_points.sum(dim=(1, 2))

        _in_threads(differentiate, images, origin, ctx.points, ctx.length)
        return grad_images, grad_origin, None, None, None, None


def _in_threads(
    work: Callable[[slice, Tensor, Tensor], None], images: Tensor, origin: Tensor, points: Tensor, length: int
) -> None:
    """Call `work(chunk, images[chunk], points + origin[chunk])` for chunks of `length` images in several threads.

    The threads compute independently. OpenMP threads wait for each other after every operation. When other
    processes keep the cores busy, that takes several times as long as the work.
    """
    chunks = iter([slice(start, start + length) for start in range(0, len(images), length)])
    threads = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()

    def run() -> None:
        torch.set_num_threads(1)
        with torch.inference_mode(inference), torch.no_grad():
            # memory that the thread reuses; x and y each contiguous, like the relative points
            pixels = torch.empty((length, *images.shape[1:]), dtype=points.dtype)
            around = torch.empty((length, 2, *points.shape[:2]), dtype=points.dtype).permute(0, 2, 3, 1)
            for chunk in chunks:
                count = len(images[chunk])
                torch.add(points, origin[chunk].view(-1, 1, 1, 2), out=around[:count])
                # a copy, because sequential reads are faster than scattered ones
                work(chunk, pixels[:count].copy_(images[chunk]), around[:count])

    try:
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            helpers = [pool.submit(run) for _ in range(min(threads, _MAX_THREADS) - 1)]
            run()
            for helper in helpers:
                helper.result()
    finally:  # also for threads that start later, which take the number that was set last
        torch.set_num_threads(threads)


# Checks


def runs_eagerly() -> bool:
    """Return whether operations run at once: not compiled, exported or transformed by `torch.func`."""
    return not torch.compiler.is_compiling() and not _transforms_active()


def values_known(tensor: Tensor) -> bool:
    """Return whether values can be read without waiting for a device or breaking a trace."""
    return tensor.is_cpu and not isinstance(tensor, FakeTensor) and runs_eagerly()


def nan_where_not_finite(images: Tensor, *parameters: Tensor) -> Tensor:
    """Return `images` (N, C, H, W), NaN for each sample with a non-finite value in `parameters` (N, …).

    `grid_sample` reads a NaN point as lying outside the image; the result would be a black image.
    """
    if values_known(images) and all(values_known(p) and math.isfinite(p.detach().sum().item()) for p in parameters):
        return images
    finite = torch.stack([p.isfinite().flatten(1).all(dim=1) if p.dim() > 1 else p.isfinite() for p in parameters])
    return torch.where(finite.all(dim=0)[:, None, None, None], images, math.nan)


def coordinate_dtype(images: Tensor) -> torch.dtype:
    """Return the dtype of coordinates for `images`: float64 for float64, otherwise float32."""
    return torch.float64 if images.dtype == torch.float64 else torch.float32


def check_options(mode: str, padding_mode: str) -> None:
    """Raise InputError unless both are known."""
    check_choice("mode", mode, MODES)
    check_choice("padding_mode", padding_mode, PADDING_MODES)


def check_size(size: object) -> None:
    """Raise InputError unless `size` is (height, width) in positive integers, of at most `MAX_PIXELS`."""
    if not (isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)):
        raise InputError(f"size must be (height, width) in integers; got {size!r}")
    if size[0] * size[1] > MAX_PIXELS:
        raise InputError(f"size must be at most {MAX_PIXELS:,} pixels; got {size!r}")


def check_images(images: Tensor, layout: str = "(N, C, H, W)") -> None:
    """Raise InputError unless `images` is a floating-point tensor with the axes of `layout`, none but N empty."""
    if not isinstance(images, Tensor):
        raise InputTypeError(f"expected a tensor {layout}; got {type(images).__name__}")
    if images.dim() != layout.count(",") + 1:
        raise InputError(f"expected a tensor {layout}; got shape {tuple(images.shape)}")
    if not images.is_floating_point():
        raise InputError(f"expected floating-point values in [0, 1]; got {images.dtype}: divide bytes by 255")
    if images.itemsize == 1 or images.layout != torch.strided:
        raise InputTypeError(f"expected a dense tensor of 16 to 64 bits; got {images.dtype}, {images.layout}")
    if not images.numel() and 0 in images.shape[1:]:
        raise InputError(f"expected a tensor {layout} that is not empty; got shape {tuple(images.shape)}")


def check_range(images: Tensor) -> None:
    """Raise InputError for images in [0, 255], judged by a sample of the pixels of the first image.

    Tensors of more than four channels are feature maps, which may have any range.
    """
    if not values_known(images) or not len(images) or images.shape[1] > 4:
        return
    low, high = torch.aminmax(images.detach()[0, :, :: 1 + images.shape[2] // 64, :: 1 + images.shape[3] // 64])
    if low.item() >= 0 and 16 < (largest := high.item()) <= 255:
        raise InputError(f"expected images in [0, 1]; got values up to {largest:g}: divide them by 255")


def _check_origin(origin: Tensor, images: Tensor, grid: PolarGrid) -> None:
    if not isinstance(origin, Tensor) or not origin.is_floating_point():
        kind = origin.dtype if isinstance(origin, Tensor) else type(origin).__name__
        raise InputTypeError(f"origin must be a floating-point tensor (N, 2); got {kind}")
    if origin.shape != (images.shape[0], 2):
        raise InputError(f"origin must have shape ({images.shape[0]}, 2); got {tuple(origin.shape)}")
    if origin.device != images.device:
        raise InputError(f"images are on {images.device} but origin is on {origin.device}: move one of them")
    reach = 2 if grid.wraps else 8  # the apex of a sector may be far from the image
    if values_known(origin) and len(origin) and not origin.detach().abs().max().item() <= reach:
        far = origin.isfinite() & (origin.detach().abs() > reach)
        if bool(far.any()):
            raise InputError(f"origin must be in [-1, 1], not in pixels; got values up to {origin.abs().amax():g}")
