"""`ptn::block_chain`: convolutions with batch norm and ReLU, some with a shortcut around; and its gradient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .launch import (
    Before,
    Layer,
    Relu,
    activate,
    channels_inside,
    convolve,
    follow_norm,
    input_gradient,
    join,
    normalise,
    pass_relu,
    weight_gradient,
)

# what follows a norm: the next convolution, which applies the ReLU itself; the ReLU; or a shortcut from before the
# last convolution but one, and the ReLU over both
NEXT, RELU, JOIN = 0, 1, 2


def _layers(
    x: Tensor, weights: Sequence[Tensor], strides: Sequence[int], wraps: Sequence[bool], precision: str
) -> list[Layer]:
    size = (x.shape[2], x.shape[3])
    layers = []
    for i, (weight, wrap) in enumerate(zip(weights, wraps, strict=True)):
        layers.append(Layer(weight, (strides[2 * i], strides[2 * i + 1]), wrap, size, precision))
        size = layers[-1].out_size
    return layers


@torch.library.custom_op("ptn::block_chain", mutates_args=())
def block_chain(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    ends: Sequence[int],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Tensor]:
    """The last output; then every convolution's own (N, H, W, C); every norm (5, C); every output but the last.

    `running` are norms to use instead of the batch's. `ends` say what follows each norm.
    """
    start = channels_inside(x)
    before = Before(start)
    maps: list[Tensor] = []
    norms: list[Tensor] = []
    outputs: list[Tensor] = []
    layers = _layers(x, weights, strides, wraps, precision)
    for i, layer in enumerate(layers):
        y, sums, pixels = convolve(layer, before, summed=not running)
        norm = running[i] if running else normalise(y, sums, pixels, scales[i], offsets[i], eps[i])
        before = Before(y, norm)
        if ends[i] != NEXT:
            start = activate(y, norm) if ends[i] == RELU else join(y, norm, start, layers[i - 1].stride[0])
            before = Before(start)
            outputs.append(start)
        maps.append(y)
        norms.append(norm)
    return [outputs.pop().permute(0, 3, 1, 2), *maps, *([] if running else norms), *outputs]


@block_chain.register_fake
def _(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    ends: Sequence[int],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
) -> list[Tensor]:
    layers = _layers(x, weights, strides, wraps, precision)
    maps = [x.new_empty(x.shape[0], *layer.out_size, layer.weight.shape[0]) for layer in layers]
    norms = [] if running else [scale.new_empty(5, scale.shape[0]) for scale in scales]
    outputs = [torch.empty_like(y) for y, end in zip(maps, ends, strict=True) if end != NEXT]
    return [outputs.pop().permute(0, 3, 1, 2), *maps, *norms, *outputs]


@torch.library.custom_op("ptn::block_chain_backward", mutates_args=())
def block_chain_backward(
    dz: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    outputs: Sequence[Tensor],
    ends: Sequence[int],
    strides: Sequence[int],
    wraps: Sequence[bool],
    precision: str,
    input_too: bool,
) -> list[Tensor]:
    """The gradients of all weights; of all norms as (4, C), scale and offset the last two; and that of `x`."""
    layers = _layers(x, weights, strides, wraps, precision)
    befores = [Before(channels_inside(x))]
    relus = []
    written = list(outputs)
    for y, norm, end in zip(maps, norms, ends, strict=True):
        output = written.pop(0) if end != NEXT else None
        befores.append(Before(y, norm) if output is None else Before(output))
        relus.append(Relu(y, norm, output if end == JOIN else None))
    du, sums = pass_relu(channels_inside(dz.to(x.dtype)), relus[-1])
    weight_grads: list[Tensor] = []
    norm_grads: list[Tensor] = []
    around = None
    for i in reversed(range(len(layers))):
        after = follow_norm(maps[i], norms[i], du, sums)
        weight_grads.append(weight_gradient(layers[i], befores[i], after))
        norm_grads.append(after.slopes)
        if i > 0 or input_too:
            relu = relus[i - 1] if i > 0 else None
            du, sums = input_gradient(layers[i], befores[i].x, after, relu=relu, shortcut=around)
        around = after.du if ends[i] == JOIN else None
    return [*reversed(weight_grads), *reversed(norm_grads), *([du.permute(0, 3, 1, 2)] if input_too else [])]


@block_chain_backward.register_fake
def _(
    dz: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    outputs: Sequence[Tensor],
    ends: Sequence[int],
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
    inputs = [torch.empty_like(channels_inside(x)).permute(0, 3, 1, 2)] if input_too else []
    return [*weight_grads, *slopes, *inputs]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *_, ends, strides, wraps, precision = inputs
    ctx.depth = len(weights)
    ctx.numbers = ends, strides, wraps, precision
    last, *others = output
    ctx.save_for_backward(x, *weights, *others, last)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    depth = ctx.depth
    x, *saved, last = ctx.saved_tensors
    weights, maps, norms = (saved[i * depth : (i + 1) * depth] for i in range(3))
    outputs = [*saved[3 * depth :], channels_inside(last)]
    input_too = ctx.needs_input_grad[0]
    found = block_chain_backward(grads[0], x, weights, maps, norms, outputs, *ctx.numbers, input_too)
    slopes = found[depth : 2 * depth]
    scales, offsets = [slope[2] for slope in slopes], [slope[3] for slope in slopes]
    return (found[-1] if input_too else None, found[:depth], scales, offsets, [], *([None] * 5))


block_chain.register_autograd(_backward, setup_context=_remember)
