"""Sampling many images on a CPU a few at a time, so that pixels and points are still in its cache when used."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .interpolate import Interpolation, Padding, interpolate_at

Offsets = Callable[[slice], Tensor]
"""The points of a slice of the images relative to their origins: (2, h, w), or (n, 2, h, w)."""

# about what a core's second-level cache holds
_CACHE_BYTES = 3 * 2**19
_MOST_CHANNELS = 4
_FEWEST_PIECES = 4
# how torch numbers them
_INTERPOLATIONS = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1}


def piece_length(images: Tensor, size: tuple[int, int], dtype: torch.dtype) -> int:
    """How many images to sample at a time at h × w points each; all of them where pieces would not pay.

    They pay for images, not for feature maps, whose many channels take longer to copy than their points to read;
    and not for a few images, or for those that fill the cache one by one.
    """
    height, width = size
    fitting = _CACHE_BYTES // ((images.shape[1:].numel() + 2 * height * width) * dtype.itemsize)
    length = fitting * torch.get_num_threads()
    if images.shape[1] > _MOST_CHANNELS or not length or len(images) < _FEWEST_PIECES * length:
        return len(images)
    return length


class SampleInPieces(torch.autograd.Function):
    """`images` (N, C, H, W) on a CPU read at origin (N, 2) + offsets, `length` of them at a time: (N, C, h, w).

    Differentiable once, in images and origin. For the gradient the points are made again rather than kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        origin: Tensor,
        offsets: Offsets,
        size: tuple[int, int],
        length: int,
        interpolation: Interpolation,
        padding: Padding,
    ) -> Tensor:
        ctx.save_for_backward(images, origin)
        ctx.offsets, ctx.length, ctx.how = offsets, length, (interpolation, padding)
        sampled = images.new_empty(*images.shape[:2], *size)
        for part in _parts(len(images), length):
            pixels = _fetch(images[part], origin.dtype)
            points = offsets(part) + origin[part, :, None, None]
            sampled[part] = interpolate_at(pixels, points, interpolation=interpolation, padding=padding)
        return sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        images, origin = ctx.saved_tensors
        interpolation, padding = ctx.how
        wanted = ctx.needs_input_grad[:2]
        to_images = torch.empty_like(images) if wanted[0] else None
        to_origin = torch.empty_like(origin) if wanted[1] else None
        for part in _parts(len(images), ctx.length):
            points = ctx.offsets(part) + origin[part, :, None, None]
            to_pixels, to_points = torch.ops.aten.grid_sampler_2d_backward(
                _fetch(slope[part], origin.dtype),
                _fetch(images[part], origin.dtype),
                points.permute(0, 2, 3, 1),
                _INTERPOLATIONS[interpolation],
                _PADDINGS[padding],
                False,
                wanted,
            )
            if to_images is not None:
                to_images[part] = to_pixels
            if to_origin is not None:
                to_origin[part] = to_points.sum(dim=(1, 2))
        return to_images, to_origin, None, None, None, None, None


def _parts(count: int, length: int) -> Iterator[slice]:
    return (slice(start, start + length) for start in range(0, count, length))


def _fetch(values: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy: what memory has in order arrives sooner than what is asked for here and there."""
    return values.to(dtype, copy=True)
