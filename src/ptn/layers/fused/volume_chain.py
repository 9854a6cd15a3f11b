"""`ptn::volume_chain`: what `ptn::block_chain` is to images, for volumes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .launch import Relu, follow_norm, normalise, spread_gradient
from .volume_launch import (
    activate,
    channels_first,
    channels_inside,
    convolve,
    convolve_backward,
    flat,
    make_layers,
    pass_relu,
    skip,
    skip_gradient,
    sum_channels,
    unwrap,
)


@torch.library.custom_op("ptn::volume_chain", mutates_args=())
def volume_chain(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    joins: Sequence[bool],
    strides: Sequence[int],
    wraps: Sequence[bool],
) -> list[Tensor]:
    """The last output; and in training every convolution's own (N, A, R, Z, C), every norm (5, C), and every
    convolution's input, wrapped. The arguments are those of `block_chain`."""
    layers = make_layers(x.shape[2:], x.dtype, weights, strides, wraps)
    inputs = [activate(channels_inside(x), None, layers[0].rows)]
    maps: list[Tensor] = []
    norms: list[Tensor] = []
    for i, layer in enumerate(layers):
        y = convolve(layer, inputs[i])
        norm = running[i] if running else normalise(y, sum_channels(y), scales[i], offsets[i], eps[i])
        shortcut = skip(layers[i - 1], inputs[i - 1]) if joins[i] else None
        inputs.append(activate(y, norm, layers[i + 1].rows if i + 1 < len(layers) else 0, shortcut))
        maps.append(y)
        norms.append(norm)
    last = channels_first(inputs.pop())
    return [last] if running else [last, *maps, *norms, *inputs]


@volume_chain.register_fake
def _(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    joins: Sequence[bool],
    strides: Sequence[int],
    wraps: Sequence[bool],
) -> list[Tensor]:
    layers = make_layers(x.shape[2:], x.dtype, weights, strides, wraps)
    maps = [x.new_empty(x.shape[0], *layer.out_size, layer.channels) for layer in layers]
    last = channels_first(torch.empty_like(maps[-1]))
    if running:
        return [last]
    norms = [scale.new_empty(5, scale.shape[0], dtype=torch.float32) for scale in scales]
    inputs = [x.new_empty(x.shape[0], *layer.padded_size, layer.in_channels) for layer in layers]
    return [last, *maps, *norms, *inputs]


@torch.library.custom_op("ptn::volume_chain_backward", mutates_args=())
def volume_chain_backward(
    dz: Tensor,
    last: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    inputs: Sequence[Tensor],
    size: Sequence[int],
    joins: Sequence[bool],
    strides: Sequence[int],
    wraps: Sequence[bool],
    input_too: bool,
) -> list[Tensor]:
    """The gradients of all weights; of all norms as (4, C), scale and offset the last two; and of the input."""
    layers = make_layers(size, last.dtype, weights, strides, wraps)
    outputs = [*inputs[1:], channels_inside(last)]
    rows = [*(layer.rows for layer in layers[1:]), 0]
    dx: Tensor | None = channels_inside(dz.to(last.dtype))
    weight_grads: list[Tensor] = []
    norm_grads: list[Tensor] = []
    around: Tensor | None = None
    block_end: Tensor | None = None
    for i in reversed(range(len(layers))):
        assert dx is not None
        relu = Relu(maps[i], norms[i], outputs[i] if joins[i] else None)
        du, sums = pass_relu(dx, rows[i], relu, around)
        slopes = follow_norm(norms[i], du, sums)
        dy = spread_gradient(flat(du), flat(maps[i]), norms[i], slopes).view_as(du)
        dweight, dx = convolve_backward(layers[i], dy, inputs[i], input_too=i > 0 or input_too)
        # a shortcut leads around two convolutions: from a block's end to the end of the one before
        around = None if block_end is None else skip_gradient(layers[i], block_end)
        block_end = du if joins[i] else None
        weight_grads.append(dweight.to(weights[i].dtype))
        norm_grads.append(slopes)
    found = [*reversed(weight_grads), *reversed(norm_grads)]
    if input_too:
        assert dx is not None
        dx = unwrap(dx, layers[0].rows)
        found.append(channels_first(dx if around is None else dx + around))
    return found


@volume_chain_backward.register_fake
def _(
    dz: Tensor,
    last: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    inputs: Sequence[Tensor],
    size: Sequence[int],
    joins: Sequence[bool],
    strides: Sequence[int],
    wraps: Sequence[bool],
    input_too: bool,
) -> list[Tensor]:
    grads = [torch.empty_like(weight, memory_format=torch.channels_last_3d) for weight in weights]
    slopes = [norm.new_empty(4, norm.shape[1]) for norm in norms]
    first = channels_first(last.new_empty(last.shape[0], *size, weights[0].shape[1]))
    return [*grads, *slopes, *([first] if input_too else [])]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *_, joins, strides, wraps = inputs
    ctx.depth = len(weights)
    ctx.numbers = list(x.shape[2:]), joins, strides, wraps
    ctx.save_for_backward(*weights, *output)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    depth = ctx.depth
    weights, (last, *saved) = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
    maps, norms, inputs = (saved[i * depth :][:depth] for i in range(3))
    input_too = ctx.needs_input_grad[0]
    found = volume_chain_backward(grads[0], last, weights, maps, norms, inputs, *ctx.numbers, input_too)
    slopes = found[depth : 2 * depth]
    scales, offsets = [slope[2] for slope in slopes], [slope[3] for slope in slopes]
    return (found[-1] if input_too else None, found[:depth], scales, offsets, [], *([None] * 4))


volume_chain.register_autograd(_backward, setup_context=_remember)
