"""Padding that knows which axis is an angle."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from .interpolate import runs_eagerly

Amount = int | tuple[int, int]


def wrap_pad(x: Tensor, pad: int | tuple[Amount, ...]) -> Tensor:
    """`x` padded around: circularly along the angle, with zeros along every other axis.

    (N, C, angles, radii) or (N, C, angles, radii, Z). `pad` is one amount for all axes or one per axis in that
    order; an amount is the same on both sides, or (before, after). Any amount may exceed the angles there are.
    """
    axes = x.dim() - 2
    if axes not in (2, 3):
        raise InputError(f"expected (N, C, angles, radii) or (N, C, angles, radii, Z); got shape {tuple(x.shape)}")
    if x.shape[2] == 0:
        raise InputError(f"there are no angles to wrap around in shape {tuple(x.shape)}")
    amounts = (pad,) * axes if isinstance(pad, int) else pad
    if len(amounts) != axes:
        raise InputError(f"expected {axes} amounts of padding; got {pad!r}")
    angle, *others = [(a, a) if isinstance(a, int) else a for a in amounts]
    if min(min(pair) for pair in (angle, *others)) < 0:
        raise InputError(f"padding cannot be negative; got {pad!r}")
    wrapped = wrap_angle(x, angle)
    if not any(any(pair) for pair in others):
        return wrapped
    return F.pad(wrapped, [side for pair in reversed(others) for side in pair])


def wrap_angle(x: Tensor, amount: tuple[int, int]) -> Tensor:
    """`x` with rows repeated from the other end: `amount` (before, after) along dimension 2; negative cuts off."""
    before, after = amount
    angles = x.shape[2]
    if not (before or after):
        return x
    if 0 <= before <= angles and 0 <= after <= angles:
        if x.requires_grad and torch.is_grad_enabled() and runs_eagerly():
            return _Wrap.apply(x, before, after)  # type: ignore[no-untyped-call]
        return _repeat_rows(x, before, after)
    rows = torch.arange(-before, angles + after, device=x.device) % angles
    return x.index_select(2, rows)


def _repeat_rows(x: Tensor, before: int, after: int) -> Tensor:
    parts = (x[:, :, x.shape[2] - before :], x, x[:, :, :after])
    return torch.cat([part for part in parts if part.shape[2]], dim=2)


class _Wrap(torch.autograd.Function):
    """`_repeat_rows` with a gradient that passes over the tensor once; torch's own makes and adds up three."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: int, after: int) -> Tensor:
        ctx.before, ctx.angles = before, x.shape[2]
        return _repeat_rows(x, before, after)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        first, end = ctx.before, ctx.before + ctx.angles
        whole = slope[:, :, first:end].clone()
        whole[:, :, : slope.shape[2] - end] += slope[:, :, end:]
        whole[:, :, ctx.angles - first :] += slope[:, :, :first]
        return whole, None, None
