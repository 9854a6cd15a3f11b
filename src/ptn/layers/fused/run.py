"""From blocks to the operators that stand for them."""

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ..conv import ConvBlock, ResidualBlock, WrapConv2d, WrapConv3d
from .chain import block_chain

Pair = tuple[nn.Conv2d | nn.Conv3d, nn.BatchNorm2d | nn.BatchNorm3d]

_KINDS = ((nn.BatchNorm2d, (nn.Conv2d, WrapConv2d)), (nn.BatchNorm3d, (nn.Conv3d, WrapConv3d)))


def can_stand_for(blocks: Iterable[nn.Module]) -> bool:
    """Whether `run_blocks` computes what the blocks do, called one after the other on images or volumes."""
    chain = list(blocks)
    if not chain or not all(isinstance(block, ConvBlock | ResidualBlock) for block in chain):
        return False
    pairs = _pairs(cast(list[ConvBlock | ResidualBlock], chain))
    if not any(all(type(n) is norm and type(c) in convs for c, n in pairs) for norm, convs in _KINDS):
        return False
    momenta = {norm.momentum for _, norm in pairs}
    return len(momenta) == 1 and None not in momenta


def can_run(blocks: Sequence[ConvBlock | ResidualBlock], x: Tensor) -> bool:
    """Whether `run_blocks` can be called here and now on `x`, on whatever device."""
    pairs = _pairs(blocks)
    if x.dim() != pairs[0][0].weight.dim() or x.dtype == torch.float64 or x.shape[0] == 0:
        return False
    if x.dim() == 5 and x.is_cuda and not _in_half_precision(x):
        return False  # cuDNN is slow at volumes in float32 with channels last
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    widest = max([norm.num_features for _, norm in pairs])
    small = x.shape[0] * math.prod([size + 8 for size in x.shape[2:]]) * widest < 2**31  # the kernels' indices
    return small and (pairs[0][1].training or not torch.is_grad_enabled())


def _in_half_precision(x: Tensor) -> bool:
    half = (torch.bfloat16, torch.float16)
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type) in half
    return x.dtype in half


def run_blocks(blocks: Sequence[ConvBlock | ResidualBlock], x: Tensor) -> Tensor:
    """The blocks one after the other: (N, C, …) -> (N, C', …), in memory channels last.

    Like them it teaches batch norm's running averages. Under autocast it computes in autocast's precision.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    pairs = _pairs(blocks)
    convs, norms = [conv for conv, _ in pairs], [norm for _, norm in pairs]
    training = norms[0].training
    z, *rest = block_chain(
        x,
        [conv.weight for conv in convs],
        [norm.weight for norm in norms],
        [norm.bias for norm in norms],
        [] if training else [_running_norm(conv, norm) for conv, norm in pairs],
        [norm.eps for norm in norms],
        _joins(blocks),
        [step for conv in convs for step in conv.stride],
        [isinstance(conv, WrapConv2d | WrapConv3d) for conv in convs],
        "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
    )
    if training:
        _learn(pairs, rest[len(pairs) : 2 * len(pairs)])
    return z


def _joins(blocks: Sequence[ConvBlock | ResidualBlock]) -> list[bool]:
    """Which norms a shortcut is added to."""
    return [join for block in blocks for join in ([False, True] if isinstance(block, ResidualBlock) else [False])]


def _pairs(blocks: Sequence[ConvBlock | ResidualBlock]) -> list[Pair]:
    """Every convolution and its norm, in the order of the blocks."""
    pairs = []
    for block in blocks:
        if isinstance(block, ConvBlock):
            pairs.append((block.conv, block.norm))
        else:
            pairs += [(block.conv1, block.norm1), (block.conv2, block.norm2)]
    return pairs


def _running_norm(conv: nn.Conv2d | nn.Conv3d, norm: nn.BatchNorm2d | nn.BatchNorm3d) -> Tensor:
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    if conv.bias is not None:
        mean = mean - conv.bias
    inverse = torch.rsqrt(variance + norm.eps)
    gain = norm.weight * inverse
    return torch.stack((gain, norm.bias - mean * gain, mean, inverse))


@torch.no_grad()
def _learn(pairs: Sequence[Pair], found: Sequence[Tensor]) -> None:
    """Move the running averages towards what was found in the batch.

    The chain leaves out the biases, which batch norm takes off again; the mean of what it sees includes them.
    """
    norms = [norm for _, norm in pairs]
    averages = [cast(Tensor, average) for norm in norms for average in (norm.running_mean, norm.running_var)]
    means = [
        norm[2] if conv.bias is None else norm[2] + conv.bias for (conv, _), norm in zip(pairs, found, strict=True)
    ]
    news = [value for mean, norm in zip(means, found, strict=True) for value in (mean, norm[4])]
    torch._foreach_lerp_(averages, news, cast(float, norms[0].momentum))
    torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in norms], 1)
