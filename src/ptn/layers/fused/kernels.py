"""Triton kernels of a chain of convolution blocks: convolution, batch norm and ReLU, forwards and backwards.

Feature maps lie in memory as (N, H, W, C), weights as (C', KH, KW, C). A kernel reads what the convolution before
it wrote, and normalises it on the way in: `max(gain·y + shift, 0)`. Padding is a matter of indices: rows wrap or
are zero, columns are zero. Sums over pixels are written per program and added up in a fixed order, so that equal
inputs give equal bits. A `norm` is (4, C) or more: gain, shift, mean and 1/deviation of each channel.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def _dot(a, b, acc, precision: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=precision, out_dtype=tl.float32)


@triton.jit
def conv_forward(
    x, before, weight, y, sums,
    pixels, height, width, out_height, out_width,
    CIN: tl.constexpr, COUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SY: tl.constexpr, SX: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr,
    WRAP: tl.constexpr, NORMALISE: tl.constexpr, SUMS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """y = conv(x), or conv(max(gain·x + shift, 0)) with the norm `before`; and of each program's pixels the sum and
    the squared deviation per channel: `sums` (programs, 2, COUT)."""
    program = tl.program_id(0)
    m = program * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < pixels
    n = m // (out_height * out_width)
    oy = m // out_width % out_height
    ox = m % out_width
    co = tl.arange(0, BLOCK_N)
    ix = ox * SX - PX
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    parts: tl.constexpr = (KW * CIN + BLOCK_K - 1) // BLOCK_K
    for step in range(KH * parts):
        ky = step // parts
        k = step % parts * BLOCK_K + tl.arange(0, BLOCK_K)
        iy = oy * SY + (ky - PY)
        if WRAP:
            iy = tl.where(iy < 0, iy + height, iy)
            iy = tl.where(iy >= height, iy - height, iy)
            row_inside = inside
        else:
            row_inside = inside & (iy >= 0) & (iy < height)
        row = ((n * height + iy) * width + ix) * CIN
        column = ix[:, None] + (k // CIN)[None, :]
        mask = row_inside[:, None] & (column >= 0) & (column < width) & (k < KW * CIN)[None, :]
        value = tl.load(x + row[:, None] + k[None, :], mask=mask, other=0.0)
        if NORMALISE:
            gain = tl.load(before + k % CIN)
            shift = tl.load(before + CIN + k % CIN)
            value = tl.maximum(value.to(tl.float32) * gain[None, :] + shift[None, :], 0.0)
            value = tl.where(mask, value, 0.0)
        w = tl.load(
            weight + co[None, :] * (KH * KW * CIN) + ky * (KW * CIN) + k[:, None],
            mask=(k < KW * CIN)[:, None] & (co < COUT)[None, :],
            other=0.0,
        )
        acc = _dot(value.to(y.dtype.element_ty), w.to(y.dtype.element_ty), acc, PRECISION)
    stored = acc.to(y.dtype.element_ty)
    tl.store(y + m[:, None] * COUT + co[None, :], stored, mask=inside[:, None] & (co < COUT)[None, :])
    if SUMS:
        value = tl.where(inside[:, None], stored.to(tl.float32), 0.0)
        count = tl.minimum(pixels - program * BLOCK_M, BLOCK_M)
        total = tl.sum(value, axis=0)
        deviation = tl.where(inside[:, None], value - (total / count)[None, :], 0.0)
        tl.store(sums + program * (2 * COUT) + co, total, mask=co < COUT)
        tl.store(sums + program * (2 * COUT) + COUT + co, tl.sum(deviation * deviation, axis=0), mask=co < COUT)


@triton.jit
def norm_forward(
    sums, scale, offset, norm, pixels, programs, eps,
    C: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One channel of `norm` (5, C) from the sums of the programs; the fifth is the unbiased variance."""
    c = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    count = tl.minimum(pixels - p * BLOCK_M, BLOCK_M).to(tl.float32)
    part = tl.load(sums + p * (2 * C) + c, mask=p < programs, other=0.0)
    within = tl.load(sums + p * (2 * C) + C + c, mask=p < programs, other=0.0)
    mean = tl.sum(part, axis=0) / pixels
    apart = part / count - mean
    variance = tl.sum(tl.where(p < programs, within + count * apart * apart, 0.0), axis=0) / pixels
    inverse = 1 / tl.sqrt(variance + eps)
    gain = tl.load(scale + c) * inverse
    tl.store(norm + c, gain)
    tl.store(norm + C + c, tl.load(offset + c) - mean * gain)
    tl.store(norm + 2 * C + c, mean)
    tl.store(norm + 3 * C + c, inverse)
    tl.store(norm + 4 * C + c, variance * (pixels / (pixels - 1.0)))


@triton.jit
def activate(y, norm, z, count, C: tl.constexpr, BLOCK: tl.constexpr):
    """z = max(gain·y + shift, 0)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    value = tl.load(y + i, mask=mask).to(tl.float32)
    value = value * tl.load(norm + i % C, mask=mask) + tl.load(norm + C + i % C, mask=mask)
    tl.store(z + i, tl.maximum(value, 0.0).to(z.dtype.element_ty), mask=mask)


@triton.jit
def join(
    y, norm, x, z, pixels, height, width, out_height, out_width,
    CIN: tl.constexpr, C: tl.constexpr, STRIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The end of a residual block: z = max(gain·y + shift + shortcut, 0).

    The shortcut is every `STRIDE`-th pixel of x, whose channels are in the middle of z's.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    inside = (m < pixels)[:, None] & (c < C)[None, :]
    value = tl.load(y + m[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(norm + c, mask=c < C, other=0.0)
    shift = tl.load(norm + C + c, mask=c < C, other=0.0)
    row = m // (out_height * out_width) * height + m // out_width % out_height * STRIDE
    ci = c - (C - CIN) // 2
    at = (row * width + m % out_width * STRIDE)[:, None] * CIN + ci[None, :]
    shortcut = tl.load(x + at, mask=inside & ((ci >= 0) & (ci < CIN))[None, :], other=0.0).to(tl.float32)
    value = tl.maximum(value * gain[None, :] + shift[None, :] + shortcut, 0.0)
    tl.store(z + m[:, None] * C + c[None, :], value.to(z.dtype.element_ty), mask=inside)


@triton.jit
def _store_gradient(
    grad, z, y, norm, du, sums, m, inside, program,
    C: tl.constexpr, JOINED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Keep the gradient where the ReLU let through, and each program's sums of it that batch norm asks for.

    It let through where z is positive: the output of `join` (`JOINED`), else that of the norm itself.
    """
    c = tl.arange(0, BLOCK_N)
    known = c < C
    mask = inside[:, None] & known[None, :]
    value = tl.load(y + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    if JOINED:
        passed = tl.load(z + m[:, None] * C + c[None, :], mask=mask, other=0.0) > 0
    else:
        gain = tl.load(norm + c, mask=known, other=0.0)
        shift = tl.load(norm + C + c, mask=known, other=0.0)
        passed = mask & (value * gain[None, :] + shift[None, :] > 0)
    mean = tl.load(norm + 2 * C + c, mask=known, other=0.0)
    inverse = tl.load(norm + 3 * C + c, mask=known, other=0.0)
    kept = tl.where(passed, grad, 0.0).to(du.dtype.element_ty)
    tl.store(du + m[:, None] * C + c[None, :], kept, mask=mask)
    kept = kept.to(tl.float32)
    unit = (value - mean[None, :]) * inverse[None, :]
    tl.store(sums + program * (2 * C) + c, tl.sum(kept, axis=0), mask=known)
    tl.store(sums + program * (2 * C) + C + c, tl.sum(kept * unit, axis=0), mask=known)


@triton.jit
def activate_backward(
    dz, z, y, norm, du, sums, pixels,
    C: tl.constexpr, JOINED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of `activate`, or of `join`, before batch norm."""
    program = tl.program_id(0)
    m = program * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    inside = m < pixels
    mask = inside[:, None] & (c < C)[None, :]
    grad = tl.load(dz + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    _store_gradient(grad, z, y, norm, du, sums, m, inside, program, C, JOINED, BLOCK_N)


@triton.jit
def norm_backward(sums, norm, slopes, pixels, programs, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """One channel of `slopes` (4, C): base and slope, with which y's gradient is gain·du − base − slope·y; and the
    gradients of batch norm's scale and offset."""
    c = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    total = tl.sum(tl.load(sums + p * (2 * C) + c, mask=p < programs, other=0.0), axis=0)
    moment = tl.sum(tl.load(sums + p * (2 * C) + C + c, mask=p < programs, other=0.0), axis=0)
    gain = tl.load(norm + c)
    slope = gain * tl.load(norm + 3 * C + c) * moment / pixels
    tl.store(slopes + c, gain * total / pixels - slope * tl.load(norm + 2 * C + c))
    tl.store(slopes + C + c, slope)
    tl.store(slopes + 2 * C + c, moment)
    tl.store(slopes + 3 * C + c, total)


@triton.jit
def conv_backward_input(
    du, y, norm, slopes, weight, shortcut, x, before_y, before, dx, sums,
    pixels, height, width, out_height, out_width,
    CIN: tl.constexpr, COUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SY: tl.constexpr, SX: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr,
    WRAP: tl.constexpr, TURNS: tl.constexpr, PRECISION: tl.constexpr,
    SHORTCUT: tl.constexpr, CHAINED: tl.constexpr, JOINED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's input, through the ReLU before it where that is another block's (`CHAINED`).

    A padded row r of the input lies at r, or a turn before or after; `TURNS` says how many turns must be looked at.
    Where the convolution begins a residual block, the gradient `shortcut` of its end has `SHORTCUT` channels.
    """
    program = tl.program_id(0)
    m = program * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < pixels
    n = m // (height * width)
    iy = m // width % height
    ix = m % width
    ci = tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    parts: tl.constexpr = (KW * COUT + BLOCK_K - 1) // BLOCK_K
    for step in range(KH * TURNS * parts):
        ky = step // parts // TURNS
        k = step % parts * BLOCK_K + tl.arange(0, BLOCK_K)
        ty = iy + (PY - ky)
        if WRAP:
            if TURNS == 1:
                ty = tl.where(ty < 0, ty + height, ty)
                ty = tl.where(ty >= height, ty - height, ty)
            else:
                ty += (step // parts % TURNS - TURNS // 2) * height
        oy = ty // SY
        row_inside = inside & (ty >= 0) & (ty % SY == 0) & (oy < out_height)
        tx = ix[:, None] + PX - (k // COUT)[None, :]
        ox = tx // SX
        mask = row_inside[:, None] & (tx >= 0) & (tx % SX == 0) & (ox < out_width) & (k < KW * COUT)[None, :]
        at = (((n * out_height + oy) * out_width)[:, None] + ox) * COUT + (k % COUT)[None, :]
        grad = tl.load(du + at, mask=mask, other=0.0).to(tl.float32)
        out = tl.load(y + at, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(norm + k % COUT)
        base = tl.load(slopes + k % COUT)
        slope = tl.load(slopes + COUT + k % COUT)
        grad = tl.where(mask, grad * gain[None, :] - base[None, :] - out * slope[None, :], 0.0)
        w = tl.load(
            weight + (k % COUT * KH * KW + ky * KW + k // COUT)[:, None] * CIN + ci[None, :],
            mask=(k < KW * COUT)[:, None] & (ci < CIN)[None, :],
            other=0.0,
        )
        acc = _dot(grad.to(dx.dtype.element_ty), w.to(dx.dtype.element_ty), acc, PRECISION)
    mask = inside[:, None] & (ci < CIN)[None, :]
    if SHORTCUT > 0:
        row = (n * out_height + iy // SY) * out_width + ix // SX
        at = row[:, None] * SHORTCUT + ((SHORTCUT - CIN) // 2 + ci)[None, :]
        acc += tl.load(shortcut + at, mask=mask & ((iy % SY == 0) & (ix % SX == 0))[:, None], other=0.0).to(
            tl.float32
        )
    if CHAINED:
        _store_gradient(acc, x, before_y, before, dx, sums, m, inside, program, CIN, JOINED, BLOCK_N)
    else:
        tl.store(dx + m[:, None] * CIN + ci[None, :], acc.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def conv_backward_weight(
    x, before, du, y, norm, slopes, dweight,
    pixels, height, width, out_height, out_width,
    CIN: tl.constexpr, COUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SY: tl.constexpr, SX: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr,
    WRAP: tl.constexpr, NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A share of the weights' gradient: `dweight` (shares, COUT, KH, KW·CIN), to be summed over the shares.

    Programs: (share of the pixels, row of the kernel, part of KW·CIN).
    """
    share = tl.program_id(0)
    ky = tl.program_id(1)
    k = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    co = tl.arange(0, BLOCK_N)
    known = k < KW * CIN
    if NORMALISE:
        x_gain = tl.load(before + k % CIN)[None, :]
        x_shift = tl.load(before + CIN + k % CIN)[None, :]
    gain = tl.load(norm + co, mask=co < COUT, other=0.0)[None, :]
    base = tl.load(slopes + co, mask=co < COUT, other=0.0)[None, :]
    slope = tl.load(slopes + COUT + co, mask=co < COUT, other=0.0)[None, :]
    acc = tl.zeros((BLOCK_K, BLOCK_N), tl.float32)
    for step in range(STEPS):
        m = (share * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = m < pixels
        n = m // (out_height * out_width)
        iy = m // out_width % out_height * SY + ky - PY
        ix = m % out_width * SX - PX
        if WRAP:
            iy = tl.where(iy < 0, iy + height, iy)
            iy = tl.where(iy >= height, iy - height, iy)
            row_inside = inside
        else:
            row_inside = inside & (iy >= 0) & (iy < height)
        column = ix[:, None] + (k // CIN)[None, :]
        mask = row_inside[:, None] & (column >= 0) & (column < width) & known[None, :]
        row = ((n * height + iy) * width + ix) * CIN
        value = tl.load(x + row[:, None] + k[None, :], mask=mask, other=0.0)
        if NORMALISE:
            value = tl.where(mask, tl.maximum(value.to(tl.float32) * x_gain + x_shift, 0.0), 0.0)
        out_mask = inside[:, None] & (co < COUT)[None, :]
        at = m[:, None] * COUT + co[None, :]
        grad = tl.load(du + at, mask=out_mask, other=0.0).to(tl.float32)
        out = tl.load(y + at, mask=out_mask, other=0.0).to(tl.float32)
        grad = tl.where(out_mask, grad * gain - base - out * slope, 0.0)
        element = du.dtype.element_ty
        acc = _dot(tl.trans(value.to(element)), grad.to(element), acc, PRECISION)
    tl.store(
        dweight + ((share * COUT + co[None, :]) * KH + ky) * (KW * CIN) + k[:, None],
        acc,
        mask=known[:, None] & (co < COUT)[None, :],
    )
