"""Sampling many images on a CPU a few at a time, so that pixels and points are still in its cache when used."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .interpolate import Mode, PaddingMode, interpolate_at

Offsets = Callable[[slice], Tensor]
"""The points of a slice of the images relative to their origins: (2, h, w), or (n, 2, h, w)."""

# more than a core's own cache holds: in smaller pieces threads would wait for each other more often
_CACHE_BYTES = 9 * 2**18
_MOST_CHANNELS = 4
_FEWEST_PIECES = 4
# how torch numbers them
_INTERPOLATIONS = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1}


def piece_length(images: Tensor, size: tuple[int, int], dtype: torch.dtype) -> int:
    """How many images to sample at a time at h × w points each; all of them where pieces would not pay.

    They pay for images, not for feature maps, whose many channels take longer to copy than their points to read;
    and not for a few images. Each thread has one image at least, however large.
    """
    if images.shape[1] > _MOST_CHANNELS:
        return len(images)
    height, width = size
    fitting = max(1, _CACHE_BYTES // ((images.shape[1:].numel() + 2 * height * width) * dtype.itemsize))
    pieces = math.ceil(len(images) / (fitting * torch.get_num_threads()))
    return len(images) if pieces < _FEWEST_PIECES else math.ceil(len(images) / pieces)


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
        mode: Mode,
        padding_mode: PaddingMode,
    ) -> Tensor:
        ctx.save_for_backward(images, origin)
        ctx.offsets, ctx.length, ctx.how = offsets, length, (mode, padding_mode)
        sampled = images.new_empty(*images.shape[:2], *size)
        pixels = origin.new_empty(length, *images.shape[1:])
        points = origin.new_empty(length, 2, *size)
        for part in _parts(len(images), length):
            sampled[part] = interpolate_at(
                _fetch(images[part], pixels),
                _place(offsets(part), origin[part], points),
                mode=mode,
                padding_mode=padding_mode,
            )
        return sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        images, origin = ctx.saved_tensors
        mode, padding_mode = ctx.how
        wanted = ctx.needs_input_grad[:2]
        to_images = torch.empty_like(images) if wanted[0] else None
        to_origin = torch.empty_like(origin) if wanted[1] else None
        slopes = origin.new_empty(ctx.length, *slope.shape[1:])
        pixels = origin.new_empty(ctx.length, *images.shape[1:])
        points = origin.new_empty(ctx.length, 2, *slope.shape[2:])
        for part in _parts(len(images), ctx.length):
            to_pixels, to_points = torch.ops.aten.grid_sampler_2d_backward(
                _fetch(slope[part], slopes),
                _fetch(images[part], pixels),
                _place(ctx.offsets(part), origin[part], points).permute(0, 2, 3, 1),
                _INTERPOLATIONS[mode],
                _PADDINGS[padding_mode],
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


def _fetch(values: Tensor, room: Tensor) -> Tensor:
    """A copy in `room`: what memory has in order arrives sooner than what is asked for here and there."""
    return room[: len(values)].copy_(values)


def _place(offsets: Tensor, origin: Tensor, room: Tensor) -> Tensor:
    """The points (n, 2, h, w) at `offsets` from each origin (n, 2), in `room`."""
    return torch.add(offsets, origin[:, :, None, None], out=room[: len(origin)])
