"""A convolution of a chain: its numbers, and how its work is cut up."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor

# pixels from which larger tiles still fill a GPU
_MANY = 100_000


@dataclass(frozen=True)
class Layer:
    """A convolution: its weights (C', KH, KW, C) and numbers, and the sizes of the maps before and after it."""

    weight: Tensor
    stride: tuple[int, int]
    wrap: bool
    size: tuple[int, int]
    precision: str

    @property
    def channels(self) -> int:
        return self.weight.shape[0]

    @property
    def in_channels(self) -> int:
        return self.weight.shape[3]

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weight.shape[1], self.weight.shape[2]

    @property
    def out_size(self) -> tuple[int, int]:
        return -(-self.size[0] // self.stride[0]), -(-self.size[1] // self.stride[1])

    @property
    def padding(self) -> tuple[int, int]:
        """What the convolution's input is padded by."""
        return self.kernel[0] // 2, self.kernel[1] // 2

    @property
    def turns(self) -> bool:
        """Whether wrapping does not fit the stride: one row of the output may then lie at several turns."""
        return self.wrap and self.size[0] % self.stride[0] > 0

    @property
    def gradient_padding(self) -> tuple[int, int]:
        """What the gradient of the convolution's output is padded by."""
        return -(-self.padding[0] // self.stride[0]), -(-self.padding[1] // self.stride[1])

    @property
    def constants(self) -> dict[str, Any]:
        """What all its kernels are compiled for."""
        return {
            "CIN": self.in_channels,
            "COUT": self.channels,
            "HO": self.out_size[0],
            "WO": self.out_size[1],
            "KH": self.kernel[0],
            "KW": self.kernel[1],
            "SY": self.stride[0],
            "SX": self.stride[1],
            "PRECISION": self.precision,
        }

    @property
    def padded_size(self) -> tuple[int, int]:
        return self.size[0] + 2 * self.padding[0], self.size[1] + 2 * self.padding[1]


@dataclass(frozen=True)
class Tile:
    """How a convolution is cut up: the pixels of a program, or of one of its steps; products added up at once;
    warps; stages of the pipeline; and for the gradient of the weights, how many programs share the pixels."""

    pixels: int
    depth: int
    warps: int = 4
    stages: int = 3
    shares: int = 1

    @property
    def options(self) -> dict[str, int]:
        return {"BLOCK_M": self.pixels, "BLOCK_K": self.depth, "num_warps": self.warps, "num_stages": self.stages}


def conv_tile(products: int, channels: int, pixels: int, dtype: torch.dtype) -> Tile:
    """The tile for convolutions that sum runs of `products` into `channels` of so many pixels, either way."""
    depth = min((16, 32, 64), key=lambda tile: triton.cdiv(products, tile) * (tile + 8))
    if channels > 64:
        return _fit(Tile(64, depth), dtype)
    stages = 2 if products <= depth == 64 and channels <= 32 else 3
    return _fit(Tile(256 if channels <= 16 and pixels >= _MANY else 128, depth, stages=stages), dtype)


def weight_tile(products: int, channels: int, pixels: int, dtype: torch.dtype) -> Tile:
    """The tile for the gradient of a row of weights, `products` × `channels`, over so many pixels.

    What the programs that share the pixels find has to be added up, so there are no more than a fleet needs: a
    single run on small images leaves part of a GPU idle.
    """
    depth = min(128 if channels <= 32 else 64, width_of(products))
    shares = triton.next_power_of_2(int(pixels**0.5 / 7) or 1)
    return _fit(Tile(128 if depth == 16 else 64, depth, shares=shares), dtype)


def _fit(tile: Tile, dtype: torch.dtype) -> Tile:
    """A tile made for two bytes a value, for `dtype`: twice the bytes, half the pixels."""
    return tile if dtype.itemsize == 2 else replace(tile, pixels=max(32, tile.pixels // 2), stages=2)


def width_of(channels: int, least: int = 16) -> int:
    """The tile that holds all channels."""
    return max(least, triton.next_power_of_2(channels))
