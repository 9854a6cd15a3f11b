"""`ptn::block_chain`: convolutions with batch norm and ReLU, some with a shortcut around; and its gradient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .launch import (
    Relu,
    activate,
    channels_inside,
    convolve,
    follow_norm,
    in_rows,
    input_gradient,
    join,
    normalise,
    pad_input,
    pass_relu,
    spread,
)
from .layer import Layer
from .volume_chain import backward_volumes, forward_volumes
from .volume_launch import VolumeLayer, make_layers
from .weights import WeightGradients, places


def _layers(
    size: Sequence[int],
    dtype: torch.dtype,
    weights: Sequence[Tensor],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Layer] | list[VolumeLayer]:
    if len(size) == 3:
        return make_layers(size, dtype, weights, strides, wraps)
    layers: list[Layer] = []
    for i, (weight, wrap) in enumerate(zip(in_rows(weights, dtype), wraps, strict=True)):
        before = layers[-1].out_size if layers else (size[0], size[1])
        layers.append(Layer(weight, (strides[2 * i], strides[2 * i + 1]), wrap, before, precision))
    return layers


@torch.library.custom_op("ptn::block_chain", mutates_args=())
def block_chain(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    joins: Sequence[bool],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Tensor]:
    """The last output; and in training every convolution's own (N, …, C), every norm (5, C), and every
    convolution's input, padded. Of images, or of volumes.

    `running` are norms to use instead of the batch's. `joins` say which norms a shortcut is added to, before the
    ReLU: from the input of the convolution before.
    """
    layers: Any = _layers(x.shape[2:], x.dtype, weights, strides, wraps, precision)
    run = forward_volumes if x.dim() == 5 else _forward_images
    last, maps, norms, inputs = run(layers, x, scales, offsets, running, eps, joins)
    return [last] if running else [last, *maps, *norms, *inputs]


def _forward_images(
    layers: Sequence[Layer],
    x: Tensor,
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    joins: Sequence[bool],
) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    inputs = [pad_input(channels_inside(x), layers[0])]
    maps: list[Tensor] = []
    norms: list[Tensor] = []
    for i, (layer, following) in enumerate(zip(layers, [*layers[1:], None], strict=True)):
        y, sums = convolve(layer, inputs[i], summed=not running)
        norm = running[i] if running else normalise(y, sums, scales[i], offsets[i], eps[i])
        if joins[i]:
            inputs.append(join(y, norm, inputs[i - 1], layers[i - 1], following))
        else:
            inputs.append(activate(y, norm, following))
        maps.append(y)
        norms.append(norm)
    return inputs.pop().permute(0, 3, 1, 2), maps, norms, inputs


@block_chain.register_fake
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
    precision: str,
) -> list[Tensor]:
    layers = _layers(x.shape[2:], x.dtype, weights, strides, wraps, precision)
    count = x.shape[0]
    maps = [x.new_empty(count, *layer.out_size, layer.channels) for layer in layers]
    last = torch.empty_like(maps[-1]).movedim(-1, 1)
    if running:
        return [last]
    norms = [scale.new_empty(5, scale.shape[0], dtype=torch.float32) for scale in scales]
    inputs = [x.new_empty(count, *layer.padded_size, layer.in_channels) for layer in layers]
    return [last, *maps, *norms, *inputs]


@torch.library.custom_op("ptn::block_chain_backward", mutates_args=())
def block_chain_backward(
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
    precision: str,
    input_too: bool,
) -> list[Tensor]:
    """The gradients of all weights in one (see `places`); of all norms as (4, C), scale and offset the last two;
    and of the input."""
    layers: Any = _layers(size, last.dtype, weights, strides, wraps, precision)
    run = backward_volumes if len(size) == 3 else _backward_images
    return run(layers, dz, last, maps, norms, inputs, joins, input_too)


def _backward_images(
    layers: Sequence[Layer],
    dz: Tensor,
    last: Tensor,
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    inputs: Sequence[Tensor],
    joins: Sequence[bool],
    input_too: bool,
) -> list[Tensor]:
    outputs = [*inputs[1:], channels_inside(last)]
    relus = [
        Relu(y, norm, output if joined else None)
        for y, norm, joined, output in zip(maps, norms, joins, outputs, strict=True)
    ]
    du, sums = pass_relu(channels_inside(dz.to(last.dtype)), relus[-1])
    weight_grads = WeightGradients(layers, dz.shape[0], dz.device)
    norm_grads: list[Tensor] = []
    around = None
    for i in reversed(range(len(layers))):
        slopes = follow_norm(norms[i], du, sums)
        dy = spread(layers[i], du, maps[i], norms[i], slopes)
        weight_grads.add(i, dy, inputs[i])
        norm_grads.append(slopes)
        shortcut, around = around, du if joins[i] else None
        if i > 0 or input_too:
            relu = relus[i - 1] if i > 0 else None
            du, sums = input_gradient(layers[i], dy, inputs[i], relu=relu, shortcut=shortcut)
    return [weight_grads.sum(), *reversed(norm_grads), *([du.permute(0, 3, 1, 2)] if input_too else [])]


@block_chain_backward.register_fake
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
    precision: str,
    input_too: bool,
) -> list[Tensor]:
    _, length = places([weight.numel() for weight in weights])
    slopes = [norm.new_empty(4, norm.shape[1]) for norm in norms]
    first = last.new_empty(last.shape[0], *size, weights[0].shape[1]).movedim(-1, 1)
    return [norms[0].new_empty(length), *slopes, *([first] if input_too else [])]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *_, joins, strides, wraps, precision = inputs
    ctx.depth = len(weights)
    ctx.numbers = list(x.shape[2:]), joins, strides, wraps, precision
    ctx.save_for_backward(*weights, *output)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    depth = ctx.depth
    saved = ctx.saved_tensors
    weights, last = saved[:depth], saved[depth]
    maps, norms, inputs = (saved[depth + 1 + i * depth :][:depth] for i in range(3))
    input_too = ctx.needs_input_grad[0]
    found = block_chain_backward(grads[0], last, weights, maps, norms, inputs, *ctx.numbers, input_too)
    begins, _ = places([weight.numel() for weight in weights])
    weight_grads = [
        found[0][begin : begin + w.numel()].view(w.shape[0], *w.shape[2:], w.shape[1]).movedim(-1, 1)
        for begin, w in zip(begins, weights, strict=True)
    ]
    slopes = found[1 : 1 + depth]
    scales, offsets = [slope[2] for slope in slopes], [slope[3] for slope in slopes]
    return (found[-1] if input_too else None, weight_grads, scales, offsets, [], *([None] * 5))


block_chain.register_autograd(_backward, setup_context=_remember)
