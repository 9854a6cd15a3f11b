"""The one rotate/scale/shift warp that generators, augmentation, test averaging and networks share."""

import math
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Similarity:
    """The map p -> scale·R(rotation)·p + shift_px of pixel positions p = (x, y) measured from the middle of the image.

    Each field is one value for all images, or a tensor with one value per image.

    Convention: a positive rotation carries +x towards +y (y points down), the direction in which the rows of a
    polar image count. A rotation by θ about the middle rolls the polar image around the middle by θ·angles/2π rows.

    Args:
        rotation: angle in radians; a number or (N,).
        scale: factor; a number or (N,).
        shift_px: (x, y) in pixels; a pair of numbers or (N, 2).
    """

    rotation: Tensor | float = 0.0
    scale: Tensor | float = 1.0
    shift_px: Tensor | tuple[float, float] = (0.0, 0.0)

    def compose(self, first: "Similarity") -> "Similarity":
        """Return the map that applies `first` and then `self`; also written `self @ first`."""
        x, y = self._rotate_and_scale(*first._shift())
        dx, dy = self._shift()
        return Similarity(
            first.rotation + self.rotation, first.scale * self.scale, _as_pair(x + dx, y + dy)
        )

    __matmul__ = compose

    def inverse(self) -> "Similarity":
        """Return the map that undoes this one."""
        back = Similarity(-self.rotation, 1 / self.scale)
        x, y = self._shift()
        return Similarity(back.rotation, back.scale, _as_pair(*back._rotate_and_scale(-x, -y)))

    def matrix(self) -> Tensor:
        """Return [scale·R(rotation) | shift_px]: (2, 3), or (N, 2, 3) if a field has one value per image."""
        x, y = self._shift()
        cos, sin = self._rotate_and_scale(1.0, 0.0)
        entries = [torch.as_tensor(value) for value in (cos, -sin, x, sin, cos, y)]
        return torch.stack(torch.broadcast_tensors(*entries), dim=-1).unflatten(-1, (2, 3))

    def _shift(self) -> tuple[Any, Any]:
        return self.shift_px.unbind(dim=-1) if isinstance(self.shift_px, Tensor) else self.shift_px

    def _rotate_and_scale(self, x: Any, y: Any) -> tuple[Any, Any]:
        functions: Any = torch if isinstance(self.rotation, Tensor) else math
        cos, sin = self.scale * functions.cos(self.rotation), self.scale * functions.sin(self.rotation)
        return cos * x - sin * y, sin * x + cos * y


def _as_pair(x: Any, y: Any) -> Tensor | tuple[float, float]:
    return torch.stack((x, y), dim=-1) if isinstance(x, Tensor) else (x, y)


def similarity_warp(
    images: Tensor,
    pose: Similarity,
    *,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
) -> Tensor:
    """Return each image rotated, scaled and shifted by `pose`: (N, C, H, W) -> (N, C, h, w).

    The value at p in the input is at `pose`(p) in the output; see `Similarity`. Differentiable in the images and
    in the fields of the pose. Volumes (N, C, X, Y, Z) -> (N, C, w, h, Z) have all z slices warped alike, each as an
    image with rows y and columns x. A sample whose pose is not finite is NaN.

    Args:
        size: (h, w) of the output, by default that of the input.
        mode, padding_mode, backend: as in `polar_sample`.
    """
    volumes = isinstance(images, Tensor) and images.dim() == 5
    check_images(images, "(N, C, X, Y, Z)" if volumes else "(N, C, H, W)")
    check_options(mode, padding_mode)
    if size is not None:
        check_size(size)
    dtype = coordinate_dtype(images)
    if not isinstance(pose, Similarity):
        raise InputError(f"pose must be a ptn.Similarity; got {type(pose).__name__}")
    rotation = pose.rotation
    if not isinstance(rotation, Tensor):  # in float64, before it is rounded to float32
        rotation = math.remainder(rotation, 2 * math.pi) if math.isfinite(rotation) else math.nan
    angle = per_image(rotation, "rotation", images, dtype)
    factor = per_image(pose.scale, "scale", images, dtype)
    shift = per_image(pose.shift_px, "shift_px", images, dtype, 2)
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


def per_image(
    value: Tensor | float | tuple[float, float], name: str, images: Tensor, dtype: torch.dtype, *shape: int
) -> Tensor:
    """Return `value`, one for all or one for each of `images`, as a tensor (N, *shape)."""
    count = images.shape[0]
    if isinstance(value, tuple):
        if len(shape) != 1 or len(value) != shape[0]:
            raise InputError(f"{name} must be {'a pair of numbers' if shape else 'a number'}; got {value!r}")
        x, y = (torch.full((count,), number, dtype=dtype, device=images.device) for number in value)
        return torch.stack((x, y), dim=1)
    if not isinstance(value, Tensor):
        if shape:
            raise InputError(f"{name} must be a pair of numbers or have shape {(count, *shape)}; got {value!r}")
        return torch.full((count,), value, dtype=dtype, device=images.device)
    if value.shape not in (shape, (count, *shape)):
        raise InputError(f"{name} must be a number or have shape {(count, *shape)}; got {tuple(value.shape)}")
    return value.to(dtype=dtype, device=images.device).expand(count, *shape)
