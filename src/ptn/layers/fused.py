"""A chain of convolution blocks on a GPU as few kernels: the blocks' own numbers, to rounding, in less time.

Two operators of `torch.library`, `ptn::block_chain` and its gradient, which `torch.compile` takes as they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import triton
from torch import Tensor, nn

from . import kernels
from .blocks import ConvBlock, WrapConv2d

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


def can_fuse(blocks: Iterable[nn.Module], x: Tensor) -> bool:
    """Whether `run_blocks` can stand for calling the blocks one after the other on `x`."""
    if not x.is_cuda or x.dim() != 4 or x.dtype == torch.float64 or x.shape[0] == 0:
        return False
    if torch.compiler.is_exporting() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    chain = list(blocks)
    if not all(isinstance(block, ConvBlock) and _is_plain(block) for block in chain):
        return False
    widest = max(block.norm.num_features for block in chain if isinstance(block, ConvBlock))
    same = len({(block.norm.momentum, block.norm.training) for block in chain if isinstance(block, ConvBlock)}) == 1
    return same and x.shape[0] * x.shape[2] * x.shape[3] * widest < 2**31  # the kernels' indices


def _is_plain(block: ConvBlock) -> bool:
    conv, norm = block.conv, block.norm
    return (
        type(norm) is nn.BatchNorm2d
        and type(conv) in (nn.Conv2d, WrapConv2d)
        and conv.bias is not None
        and norm.momentum is not None
        and (norm.training or not torch.is_grad_enabled())
    )


def run_blocks(blocks: Sequence[ConvBlock], x: Tensor) -> Tensor:
    """The blocks one after the other: (N, C, H, W) -> (N, C', H', W'), in memory channels last.

    Like them it teaches batch norm's running averages. Under autocast it computes in autocast's precision.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    convs = [cast(nn.Conv2d, block.conv) for block in blocks]
    norms = [cast(nn.BatchNorm2d, block.norm) for block in blocks]
    training = norms[0].training
    z, *rest = block_chain(
        x,
        [conv.weight for conv in convs],
        [cast(Tensor, conv.bias) for conv in convs],
        [norm.weight for norm in norms],
        [norm.bias for norm in norms],
        [] if training else [_running_norm(conv, norm) for conv, norm in zip(convs, norms, strict=True)],
        [norm.eps for norm in norms],
        [step for conv in convs for step in conv.stride],
        [isinstance(conv, WrapConv2d) for conv in convs],
        "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
    )
    if training:
        _learn(norms, rest[len(norms) :])
    return z


def _running_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    mean = cast(Tensor, norm.running_mean) - cast(Tensor, conv.bias)
    inverse = torch.rsqrt(cast(Tensor, norm.running_var) + norm.eps)
    gain = norm.weight * inverse
    return torch.stack((gain, norm.bias - mean * gain, mean, inverse))


@torch.no_grad()
def _learn(norms: Sequence[nn.BatchNorm2d], found: Sequence[Tensor]) -> None:
    """Move the running averages towards what was found in the batch."""
    averages = [cast(Tensor, average) for norm in norms for average in (norm.running_mean, norm.running_var)]
    momentum = cast(float, norms[0].momentum)
    torch._foreach_lerp_(averages, [value for norm in found for value in (norm[4], norm[5])], momentum)
    torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in norms], 1)


@dataclass(frozen=True)
class _Layer:
    """One convolution of the chain: its weights and numbers, and the sizes of the maps before and after it."""

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


def _layers(
    x: Tensor, weights: Sequence[Tensor], strides: Sequence[int], wraps: Sequence[bool], precision: str
) -> list[_Layer]:
    size = (x.shape[2], x.shape[3])
    layers = []
    for i, (weight, wrap) in enumerate(zip(weights, wraps, strict=True)):
        layers.append(_Layer(weight, (strides[2 * i], strides[2 * i + 1]), wrap, size, precision))
        size = layers[-1].out_size
    return layers


@torch.library.custom_op("ptn::block_chain", mutates_args=())
def block_chain(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Tensor]:
    """The last block's output; then every convolution's own (N, H, W, C); then every norm (6, C).

    `running` are norms to use instead of the batch's.
    """
    layers = _layers(x, weights, strides, wraps, precision)
    maps: list[Tensor] = []
    norms: list[Tensor] = []
    for i, layer in enumerate(layers):
        before = norms[-1] if norms else None
        y, sums, pixels = _convolve(layer, maps[-1] if maps else _channels_inside(x), before, summed=not running)
        maps.append(y)
        if running:
            norms.append(running[i])
        else:
            norms.append(_normalise(y, sums, pixels, biases[i], scales[i], offsets[i], eps[i]))
    z = torch.empty_like(maps[-1])
    kernels.activate[(triton.cdiv(z.numel(), _ELEMENTS),)](
        maps[-1], norms[-1], z, z.numel(), C=z.shape[-1], BLOCK=_ELEMENTS
    )
    return [z.permute(0, 3, 1, 2), *maps, *([] if running else norms)]


@block_chain.register_fake
def _(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Tensor]:
    layers = _layers(x, weights, strides, wraps, precision)
    maps = [x.new_empty(x.shape[0], *layer.out_size, layer.weight.shape[0]) for layer in layers]
    norms = [] if running else [scale.new_empty(6, scale.shape[0]) for scale in scales]
    return [torch.empty_like(maps[-1]).permute(0, 3, 1, 2), *maps, *norms]


@torch.library.custom_op("ptn::block_chain_backward", mutates_args=())
def block_chain_backward(
    dz: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
    input_too: bool,
) -> list[Tensor]:
    """The gradients of all weights; of all norms as (4, C), scale and offset the last two; and that of `x`."""
    layers = _layers(x, weights, strides, wraps, precision)
    inputs = [_channels_inside(x), *maps]
    befores = [None, *norms]
    du, sums = _activate_backward(_channels_inside(dz.to(x.dtype)), maps[-1], norms[-1])
    weight_grads: list[Tensor] = []
    norm_grads: list[Tensor] = []
    for i in reversed(range(len(layers))):
        slopes = _normalise_backward(sums, norms[i], du)
        after = du, maps[i], norms[i], slopes
        weight_grads.append(_convolve_backward_weight(layers[i], inputs[i], befores[i], *after))
        norm_grads.append(slopes)
        if i > 0 or input_too:
            du, sums = _convolve_backward_input(layers[i], inputs[i], befores[i], *after)
    return [*reversed(weight_grads), *reversed(norm_grads), *([du.permute(0, 3, 1, 2)] if input_too else [])]


@block_chain_backward.register_fake
def _(
    dz: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
    input_too: bool,
) -> list[Tensor]:
    weight_grads = [
        norm.new_empty(w.shape[0], w.shape[2], w.shape[3], w.shape[1]).permute(0, 3, 1, 2)
        for w, norm in zip(weights, norms, strict=True)
    ]
    slopes = [norm.new_empty(4, norm.shape[1]) for norm in norms]
    inputs = [torch.empty_like(_channels_inside(x)).permute(0, 3, 1, 2)] if input_too else []
    return [*weight_grads, *slopes, *inputs]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *_, strides, wraps, precision = inputs
    ctx.depth = len(weights)
    ctx.numbers = strides, wraps, precision
    ctx.save_for_backward(x, *weights, *output[1:])


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    depth = ctx.depth
    x, *saved = ctx.saved_tensors
    weights, maps, norms = saved[:depth], saved[depth : 2 * depth], saved[2 * depth :]
    input_too = ctx.needs_input_grad[0]
    found = block_chain_backward(grads[0], x, weights, maps, norms, *ctx.numbers, input_too)
    slopes = found[depth : 2 * depth]
    scales, offsets = [slope[2] for slope in slopes], [slope[3] for slope in slopes]
    nothing = [None] * depth
    return (found[-1] if input_too else None, found[:depth], nothing, scales, offsets, [], *([None] * 4))


block_chain.register_autograd(_backward, setup_context=_remember)


def _convolve(layer: _Layer, x: Tensor, before: Tensor | None, *, summed: bool) -> tuple[Tensor, Tensor, int]:
    """The convolution's output, the sums that batch norm needs, and how many pixels each sum is over."""
    channels, in_channels, _, columns = layer.weight.shape
    tile = forward_tile(columns * in_channels, channels)
    y = x.new_empty(x.shape[0], *layer.out_size, channels)
    sums = _sums(y, tile.pixels)
    kernels.conv_forward[(len(sums),)](
        x, sums if before is None else before, layer.rows, y, sums, _pixels(y), *layer.sizes,
        **layer.constants, **tile.options, NORMALISE=before is not None, SUMS=summed, BLOCK_N=_width(channels),
    )  # fmt: skip
    return y, sums, tile.pixels


def _normalise(
    y: Tensor, sums: Tensor, pixels: int, bias: Tensor, scale: Tensor, offset: Tensor, eps: float
) -> Tensor:
    channels = y.shape[-1]
    norm = sums.new_empty(6, channels)
    kernels.norm_forward[(channels,)](
        sums, bias, scale, offset, norm, _pixels(y), len(sums), eps,
        C=channels, BLOCK_M=pixels, BLOCK_P=triton.next_power_of_2(len(sums)),
    )  # fmt: skip
    return norm


def _activate_backward(dz: Tensor, y: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    du, sums = torch.empty_like(y), _sums(y, _PIXELS)
    kernels.activate_backward[(len(sums),)](
        dz, y, norm, du, sums, _pixels(y), C=y.shape[-1], BLOCK_M=_PIXELS, BLOCK_N=_width(y.shape[-1])
    )
    return du, sums


def _normalise_backward(sums: Tensor, norm: Tensor, du: Tensor) -> Tensor:
    channels = du.shape[-1]
    slopes = sums.new_empty(4, channels)
    kernels.norm_backward[(channels,)](
        sums, norm, slopes, _pixels(du), len(sums), C=channels, BLOCK_P=triton.next_power_of_2(len(sums))
    )
    return slopes


def _convolve_backward_input(
    layer: _Layer, x: Tensor, before: Tensor | None, du: Tensor, y: Tensor, norm: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor]:
    channels, in_channels, _, columns = layer.weight.shape
    tile = forward_tile(columns * channels, in_channels)
    dx, sums = torch.empty_like(x), _sums(x, tile.pixels)
    kernels.conv_backward_input[(len(sums),)](
        du, y, norm, slopes, layer.rows, x, norm if before is None else before, dx, sums, _pixels(x), *layer.sizes,
        **layer.constants, **tile.options, TURNS=layer.turns, CHAINED=before is not None,
        BLOCK_N=_width(in_channels),
    )  # fmt: skip
    return dx, sums


def _convolve_backward_weight(
    layer: _Layer, x: Tensor, before: Tensor | None, du: Tensor, y: Tensor, norm: Tensor, slopes: Tensor
) -> Tensor:
    channels, in_channels, rows, columns = layer.weight.shape
    tile = weight_tile(columns * in_channels, channels)
    steps = triton.cdiv(_pixels(du), tile.shares * tile.pixels)
    shares = triton.cdiv(_pixels(du), tile.pixels * steps)
    partial = slopes.new_empty(shares, channels, rows, columns * in_channels)
    kernels.conv_backward_weight[(shares, rows, triton.cdiv(columns * in_channels, tile.depth))](
        x, norm if before is None else before, du, y, norm, slopes, partial, _pixels(du), *layer.sizes,
        **layer.constants, **tile.options, NORMALISE=before is not None, STEPS=steps, BLOCK_N=_width(channels),
    )  # fmt: skip
    return partial.sum(dim=0).view(channels, rows, columns, in_channels).permute(0, 3, 1, 2)


def _channels_inside(x: Tensor) -> Tensor:
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
