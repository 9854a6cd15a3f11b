"""Launching the kernels: tensors and numbers in, tensors out, each cut up as suits its size."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import kernels

# pixels or elements of one program of the kernels that only touch each once
_PIXELS = 128
_ELEMENTS = 1024


@dataclass(frozen=True)
class Tile:
    """How a convolution is cut up: the pixels of a program, or of one of its steps; products added up at once;
    warps; stages of the pipeline; and for the gradient of the weights, how many programs share the pixels."""

    pixels: int
    depth: int
    warps: int = 4
    stages: int = 2
    shares: int = 1

    @property
    def options(self) -> dict[str, int]:
        return {"BLOCK_M": self.pixels, "BLOCK_K": self.depth, "num_warps": self.warps, "num_stages": self.stages}


def forward_tile(products: int, channels: int) -> Tile:
    """The tile for convolutions that sum `products` per row of the kernel into `channels`, either way."""
    depth = min((64, 32, 16), key=lambda tile: (triton.cdiv(products, tile) * (tile + 8), -tile))
    return Tile(128, depth, warps=8 if channels > 32 else 4)


def weight_tile(products: int, channels: int) -> Tile:
    """The tile for the gradient of a row of weights: `products` × `channels`."""
    depth = min(128 if channels <= 32 else 64, _width(products))
    return Tile(64, depth, warps=8 if depth * channels > 2048 else 4, shares=96)


@dataclass(frozen=True)
class Layer:
    """A convolution: its weights and numbers, and the sizes of the maps before and after it."""

    weight: Tensor
    stride: tuple[int, int]
    wrap: bool
    size: tuple[int, int]
    precision: str

    @property
    def out_size(self) -> tuple[int, int]:
        return -(-self.size[0] // self.stride[0]), -(-self.size[1] // self.stride[1])

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return *self.size, *self.out_size

    @property
    def rows(self) -> Tensor:
        """The weights as a contiguous (C', KH, KW, C)."""
        return self.weight.permute(0, 2, 3, 1).contiguous()

    @property
    def turns(self) -> int:
        """At how many turns of the input's rows one of the output may lie."""
        return 3 if self.wrap and self.size[0] % self.stride[0] else 1

    @property
    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        channels, in_channels, rows, columns = self.weight.shape
        return {
            "CIN": in_channels,
            "COUT": channels,
            "KH": rows,
            "KW": columns,
            "SY": self.stride[0],
            "SX": self.stride[1],
            "PY": rows // 2,
            "PX": columns // 2,
            "WRAP": self.wrap,
            "PRECISION": self.precision,
        }


class Before(NamedTuple):
    """What a convolution reads: an input as it is, or what another wrote with the norm that must be applied."""

    x: Tensor
    norm: Tensor | None = None


class Relu(NamedTuple):
    """The ReLU that a gradient has to pass: over norm(y), or over that and a shortcut, with its output `joined`."""

    y: Tensor
    norm: Tensor
    joined: Tensor | None = None


class After(NamedTuple):
    """What a convolution's gradients come from: its output y, its norm, and the gradient du of the norm's output.

    With `slopes` (4, C) the gradient of y is gain·du − base − slope·y.
    """

    y: Tensor
    norm: Tensor
    du: Tensor
    slopes: Tensor


def convolve(layer: Layer, before: Before, *, summed: bool) -> tuple[Tensor, Tensor, int]:
    """The convolution's output, the sums that batch norm needs, and how many pixels each sum is over."""
    channels, in_channels, _, columns = layer.weight.shape
    x, norm = before
    tile = forward_tile(columns * in_channels, channels)
    y = x.new_empty(x.shape[0], *layer.out_size, channels)
    sums = _sums(y, tile.pixels)
    kernels.conv_forward[(len(sums),)](
        x, sums if norm is None else norm, layer.rows, y, sums, _pixels(y), *layer.sizes,
        **layer.constants, **tile.options, NORMALISE=norm is not None, SUMS=summed, BLOCK_N=_width(channels),
    )  # fmt: skip
    return y, sums, tile.pixels


def normalise(y: Tensor, sums: Tensor, pixels: int, scale: Tensor, offset: Tensor, eps: float) -> Tensor:
    """Batch norm of a convolution's output, from the sums over every `pixels` of its pixels."""
    channels = y.shape[-1]
    norm = sums.new_empty(5, channels)
    kernels.norm_forward[(channels,)](
        sums, scale, offset, norm, _pixels(y), len(sums), eps,
        C=channels, BLOCK_M=pixels, BLOCK_P=triton.next_power_of_2(len(sums)),
    )  # fmt: skip
    return norm


def activate(y: Tensor, norm: Tensor) -> Tensor:
    """The ReLU of norm(y)."""
    z = torch.empty_like(y)
    kernels.activate[(triton.cdiv(z.numel(), _ELEMENTS),)](y, norm, z, z.numel(), C=z.shape[-1], BLOCK=_ELEMENTS)
    return z


def join(y: Tensor, norm: Tensor, x: Tensor, stride: int) -> Tensor:
    """The ReLU of norm(y) and a shortcut from `x`."""
    z = torch.empty_like(y)
    channels = y.shape[-1]
    kernels.join[(triton.cdiv(_pixels(z), _PIXELS),)](
        y, norm, x, z, _pixels(z), x.shape[1], x.shape[2], z.shape[1], z.shape[2],
        CIN=x.shape[-1], C=channels, STRIDE=stride, BLOCK_M=_PIXELS, BLOCK_N=_width(channels),
    )  # fmt: skip
    return z


def pass_relu(dz: Tensor, relu: Relu) -> tuple[Tensor, Tensor]:
    """The gradient before the ReLU, and the sums that batch norm needs."""
    y, norm, joined = relu
    du, sums = torch.empty_like(y), _sums(y, _PIXELS)
    kernels.activate_backward[(len(sums),)](
        dz, y if joined is None else joined, y, norm, du, sums, _pixels(y),
        C=y.shape[-1], JOINED=joined is not None, BLOCK_M=_PIXELS, BLOCK_N=_width(y.shape[-1]),
    )  # fmt: skip
    return du, sums


def follow_norm(y: Tensor, norm: Tensor, du: Tensor, sums: Tensor) -> After:
    """The backward pass of batch norm; the last two of its slopes are the gradients of scale and offset."""
    channels = du.shape[-1]
    slopes = sums.new_empty(4, channels)
    kernels.norm_backward[(channels,)](
        sums, norm, slopes, _pixels(du), len(sums), C=channels, BLOCK_P=triton.next_power_of_2(len(sums))
    )
    return After(y, norm, du, slopes)


def input_gradient(
    layer: Layer, x: Tensor, after: After, *, relu: Relu | None = None, shortcut: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of a convolution's input `x`, before the ReLU that made it, and the sums that its norm needs.

    `shortcut` is the gradient that comes around the convolution, from the end of the residual block it begins.
    """
    channels, in_channels, _, columns = layer.weight.shape
    tile = forward_tile(columns * channels, in_channels)
    dx, sums = torch.empty_like(x), _sums(x, tile.pixels)
    y, norm, du, slopes = after
    kernels.conv_backward_input[(len(sums),)](
        du, y, norm, slopes, layer.rows, du if shortcut is None else shortcut,
        x, relu.y if relu else x, relu.norm if relu else norm, dx, sums, _pixels(x), *layer.sizes,
        **layer.constants, **tile.options, TURNS=layer.turns,
        SHORTCUT=0 if shortcut is None else shortcut.shape[-1],
        CHAINED=relu is not None, JOINED=relu is not None and relu.joined is not None, BLOCK_N=_width(in_channels),
    )  # fmt: skip
    return dx, sums


def weight_gradient(layer: Layer, before: Before, after: After) -> Tensor:
    """The gradient of a convolution's weights, in memory (C', KH, KW, C)."""
    channels, in_channels, rows, columns = layer.weight.shape
    tile = weight_tile(columns * in_channels, channels)
    y, norm, du, slopes = after
    steps = triton.cdiv(_pixels(du), tile.shares * tile.pixels)
    shares = triton.cdiv(_pixels(du), tile.pixels * steps)
    partial = slopes.new_empty(shares, channels, rows, columns * in_channels)
    kernels.conv_backward_weight[(shares, rows, triton.cdiv(columns * in_channels, tile.depth))](
        before.x, norm if before.norm is None else before.norm, du, y, norm, slopes, partial,
        _pixels(du), *layer.sizes,
        **layer.constants, **tile.options, NORMALISE=before.norm is not None, STEPS=steps, BLOCK_N=_width(channels),
    )  # fmt: skip
    return partial.sum(dim=0).view(channels, rows, columns, in_channels).permute(0, 3, 1, 2)


def channels_inside(x: Tensor) -> Tensor:
    """(N, C, H, W) as a contiguous (N, H, W, C)."""
    return x.permute(0, 2, 3, 1).contiguous()


def _pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[-1]


def _sums(maps: Tensor, pixels: int) -> Tensor:
    """Room for two sums of each channel by every program that goes over `pixels` pixels of `maps`."""
    return maps.new_empty(triton.cdiv(_pixels(maps), pixels), 2, maps.shape[-1], dtype=torch.float32)


def _width(channels: int) -> int:
    """The tile that holds all channels."""
    return max(16, triton.next_power_of_2(channels))
