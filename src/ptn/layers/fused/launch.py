"""Launching the kernels: tensors and numbers in, tensors out, each cut up as suits its size."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from . import kernels
from .layer import Layer, conv_tile, width_of

# elements of one program of the kernels that touch each only once
_ELEMENTS = 2048


class Relu(NamedTuple):
    """The ReLU that a gradient has to pass: over norm(y), or over that and a shortcut, with its output `joined`."""

    y: Tensor
    norm: Tensor
    joined: Tensor | None = None


class Sums(NamedTuple):
    """Two sums per channel by each program: (2, C, programs)."""

    values: Tensor
    pixels: int
    """How many pixels a program went over."""


def in_rows(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights (C', C, KH, KW) in memory as (C', KH, KW, C), all in one go where they must be converted."""
    rows = [weight.permute(0, 2, 3, 1) for weight in weights]
    if all(row.dtype == dtype and row.is_contiguous() for row in rows):
        return rows
    converted = [torch.empty(row.shape, dtype=dtype, device=row.device) for row in rows]
    torch._foreach_copy_(converted, rows)
    return converted


def pad_input(x: Tensor, layer: Layer) -> Tensor:
    """The chain's input (N, H, W, C), padded for its first convolution."""
    return apply_norm(x, None, layer.padding, layer.wrap)


def activate(y: Tensor, norm: Tensor, following: Layer | None) -> Tensor:
    """The ReLU of norm(y), padded for the `following` convolution."""
    return apply_norm(y, norm, *_padding_for(following))


def join(y: Tensor, norm: Tensor, x: Tensor, first: Layer, following: Layer | None) -> Tensor:
    """The ReLU of norm(y) and a shortcut from `x`, which the block's `first` convolution read."""
    shortcut = {
        "CX": first.in_channels,
        "HX": first.size[0],
        "WX": first.size[1],
        "STRIDE": first.stride[0],
        "PYX": first.padding[0],
        "PXX": first.padding[1],
    }
    return apply_norm(y, norm, *_padding_for(following), x, shortcut)


_NO_SHORTCUT = {"CX": 0, "HX": 1, "WX": 1, "STRIDE": 1, "PYX": 0, "PXX": 0}


def apply_norm(
    y: Tensor,
    norm: Tensor | None,
    padding: tuple[int, int] = (0, 0),
    wrap: bool = False,
    x: Tensor | None = None,
    shortcut: dict[str, int] = _NO_SHORTCUT,
) -> Tensor:
    """Maps (N, H, W, C) padded; with a `norm`, the ReLU of norm(y), or of that and a shortcut from `x`."""
    z = _padded(y, padding)
    kernels.apply_norm[_tiles(z)](
        y, y if norm is None else norm, y if x is None else x, z, _pixels(z),
        **_shape(y, padding), WRAP=wrap, NORMALISE=norm is not None, **shortcut, **_tile(z),
    )  # fmt: skip
    return z


def _padding_for(following: Layer | None) -> tuple[tuple[int, int], bool]:
    return (following.padding, following.wrap) if following else ((0, 0), False)


def convolve(layer: Layer, x: Tensor, *, summed: bool) -> tuple[Tensor, Sums]:
    """The convolution of an input that is padded for it, and the sums that batch norm needs."""
    y = x.new_empty(x.shape[0], *layer.out_size, layer.channels)
    tile = conv_tile(layer.kernel[1] * layer.in_channels, layer.channels, _pixels(y), y.dtype)
    programs = triton.cdiv(_pixels(y), tile.pixels)
    sums = _sums(y, programs)
    kernels.conv_forward[(programs,)](
        x, layer.weight, y, sums, _pixels(y), **layer.constants, H=x.shape[1], W=x.shape[2],
        **tile.options, SUMS=summed, BLOCK_N=width_of(layer.channels),
    )  # fmt: skip
    return y, Sums(sums, tile.pixels)


def normalise(y: Tensor, sums: Sums, scale: Tensor, offset: Tensor, eps: float) -> Tensor:
    """Batch norm of a convolution's output, from its sums."""
    channels, programs = sums.values.shape[1:]
    norm = sums.values.new_empty(5, channels)
    kernels.norm_forward[(channels,)](
        sums.values, scale, offset, norm, _pixels(y), programs, eps,
        C=channels, BLOCK_M=sums.pixels, BLOCK_P=triton.next_power_of_2(programs),
    )  # fmt: skip
    return norm


def pass_relu(dz: Tensor, relu: Relu) -> tuple[Tensor, Tensor]:
    """The gradient before the chain's last ReLU, and the sums that batch norm needs."""
    y, norm, joined = relu
    du, tile = torch.empty_like(y), _tile(y)
    sums = _sums(y, triton.cdiv(_pixels(y), tile["BLOCK_M"]))
    kernels.activate_backward[_tiles(y)](
        dz, y if joined is None else joined, y, norm, du, sums, _pixels(y),
        C=y.shape[-1], JOINED=joined is not None, **tile,
    )  # fmt: skip
    return du, sums


def follow_norm(norm: Tensor, du: Tensor, sums: Tensor) -> Tensor:
    """The slopes (4, C) of batch norm: those of `spread`, and the gradients of scale and offset."""
    _, channels, programs = sums.shape
    slopes = sums.new_empty(4, channels)
    kernels.norm_backward[(channels,)](
        sums, norm, slopes, _pixels(du), programs, C=channels, BLOCK_P=triton.next_power_of_2(programs)
    )
    return slopes


def spread(layer: Layer, du: Tensor, y: Tensor, norm: Tensor, slopes: Tensor) -> Tensor:
    """The gradient of the convolution's output y from that of its norm's, padded for `input_gradient`."""
    return spread_gradient(du, y, norm, slopes, layer.gradient_padding, layer.wrap and not layer.turns)


def spread_gradient(
    du: Tensor, y: Tensor, norm: Tensor, slopes: Tensor, padding: tuple[int, int] = (0, 0), wrap: bool = False
) -> Tensor:
    """The gradient of maps y (N, H, W, C) from that of norm(y), padded."""
    dy = _padded(y, padding)
    kernels.spread_gradient[_tiles(dy)](
        du, y, norm, slopes, dy, _pixels(dy), **_shape(y, padding), WRAP=wrap, **_tile(dy)
    )
    return dy


def input_gradient(
    layer: Layer, dy: Tensor, x: Tensor, *, relu: Relu | None = None, shortcut: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of a convolution's input, before the ReLU that made it, and the sums that its norm needs.

    `shortcut` is the gradient that comes around the convolution, from the end of the residual block it begins.
    """
    places = layer.stride[0] * layer.stride[1]
    pixels = dy.shape[0] * layer.out_size[0] * layer.out_size[1]
    tile = conv_tile(layer.channels, layer.in_channels, pixels * places, dy.dtype)
    programs = triton.cdiv(pixels, tile.pixels)
    dx = dy.new_empty(dy.shape[0], *layer.size, layer.in_channels)
    sums = _sums(dx, programs * places)
    padding, gradient_padding = layer.padding, layer.gradient_padding
    kernels.conv_backward_input[(programs, places)](
        dy, layer.weight, dy if shortcut is None else shortcut,
        x, relu.y if relu else x, relu.norm if relu else sums, dx, sums, pixels,
        **layer.constants, H=layer.size[0], W=layer.size[1], PY=padding[0], PX=padding[1],
        DPY=gradient_padding[0], DPX=gradient_padding[1], TURNS=3 if layer.turns else 1, **tile.options,
        SHORTCUT=0 if shortcut is None else shortcut.shape[-1],
        CHAINED=relu is not None, JOINED=relu is not None and relu.joined is not None,
        BLOCK_N=width_of(layer.in_channels),
    )  # fmt: skip
    return dx, sums


def channels_inside(x: Tensor) -> Tensor:
    """(N, C, H, W) as a contiguous (N, H, W, C)."""
    return x.permute(0, 2, 3, 1).contiguous()


def _pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[-1]


def _padded(maps: Tensor, padding: tuple[int, int]) -> Tensor:
    count, height, width, channels = maps.shape
    return maps.new_empty(count, height + 2 * padding[0], width + 2 * padding[1], channels)


def _shape(maps: Tensor, padding: tuple[int, int]) -> dict[str, int]:
    _, height, width, channels = maps.shape
    return {"C": channels, "H": height, "W": width, "PY": padding[0], "PX": padding[1]}


def _tile(maps: Tensor) -> dict[str, int]:
    width = width_of(maps.shape[-1], least=1)
    return {"BLOCK_M": max(1, _ELEMENTS // width), "BLOCK_N": width}


def _tiles(maps: Tensor) -> tuple[int]:
    return (triton.cdiv(_pixels(maps), _tile(maps)["BLOCK_M"]),)


def _sums(maps: Tensor, programs: int) -> Tensor:
    """Room for two sums of each channel of `maps` by every program."""
    return maps.new_empty(2, maps.shape[-1], programs, dtype=torch.float32)
