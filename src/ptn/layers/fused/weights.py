"""The gradients of all weights of a chain: one launch a convolution, and one that sums them all up."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from . import kernels
from .layer import Layer, Tile, weight_tile, width_of

# weights that one program sums up, and shares that it adds at once
_SUMMED = 64
_SHARES_AT_ONCE = 32


class WeightGradients:
    """The gradients of all convolutions' weights, each by several programs that share the pixels, then summed."""

    def __init__(self, layers: Sequence[Layer], count: int, device: torch.device) -> None:
        self.layers = layers
        self.parts = tuple(_part(layer, count) for layer in layers)
        self.partial = torch.empty(
            sum(part.shares * part.size for part in self.parts), dtype=torch.float32, device=device
        )

    def add(self, index: int, dy: Tensor, x: Tensor) -> None:
        """Launch the programs of one layer."""
        layer, part = self.layers[index], self.parts[index]
        begin = sum(before.shares * before.size for before in self.parts[:index])
        padding = layer.gradient_padding
        kernels.conv_backward_weight[part.programs](
            x, dy, self.partial[begin:], part.pixels,
            **layer.constants, H=x.shape[1], W=x.shape[2], DPY=padding[0], DPX=padding[1], **part.tile.options,
            STEPS=part.steps, BLOCK_N=width_of(layer.channels),
        )  # fmt: skip

    def sum(self) -> Tensor:
        """All gradients one after the other, each beginning at the place that `places` says."""
        table = _sum_table(self.parts, self.partial.device)
        total = self.partial.new_empty(len(table) * _SUMMED)
        kernels.sum_shares[(len(table),)](
            self.partial, table, total,
            SHARES=max(part.shares for part in self.parts), BLOCK_S=_SHARES_AT_ONCE, BLOCK=_SUMMED,
        )  # fmt: skip
        return total


class _Part(NamedTuple):
    """A layer's share of the work of `WeightGradients`: `shares` times `size` values."""

    size: int
    shares: int
    steps: int
    pixels: int
    programs: tuple[int, int, int]
    tile: Tile


def _part(layer: Layer, count: int) -> _Part:
    rows, columns = layer.kernel
    products = columns * layer.in_channels
    pixels = count * layer.out_size[0] * layer.out_size[1]
    tile = weight_tile(products, layer.channels, pixels, layer.weight.dtype)
    steps = triton.cdiv(pixels, tile.shares * tile.pixels)
    shares = triton.cdiv(pixels, tile.pixels * steps)
    programs = (shares, rows, triton.cdiv(products, tile.depth))
    return _Part(layer.channels * rows * products, shares, steps, pixels, programs, tile)


@lru_cache(maxsize=256)
def _sum_table(parts: tuple[_Part, ...], device: torch.device) -> Tensor:
    """What each program of `sum_shares` does. Kept, because a CUDA graph cannot be captured while it is copied."""
    rows = []
    begin = 0
    for part in parts:
        for first in range(0, part.size, _SUMMED):
            rows.append((begin + first, min(_SUMMED, part.size - first), part.size, part.shares))
        begin += part.size * part.shares
    return torch.tensor(rows, dtype=torch.int32, device=device)


def places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where the gradient of each of so many weights begins in `WeightGradients.sum`, and the length of all."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + triton.cdiv(size, _SUMMED) * _SUMMED)
    return ends[:-1], ends[-1]
