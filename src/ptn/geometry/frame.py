"""One resampling instead of two: the polar image of a warped image, read from the image itself."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from .interpolate import check_size, coordinate_dtype
from .similarity import per_image


class PolarFrame(NamedTuple):
    """Where polar sampling puts its grid: the origin (N, 2), phase (N,) and dilation (N,) of `polar_sample`."""

    origin: Tensor
    phase: Tensor
    dilation: Tensor


def frame_before_warp(
    origin: Tensor,
    size: tuple[int, int],
    *,
    rotation: Tensor | float = 0.0,
    scale: Tensor | float = 1.0,
    shift_px: Tensor | float = 0.0,
) -> PolarFrame:
    """The frame in which an image shows what its warp shows around `origin` (N, 2).

    With `warped = similarity_warp(images, rotation=…, scale=…, shift_px=…)` of images h × w, `size` = (h, w),

        polar_sample(warped, origin, grid)
        polar_sample(images, frame.origin, grid, phase=frame.phase, dilation=frame.dilation)

    are the same but for interpolation, of which the second has one less, and for what the warp pushed out of the
    picture, which the second still sees. Differentiable in all arguments.
    """
    check_size(size)
    if not isinstance(origin, Tensor) or origin.dim() != 2 or origin.shape[1] != 2:
        got = tuple(origin.shape) if isinstance(origin, Tensor) else type(origin).__name__
        raise InputError(f"origin must be a tensor (N, 2); got {got}")
    dtype = coordinate_dtype(origin)
    angle = per_image(rotation, "rotation", origin, dtype)
    factor = per_image(scale, "scale", origin, dtype)
    shift = per_image(shift_px, "shift_px", origin, dtype, 2)
    height, width = size
    x = origin[:, 0] * (width / 2) - shift[:, 0]
    y = origin[:, 1] * (height / 2) - shift[:, 1]
    cos, sin = torch.cos(angle) / factor, torch.sin(angle) / factor
    before = torch.stack(((cos * x + sin * y) * (2 / width), (cos * y - sin * x) * (2 / height)), dim=1)
    return PolarFrame(before, -angle, 1 / factor)
