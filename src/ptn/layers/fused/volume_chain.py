"""A chain of 3-D blocks, forwards and backwards: what `ptn::block_chain` does with volumes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .launch import Relu, follow_norm, normalise, spread_gradient
from .volume_launch import (
    VolumeLayer,
    activate,
    channels_first,
    channels_inside,
    convolve,
    convolve_backward,
    flat,
    pass_relu,
    skip,
    skip_gradient,
    sum_channels,
    unwrap,
)
from .weights import places


def forward_volumes(
    layers: Sequence[VolumeLayer],
    x: Tensor,
    scales: Sequence[Tensor],
    offsets: Sequence[Tensor],
    running: Sequence[Tensor],
    eps: Sequence[float],
    joins: Sequence[bool],
) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    """The last output, and every convolution's own, every norm, every convolution's input."""
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
    return channels_first(inputs.pop()), maps, norms, inputs


def backward_volumes(
    layers: Sequence[VolumeLayer],
    dz: Tensor,
    last: Tensor,
    maps: Sequence[Tensor],
    norms: Sequence[Tensor],
    inputs: Sequence[Tensor],
    joins: Sequence[bool],
    input_too: bool,
) -> list[Tensor]:
    """What `ptn::block_chain_backward` returns."""
    outputs = [*inputs[1:], channels_inside(last)]
    rows = [*(layer.rows for layer in layers[1:]), 0]
    dx: Tensor | None = channels_inside(dz.to(last.dtype))
    begins, length = places([layer.weight.numel() for layer in layers])
    weight_grads = norms[0].new_zeros(length)
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
        weight_grads[begins[i] :][: dweight.numel()].copy_(channels_inside(dweight).flatten())
        norm_grads.append(slopes)
        # a shortcut leads around two convolutions: from a block's end to the end of the one before
        around = None if block_end is None else skip_gradient(layers[i], block_end)
        block_end = du if joins[i] else None
    found = [weight_grads, *reversed(norm_grads)]
    if input_too:
        assert dx is not None
        dx = unwrap(dx, layers[0].rows)
        found.append(channels_first(dx if around is None else torch.add(dx, around)))
    return found
