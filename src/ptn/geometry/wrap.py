"""Circular padding along the angle axis."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, InputTypeError
from .grid import MAX_PIXELS

Amount = int | tuple[int, int]


def wrap_pad(x: Tensor, pad: int | tuple[Amount, ...]) -> Tensor:
    """Pad circularly along the angle and with zeros along every other axis.

    Args:
        x: (N, C, angles, radii) or (N, C, angles, radii, Z).
        pad: one amount for all axes, or one per axis in that order. An amount applies to both sides, or is a pair
            (before, after). It may exceed the number of angles.
    """
    if not isinstance(x, Tensor):
        raise InputTypeError(f"expected a tensor (N, C, angles, radii); got {type(x).__name__}")
    axes = x.dim() - 2
    if axes not in (2, 3):
        raise InputError(f"expected (N, C, angles, radii) or (N, C, angles, radii, Z); got shape {tuple(x.shape)}")
    amounts = (pad,) * axes if isinstance(pad, int) else pad
    pairs = [(a, a) if isinstance(a, int) else a for a in amounts] if isinstance(amounts, tuple | list) else []
    if len(pairs) != axes or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
        raise InputTypeError(f"expected {axes} amounts of padding in integers, or pairs of them; got {pad!r}")
    if not all(type(side) is int and abs(side) < 2**31 for pair in pairs for side in pair):
        raise InputTypeError(f"amounts of padding must be integers of 32 bits; got {pad!r}")
    cropped = any(-side >= size for size, pair in zip(x.shape[2:], pairs, strict=True) for side in pair)
    sizes = [size + sum(pair) for size, pair in zip(x.shape[2:], pairs, strict=True)]
    if cropped or min(*sizes, *x.shape[2:]) < 1 or math.prod(sizes) > 2 * MAX_PIXELS:
        raise InputError(f"a tensor {tuple(x.shape)} cannot be padded by {pad!r}, to {sizes}")
    angle, *others = pairs
    wrapped = wrap_angle(x, angle)
    if not any(any(pair) for pair in others):
        return wrapped
    return F.pad(wrapped, [side for pair in reversed(others) for side in pair])


def wrap_angle(x: Tensor, amount: tuple[int, int]) -> Tensor:
    """Pad dimension 2 circularly by `amount` (before, after); a negative amount crops."""
    before, after = amount
    angles = x.shape[2]
    if not (before or after):
        return x
    if 0 <= before <= angles and 0 <= after <= angles:
        if x.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return _RepeatRows.apply(x, before, after)  # type: ignore[no-untyped-call]
        return _repeat_rows(x, before, after)
    rows = torch.arange(-before, angles + after, device=x.device) % angles
    return x.index_select(2, rows)


def _repeat_rows(x: Tensor, before: int, after: int) -> Tensor:
    parts = (x[:, :, x.shape[2] - before :], x, x[:, :, :after])
    return torch.cat([part for part in parts if part.shape[2]], dim=2)


class _RepeatRows(torch.autograd.Function):
    """`_repeat_rows` with a backward of one copy; that of `torch.cat` allocates and adds three tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, before: int, after: int) -> Tensor:
        return _repeat_rows(x, before, after)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.before, _ = inputs
        ctx.angles = x.shape[2]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        first, end = ctx.before, ctx.before + ctx.angles
        grad = grad_output[:, :, first:end].clone()
        grad[:, :, : grad_output.shape[2] - end] += grad_output[:, :, end:]
        grad[:, :, ctx.angles - first :] += grad_output[:, :, :first]
        return grad, None, None
