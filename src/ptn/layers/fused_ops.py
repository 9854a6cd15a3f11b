"""`ptn::block_chain`: a chain of convolution blocks as a few Triton kernels, with its gradient.

Equal to the blocks up to rounding. `torch.compile` keeps it as one operator. Convolutions of images are Triton
kernels; those of volumes are cuDNN's, with fused kernels between them. Imported only if Triton is installed.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from . import fused_launch as launch
from .conv import ConvBlock, ResidualBlock, WrapConv2d, WrapConv3d
from .fused_launch import Ints, Tensors

Block = ConvBlock | ResidualBlock
ConvAndNorm = tuple[nn.Conv2d | nn.Conv3d, nn.BatchNorm2d | nn.BatchNorm3d]

_KINDS = ((nn.BatchNorm2d, (nn.Conv2d, WrapConv2d)), (nn.BatchNorm3d, (nn.Conv3d, WrapConv3d)))


def can_fuse(blocks: Iterable[nn.Module]) -> bool:
    """Returns whether `run_blocks` supports these blocks."""
    chain = list(blocks)
    if not chain or not all(isinstance(block, Block) for block in chain):
        return False
    pairs = _convs_and_norms(cast(list[Block], chain))
    if not any(all(type(n) is norm and type(c) in convs for c, n in pairs) for norm, convs in _KINDS):
        return False
    options = {(norm.eps, norm.momentum) for _, norm in pairs}
    return len(options) == 1 and pairs[0][1].momentum is not None


def can_run(blocks: Sequence[Block], x: Tensor) -> bool:
    """Returns whether `run_blocks` supports `x` and the present mode: training, or evaluation without gradients."""
    pairs = _convs_and_norms(blocks)
    if x.dim() != pairs[0][0].weight.dim() or x.dtype == torch.float64 or x.shape[0] == 0:
        return False
    if x.dim() == 5 and x.is_cuda and _compute_dtype(x) not in (torch.bfloat16, torch.float16):
        return False  # cuDNN is slow for volumes in float32 with channels last
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    widest = max([norm.num_features for _, norm in pairs])
    fits_int32 = x.shape[0] * math.prod([size + 8 for size in x.shape[2:]]) * widest < 2**31
    return fits_int32 and (pairs[0][1].training or not torch.is_grad_enabled())


def run_blocks(blocks: Sequence[Block], x: Tensor) -> Tensor:
    """Returns the output of the blocks, (N, C, …) -> (N, C', …), channels last in memory.

    Updates the running statistics of batch norm in training. Under autocast it computes in autocast's dtype.
    """
    pairs = _convs_and_norms(blocks)
    norms = [norm for _, norm in pairs]
    training = norms[0].training
    joins = [join for block in blocks for join in ([False, True] if isinstance(block, ResidualBlock) else [False])]
    wraps = [isinstance(conv, WrapConv2d | WrapConv3d) for conv, _ in pairs]
    output, *saved = block_chain(
        x.to(_compute_dtype(x)),
        [conv.weight for conv, _ in pairs],
        [norm.weight for norm in norms],
        [norm.bias for norm in norms],
        [] if training else [_running_norm(conv, norm) for conv, norm in pairs],
        norms[0].eps,
        [n for (conv, _), join, wrap in zip(pairs, joins, wraps, strict=True) for n in (join, wrap, *conv.stride)],
    )
    if training:
        _update_statistics(pairs, saved[len(pairs) : 2 * len(pairs)])
    return output


def _compute_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _convs_and_norms(blocks: Sequence[Block]) -> list[ConvAndNorm]:
    pairs = []
    for block in blocks:
        if isinstance(block, ConvBlock):
            pairs.append((block.conv, block.norm))
        else:
            pairs += [(block.conv1, block.norm1), (block.conv2, block.norm2)]
    return pairs


def _running_norm(conv: nn.Conv2d | nn.Conv3d, norm: nn.BatchNorm2d | nn.BatchNorm3d) -> Tensor:
    """Gain, shift, mean and 1/deviation by the running statistics, (4, C), for a convolution without its bias."""
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    if conv.bias is not None:
        mean = mean - conv.bias
    inverse = torch.rsqrt(variance + norm.eps)
    gain = norm.weight * inverse
    return torch.stack((gain, norm.bias - mean * gain, mean, inverse))


@torch.no_grad()
def _update_statistics(pairs: Sequence[ConvAndNorm], batch_norms: Sequence[Tensor]) -> None:
    """Updates the running statistics. The chain omits the biases, which batch norm cancels; its means do not."""
    statistics = []
    batch = []
    for (conv, norm), values in zip(pairs, batch_norms, strict=True):
        statistics += [cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)]
        batch += [values[2] if conv.bias is None else values[2] + conv.bias, values[4]]
    torch._foreach_lerp_(statistics, batch, cast(float, pairs[0][1].momentum))
    torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for _, norm in pairs], 1)


@torch.library.custom_op("ptn::block_chain", mutates_args=())
def block_chain(
    x: Tensor, weights: Tensors, scales: Tensors, offsets: Tensors, running: Tensors, eps: float, layout: Ints
) -> list[Tensor]:
    """Returns the output (N, C', …) of a chain of convolutions, batch norms and ReLUs over (N, C, …).

    In training also the output (N, …, C) of every convolution, every norm (5, C), and the padded input of every
    convolution, for the backward pass.

    Args:
        weights: of the convolutions; `scales` and `offsets`: of the batch norms.
        running: norms to use instead of those of the batch.
        layout: for each convolution, whether a shortcut from the input of the one before is added before the ReLU,
            whether it wraps around the first axis, and its stride along each axis.
    """
    layers = launch.make_layers(x.shape[2:], x.dtype, weights, layout)
    inputs = [launch.apply_norm(launch.channels_last(x), None, layers[0])]
    maps: list[Tensor] = []
    norms: list[Tensor] = []
    for i, (layer, following) in enumerate(zip(layers, [*layers[1:], None], strict=True)):
        y, sums = launch.convolve(layer, inputs[i], with_sums=not running)
        norm = running[i] if sums is None else launch.batch_norm(y, sums, scales[i], offsets[i], eps)
        shortcut = launch.make_shortcut(layers[i - 1], inputs[i - 1]) if layer.joined else None
        inputs.append(launch.apply_norm(y, norm, following, shortcut))
        maps.append(y)
        norms.append(norm)
    output = inputs.pop().movedim(-1, 1)
    return [output] if running else [output, *maps, *norms, *inputs]


@block_chain.register_fake
def _(
    x: Tensor, weights: Tensors, scales: Tensors, offsets: Tensors, running: Tensors, eps: float, layout: Ints
) -> list[Tensor]:
    layers = launch.make_layers(x.shape[2:], x.dtype, weights, layout)
    maps = [x.new_empty(x.shape[0], *layer.out_size, layer.channels) for layer in layers]
    output = torch.empty_like(maps[-1]).movedim(-1, 1)
    if running:
        return [output]
    norms = [scale.new_empty(5, scale.shape[0], dtype=torch.float32) for scale in scales]
    inputs = [x.new_empty(x.shape[0], *layer.padded_size, layer.in_channels) for layer in layers]
    return [output, *maps, *norms, *inputs]


@torch.library.custom_op("ptn::block_chain_backward", mutates_args=())
def block_chain_backward(
    grad: Tensor, output: Tensor, weights: Tensors, saved: Tensors, size: Ints, layout: Ints, input_grad: bool
) -> list[Tensor]:
    """Returns the gradients of all weights in one tensor (see `weight_places`), of every norm (4, C), those of
    scale and offset in the last two rows, and with `input_grad` that of the input.

    Args:
        saved: results of `block_chain` after the `output`.
        size: of the input's spatial axes.
    """
    layers = launch.make_layers(size, output.dtype, weights, layout)
    depth = len(layers)
    maps, norms, inputs = saved[:depth], saved[depth : 2 * depth], saved[2 * depth :]
    outputs = [*inputs[1:], launch.channels_last(output)]
    relus = [
        launch.Relu(y, norm, z if layer.joined else None)
        for layer, y, norm, z in zip(layers, maps, norms, outputs, strict=True)
    ]
    weight_grads = launch.WeightGradients(layers, output.shape[0], norms[0])
    dnorms: list[Tensor] = []
    du, sums = launch.relu_backward(launch.channels_last(grad.to(output.dtype)), relus[-1])
    block_end: Tensor | None = None
    for i in reversed(range(depth)):
        layer, x, relu = layers[i], inputs[i], relus[i - 1] if i > 0 else None
        dnorms.append(launch.norm_backward(norms[i], du, sums))
        dy = launch.output_gradient(layer, du, maps[i], norms[i], dnorms[-1])
        # the first convolution of a residual block also gets the gradient at the end of the block
        shortcut, block_end = block_end, du if layer.joined else None
        if layer.is_volume:
            dx, dweight = launch.volume_gradients(layer, dy, x, input_grad=i > 0 or input_grad)
            weight_grads.set(i, dweight)
            if dx is not None:
                du, sums = launch.volume_relu_backward(layer, dx, relu, shortcut)
        else:
            weight_grads.launch(i, dy, x)
            if i > 0 or input_grad:
                du, sums = launch.input_gradient(layer, dy, x, relu, shortcut)
    return [weight_grads.sum(), *reversed(dnorms), *([du.movedim(-1, 1)] if input_grad else [])]


@block_chain_backward.register_fake
def _(
    grad: Tensor, output: Tensor, weights: Tensors, saved: Tensors, size: Ints, layout: Ints, input_grad: bool
) -> list[Tensor]:
    _, length = launch.weight_places([weight.numel() for weight in weights])
    total = output.new_empty(length, dtype=torch.float32)
    dnorms = [total.new_empty(4, weight.shape[0]) for weight in weights]
    dx = output.new_empty(output.shape[0], *size, weights[0].shape[1]).movedim(-1, 1)
    return [total, *dnorms, *([dx] if input_grad else [])]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *_, layout = inputs
    ctx.depth = len(weights)
    ctx.options = list(x.shape[2:]), layout
    ctx.save_for_backward(*weights, *output)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    depth = ctx.depth
    weights, (output, *saved) = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
    input_grad = ctx.needs_input_grad[0]
    total, *others = block_chain_backward(grads[0], output, weights, saved, *ctx.options, input_grad)
    places, _ = launch.weight_places([weight.numel() for weight in weights])
    weight_grads = [
        total[place : place + w.numel()].view(w.shape[0], *w.shape[2:], w.shape[1]).movedim(-1, 1)
        for place, w in zip(places, weights, strict=True)
    ]
    scales, offsets = [dnorm[2] for dnorm in others[:depth]], [dnorm[3] for dnorm in others[:depth]]
    return (others[-1] if input_grad else None, weight_grads, scales, offsets, [], None, None)


block_chain.register_autograd(_backward, setup_context=_setup_context)
