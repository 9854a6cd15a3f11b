"""Triton kernels of a chain of 3-D blocks: what stands between its convolutions, which are cuDNN's.

Feature maps lie in memory as (N, H, W, C), where W is all axes but the angle. Every program goes over several
tiles, for volumes have many, and sums over them are added up in a fixed order.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def sum_channels(
    y, sums, pixels, C: tl.constexpr, STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Of each program's pixels the sum and the squared deviation per channel: `sums` (2, C, programs)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, BLOCK_N)
    seen = tl.full((), 0.0, tl.float32)
    mean = tl.zeros([BLOCK_N], tl.float32)
    squares = tl.zeros([BLOCK_N], tl.float32)
    for step in range(STEPS):
        first = (program * STEPS + step) * BLOCK_M
        m = first + tl.arange(0, BLOCK_M)
        mask = (m < pixels)[:, None] & (c < C)[None, :]
        value = tl.load(y + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        count = tl.maximum(tl.minimum(pixels - first, BLOCK_M), 0).to(tl.float32)
        own = tl.sum(value, axis=0) / tl.maximum(count, 1.0)
        deviation = tl.where(mask, value - own[None, :], 0.0)
        share = count / tl.maximum(seen + count, 1.0)
        squares += tl.sum(deviation * deviation, axis=0) + (own - mean) * (own - mean) * seen * share
        mean += (own - mean) * share
        seen += count
    tl.store(sums + c * programs + program, mean * seen, mask=c < C)
    tl.store(sums + (C + c) * programs + program, squares, mask=c < C)


@triton.jit
def fold_gradient(
    dz, around, z, y, norm, du, sums, pixels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, AROUND: tl.constexpr, JOINED: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient before a ReLU, from that of its output `dz`, wrapped by PY rows on either side, and that which
    came `around` by a shortcut; and each program's sums of it that batch norm asks for.

    The ReLU let through where z, wrapped like dz, is positive (`JOINED`), else where norm(y) is.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, BLOCK_N)
    known = c < C
    gain = tl.load(norm + c, mask=known, other=0.0)[None, :]
    shift = tl.load(norm + C + c, mask=known, other=0.0)[None, :]
    mean = tl.load(norm + 2 * C + c, mask=known, other=0.0)[None, :]
    inverse = tl.load(norm + 3 * C + c, mask=known, other=0.0)[None, :]
    total = tl.zeros([BLOCK_N], tl.float32)
    moment = tl.zeros([BLOCK_N], tl.float32)
    for step in range(STEPS):
        m = (program * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        mask = (m < pixels)[:, None] & known[None, :]
        row = m // W % H
        at = m + (m // (W * H) * 2 + 1) * PY * W  # in what is wrapped
        grad = tl.load(dz + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        if PY > 0:
            above = mask & (row < PY)[:, None]
            grad += tl.load(dz + (at + H * W)[:, None] * C + c[None, :], mask=above, other=0.0).to(tl.float32)
            below = mask & (row >= H - PY)[:, None]
            grad += tl.load(dz + (at - H * W)[:, None] * C + c[None, :], mask=below, other=0.0).to(tl.float32)
        if AROUND:
            grad += tl.load(around + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        value = tl.load(y + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        if JOINED:
            passed = tl.load(z + at[:, None] * C + c[None, :], mask=mask, other=0.0) > 0
        else:
            passed = mask & (value * gain + shift > 0)
        kept = tl.where(passed, grad, 0.0).to(du.dtype.element_ty)
        tl.store(du + m[:, None] * C + c[None, :], kept, mask=mask)
        kept = kept.to(tl.float32)
        total += tl.sum(kept, axis=0)
        moment += tl.sum(kept * (value - mean) * inverse, axis=0)
    tl.store(sums + c * programs + program, total, mask=known)
    tl.store(sums + (C + c) * programs + program, moment, mask=known)
