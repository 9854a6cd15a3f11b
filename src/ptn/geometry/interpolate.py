"""Reading images at arbitrary points: the one interpolation that every warp of this package goes through."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import InputError, check_choice

Mode = Literal["bilinear", "bicubic", "nearest"]
PaddingMode = Literal["zeros", "border"]

MODES = ("bilinear", "bicubic", "nearest")
PADDING_MODES = ("zeros", "border")


def interpolate(images: Tensor, x_px: Tensor, y_px: Tensor, *, mode: Mode, padding_mode: PaddingMode) -> Tensor:
    """`images` (N, C, H, W) read at the points (`x_px`, `y_px`), each (N, h, w) -> (N, C, h, w).

    Convention: pixel centres are at whole numbers, so (0, 0) is the middle of the top left pixel. Beyond the
    outermost pixel centres, "zeros" blends to zero over one pixel and "border" repeats the edge.
    Half-precision images are read with coordinates and weights of the points' precision.
    """
    height, width = images.shape[-2:]
    points = torch.stack(((x_px + 0.5) * (2 / width) - 1, (y_px + 0.5) * (2 / height) - 1), dim=1)
    return interpolate_at(images, points, mode=mode, padding_mode=padding_mode)


def interpolate_at(images: Tensor, points: Tensor, *, mode: Mode, padding_mode: PaddingMode) -> Tensor:
    """`interpolate` at points (N, 2, h, w) that are x and y in [-1, 1], as origins are."""
    # x and y each in one piece are read as fast as pairs, and much faster to write
    grid = points.permute(0, 2, 3, 1)
    sampled = F.grid_sample(images.to(grid.dtype), grid, mode=mode, padding_mode=padding_mode, align_corners=False)
    return sampled.to(images.dtype)


def values_known(tensor: Tensor) -> bool:
    """Whether values can be looked at here and now, without waiting for a device or breaking a trace."""
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor) and runs_eagerly()


def runs_eagerly() -> bool:
    """Whether torch computes here and now: nothing is compiled, exported or transformed by `torch.func`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None


def nan_where_broken(images: Tensor, *parameters: Tensor) -> Tensor:
    """`images` (N, C, H, W), NaN for every sample that one of `parameters` (N, …) is not finite for.

    `grid_sample` reads a NaN point as lying outside; a broken parameter must not pass for a black image.
    """
    if values_known(images) and all(map(values_known, parameters)) and all(p.isfinite().all() for p in parameters):
        return images
    finite = torch.stack(
        [torch.isfinite(p.flatten(1) if p.dim() > 1 else p[:, None]).all(dim=1) for p in parameters]
    )
    return torch.where(finite.all(dim=0)[:, None, None, None], images, math.nan)


def check_size(size: object) -> None:
    """Raise unless `size` is (height, width), whole and positive."""
    if not (isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)):
        raise InputError(f"size must be (height, width) in whole pixels; got {size!r}")


def coordinate_dtype(images: Tensor) -> torch.dtype:
    """The precision of coordinates for `images`: float32, or float64 where the images are."""
    return torch.float64 if images.dtype == torch.float64 else torch.float32


def pixel_centre(size: tuple[int, int]) -> tuple[float, float]:
    """(x, y) of the middle of an h × w image, in pixels with pixel centres at whole numbers."""
    height, width = size
    return (width - 1) / 2, (height - 1) / 2


def check_options(mode: str, padding_mode: str) -> None:
    check_choice("mode", mode, MODES)
    check_choice("padding_mode", padding_mode, PADDING_MODES)


def check_images(images: Tensor, layout: str = "(N, C, H, W)") -> None:
    """Raise unless `images` is a floating-point tensor of the rank that `layout` has, with pixels in it."""
    rank = layout.count(",") + 1
    if not isinstance(images, Tensor):
        raise InputError(f"expected a tensor {layout}; got {type(images).__name__}")
    if images.dim() != rank:
        raise InputError(f"expected a tensor {layout}; got shape {tuple(images.shape)}")
    if not images.is_floating_point():
        raise InputError(f"expected floating-point values in [0, 1]; got {images.dtype}: divide bytes by 255")
    if 0 in images.shape[1:]:
        raise InputError(f"expected a tensor {layout} with pixels in it; got shape {tuple(images.shape)}")
