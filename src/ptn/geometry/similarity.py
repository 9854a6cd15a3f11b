"""The one rotate/scale/shift warp that generators, augmentation, test averaging and networks share."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from .backend import Backend, uses_triton
from .interpolate import (
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_size,
    coordinate_dtype,
    interpolate,
    nan_where_broken,
    pixel_centre,
    values_known,
)
from .slices import fold_slices


class Warp(NamedTuple):
    """One similarity per image, as `similarity_warp` takes it: rotation (N,), scale (N,) and shift_px (N, 2)."""

    rotation: Tensor
    scale: Tensor
    shift_px: Tensor


def similarity_warp(
    images: Tensor,
    *,
    rotation: Tensor | float = 0.0,
    scale: Tensor | float = 1.0,
    shift_px: Tensor | float = 0.0,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
) -> Tensor:
    """Each image turned, scaled and moved: (N, C, H, W) -> (N, C, h, w), `size` = (h, w), by default (H, W).

    What is at p in the input is at scale·R(rotation)·p + shift_px in the output, p and its image measured in
    pixels from the middle of the input and of the output. Differentiable in the images and the parameters.

    Volumes (N, C, X, Y, Z) -> (N, C, w, h, Z) have every z slice warped alike, as an image with rows y and
    columns x.

    A sample whose parameters are not finite comes out as NaN.

    Convention: `rotation` in radians turns +x towards +y (y points down), the direction in which the rows of a
    polar image count; a turn by θ rolls the polar image around the middle by θ·angles/2π rows.

    Args:
        rotation: a number or one per image (N,).
        scale: a number or one per image (N,).
        shift_px: a number, or (x, y) per image (N, 2).
        backend: as in `polar_sample`.
    """
    volumes = isinstance(images, Tensor) and images.dim() == 5
    check_images(images, "(N, C, X, Y, Z)" if volumes else "(N, C, H, W)")
    check_options(mode, padding_mode)
    if size is not None:
        check_size(size)
    dtype = coordinate_dtype(images)
    angle = per_image(rotation, "rotation", images, dtype)
    factor = per_image(scale, "scale", images, dtype)
    shift = per_image(shift_px, "shift_px", images, dtype, 2)
    if values_known(factor) and not bool((factor != 0).all()):
        raise InputError("scale must not be 0: nothing would be left of the image")
    height, width = (images.shape[3], images.shape[2]) if volumes else (images.shape[2], images.shape[3])
    out = (height, width) if size is None else (size[0], size[1])
    if uses_triton(backend, images, out):
        from . import fused

        return fused.warp(
            images,
            rotation=angle,
            scale=factor,
            shift_px=shift,
            size=out,
            mode=mode,
            padding_mode=padding_mode,
        )
    slices = fold_slices(images) if volumes else images
    out_x, out_y = pixel_centre(out)
    x = torch.arange(out[1], dtype=dtype, device=images.device) - out_x
    y = torch.arange(out[0], dtype=dtype, device=images.device) - out_y
    x = x[None, None, :] - shift[:, 0, None, None]
    y = y[None, :, None] - shift[:, 1, None, None]
    cos = (torch.cos(angle) / factor)[:, None, None]
    sin = (torch.sin(angle) / factor)[:, None, None]
    in_x, in_y = pixel_centre((height, width))
    warped = interpolate(
        slices,
        cos * x + sin * y + in_x,
        cos * y - sin * x + in_y,
        mode=mode,
        padding_mode=padding_mode,
    )
    warped = nan_where_broken(warped, angle, factor, shift)
    return warped.unflatten(1, (images.shape[1], -1)).permute(0, 1, 4, 3, 2) if volumes else warped


def per_image(value: Tensor | float, name: str, images: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """`value`, a number or one for each of `images`, as a tensor (N, *shape)."""
    count = images.shape[0]
    if not isinstance(value, Tensor):
        return torch.full((count, *shape), value, dtype=dtype, device=images.device)
    if value.dim() and value.shape != (count, *shape):
        raise InputError(f"{name} must be a number or have shape {(count, *shape)}; got {tuple(value.shape)}")
    return value.to(dtype=dtype, device=images.device).expand(count, *shape)
