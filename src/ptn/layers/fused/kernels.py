"""Triton kernels of a chain of convolution blocks: convolution, batch norm and ReLU, forwards and backwards.

Feature maps lie in memory as (N, H, W, C), weights as (C', KH, KW, C). What a convolution reads was written with
the padding around it that it needs, wrapped rows or zeros, so that a row of its kernel is one run of memory for
every pixel. Sums over pixels are written per program and added up in a fixed order, so that equal inputs give
equal bits. A `norm` is (4, C) or more: gain, shift, mean and 1/deviation of each channel.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def _dot(a, b, acc, precision: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=precision, out_dtype=tl.float32)


@triton.jit
def _pad(m, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, WRAP: tl.constexpr):
    """The pixel (N, H, W) that stands at `m` of the padded map (N, H + 2·PY, W + 2·PX), and whether one does."""
    iy = m // (W + 2 * PX) % (H + 2 * PY) - PY
    ix = m % (W + 2 * PX) - PX
    there = (ix >= 0) & (ix < W)
    if WRAP:
        iy = tl.where(iy < 0, iy + H, iy)
        iy = tl.where(iy >= H, iy - H, iy)
    else:
        there = there & (iy >= 0) & (iy < H)
    return (m // ((W + 2 * PX) * (H + 2 * PY)) * H + iy) * W + ix, there


@triton.jit
def apply_norm(
    y, norm, x, z, pixels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, WRAP: tl.constexpr,
    NORMALISE: tl.constexpr, CX: tl.constexpr, HX: tl.constexpr, WX: tl.constexpr,
    STRIDE: tl.constexpr, PYX: tl.constexpr, PXX: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """z = max(gain·y + shift, 0), padded; or just y (not `NORMALISE`); or with a shortcut added before the max.

    The shortcut is every `STRIDE`-th pixel of `x`, itself padded by PYX and PXX, whose CX channels are in the
    middle of z's. Without a shortcut CX is 0.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    known = c < C
    at, there = _pad(m, H, W, PY, PX, WRAP)
    stored = (m < pixels)[:, None] & known[None, :]
    mask = stored & there[:, None]
    value = tl.load(y + at[:, None] * C + c[None, :], mask=mask, other=0.0)
    if NORMALISE:
        gain = tl.load(norm + c, mask=known, other=0.0)
        shift = tl.load(norm + C + c, mask=known, other=0.0)
        value = value.to(tl.float32) * gain[None, :] + shift[None, :]
        if CX > 0:
            row = at // (H * W) * (HX + 2 * PYX) + at // W % H * STRIDE + PYX
            from_x = row * (WX + 2 * PXX) + at % W * STRIDE + PXX
            ci = c - (C - CX) // 2
            middle = mask & ((ci >= 0) & (ci < CX))[None, :]
            value += tl.load(x + from_x[:, None] * CX + ci[None, :], mask=middle, other=0.0).to(tl.float32)
        value = tl.where(mask, tl.maximum(value, 0.0), 0.0)
    tl.store(z + m[:, None] * C + c[None, :], value.to(z.dtype.element_ty), mask=stored)


@triton.jit
def norm_forward(
    sums, scale, offset, norm, pixels, programs, eps,
    C: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One channel of `norm` (5, C) from the programs' `sums` (2, C, programs); the last: unbiased variance."""
    c = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    count = tl.maximum(tl.minimum(pixels - p * BLOCK_M, BLOCK_M), 1).to(tl.float32)
    part = tl.load(sums + c * programs + p, mask=p < programs, other=0.0)
    within = tl.load(sums + (C + c) * programs + p, mask=p < programs, other=0.0)
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
def norm_backward(sums, norm, slopes, pixels, programs, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """One channel of `slopes` (4, C): base and slope, with which y's gradient is gain·du − base − slope·y; and the
    gradients of batch norm's scale and offset."""
    c = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    total = tl.sum(tl.load(sums + c * programs + p, mask=p < programs, other=0.0), axis=0)
    moment = tl.sum(tl.load(sums + (C + c) * programs + p, mask=p < programs, other=0.0), axis=0)
    gain = tl.load(norm + c)
    slope = gain * tl.load(norm + 3 * C + c) * moment / pixels
    tl.store(slopes + c, gain * total / pixels - slope * tl.load(norm + 2 * C + c))
    tl.store(slopes + C + c, slope)
    tl.store(slopes + 2 * C + c, moment)
    tl.store(slopes + 3 * C + c, total)


@triton.jit
def spread_gradient(
    du, y, norm, slopes, dy, pixels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, WRAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's output y, padded: gain·du − base − slope·y."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    known = c < C
    at, there = _pad(m, H, W, PY, PX, WRAP)
    stored = (m < pixels)[:, None] & known[None, :]
    mask = stored & there[:, None]
    grad = tl.load(du + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    value = tl.load(y + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    gain = tl.load(norm + c, mask=known, other=0.0)
    base = tl.load(slopes + c, mask=known, other=0.0)
    slope = tl.load(slopes + C + c, mask=known, other=0.0)
    grad = tl.where(mask, grad * gain[None, :] - base[None, :] - value * slope[None, :], 0.0)
    tl.store(dy + m[:, None] * C + c[None, :], grad.to(dy.dtype.element_ty), mask=stored)


@triton.jit
def _store_output(acc, y, sums, m, inside, pixels, C: tl.constexpr, SUMS: tl.constexpr, BLOCK_M: tl.constexpr, c):
    """A convolution's output, and of each program's pixels the sum and the squared deviation per channel."""
    stored = acc.to(y.dtype.element_ty)
    tl.store(y + m[:, None] * C + c[None, :], stored, mask=inside[:, None] & (c < C)[None, :])
    if SUMS:
        program, programs = tl.program_id(0), tl.num_programs(0)
        value = tl.where(inside[:, None], stored.to(tl.float32), 0.0)
        count = tl.minimum(pixels - program * BLOCK_M, BLOCK_M)
        total = tl.sum(value, axis=0)
        deviation = tl.where(inside[:, None], value - (total / count)[None, :], 0.0)
        tl.store(sums + c * programs + program, total, mask=c < C)
        tl.store(sums + (C + c) * programs + program, tl.sum(deviation * deviation, axis=0), mask=c < C)


@triton.jit
def _store_gradient(
    grad, z, y, norm, du, sums, m, at_z, inside, program, programs,
    C: tl.constexpr, JOINED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Keep the gradient where the ReLU let through, and each program's sums of it that batch norm asks for.

    It let through where z is positive: the output with a shortcut (`JOINED`), else that of the norm itself.
    """
    c = tl.arange(0, BLOCK_N)
    known = c < C
    mask = inside[:, None] & known[None, :]
    value = tl.load(y + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    if JOINED:
        passed = tl.load(z + at_z[:, None] * C + c[None, :], mask=mask, other=0.0) > 0
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
    tl.store(sums + c * programs + program, tl.sum(kept, axis=0), mask=known)
    tl.store(sums + (C + c) * programs + program, tl.sum(kept * unit, axis=0), mask=known)


@triton.jit
def activate_backward(
    dz, z, y, norm, du, sums, pixels,
    C: tl.constexpr, JOINED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of the chain's last ReLU, before batch norm."""
    program = tl.program_id(0)
    m = program * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    inside = m < pixels
    mask = inside[:, None] & (c < C)[None, :]
    grad = tl.load(dz + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    _store_gradient(
        grad, z, y, norm, du, sums, m, m, inside, program, tl.num_programs(0), C, JOINED, BLOCK_N
    )  # fmt: skip


@triton.jit
def conv_forward(
    x, weight, y, sums, pixels,
    CIN: tl.constexpr, COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    SUMS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """y (N, HO, WO, COUT) = conv(x), of x padded to (N, H, W, CIN); and the `sums` (2, COUT, programs)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < pixels
    co = tl.arange(0, BLOCK_N)
    start = ((m // (HO * WO) * H + m // WO % HO * SY) * W + m % WO * SX) * CIN
    start = tl.where(inside, start, 0)
    run: tl.constexpr = KW * CIN
    parts: tl.constexpr = (run + BLOCK_K - 1) // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(KH * parts):
        ky = step // parts
        k = step % parts * BLOCK_K + tl.arange(0, BLOCK_K)
        at = start[:, None] + (ky * (W * CIN) + k)[None, :]
        at_w = co[None, :] * (KH * run) + (ky * run + k)[:, None]
        if run % BLOCK_K == 0:
            value = tl.load(x + at)
            w = tl.load(weight + at_w, mask=(co < COUT)[None, :], other=0.0)
        else:
            value = tl.load(x + at, mask=(k < run)[None, :], other=0.0)
            w = tl.load(weight + at_w, mask=(k < run)[:, None] & (co < COUT)[None, :], other=0.0)
        acc = _dot(value, w, acc, PRECISION)
    _store_output(acc, y, sums, m, inside, pixels, COUT, SUMS, BLOCK_M, co)


@triton.jit
def conv_backward_input(
    dy, weight, shortcut, x, before_y, before, dx, sums, tiles,
    CIN: tl.constexpr, COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PY: tl.constexpr, PX: tl.constexpr, DPY: tl.constexpr, DPX: tl.constexpr, TURNS: tl.constexpr,
    PRECISION: tl.constexpr, SHORTCUT: tl.constexpr, CHAINED: tl.constexpr, JOINED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's input (N, H, W, CIN), through the ReLU before it where another block's is
    (`CHAINED`), from that of its output, `dy` (N, HO, WO, COUT) padded by DPY and DPX.

    Programs: (part of the pixels, which of the SY·SX places within a stride): which taps reach a pixel depends on
    its place only. A padded row of the input lies at its row, or a turn before or after; `TURNS` says how many
    turns must be looked at, 1 where dy's rows are padded by wrapping. Where the convolution begins a residual
    block, the gradient `shortcut` of its end has `SHORTCUT` channels. x is padded by PY and PX.
    """
    place = 0 if SY * SX == 1 else tl.program_id(1)
    place_y = place // SX
    place_x = place % SX
    rows: tl.constexpr = (H + SY - 1) // SY
    columns: tl.constexpr = (W + SX - 1) // SX
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = i // (rows * columns)
    iy = i // columns % rows * SY + place_y
    ix = i % columns * SX + place_x
    inside = (i < tiles) & (iy < H) & (ix < W)
    m = (n * H + iy) * W + ix
    ci = tl.arange(0, BLOCK_N)
    parts: tl.constexpr = (COUT + BLOCK_K - 1) // BLOCK_K
    taps_y: tl.constexpr = (KH + SY - 1) // SY
    taps_x: tl.constexpr = (KW + SX - 1) // SX
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(TURNS * taps_y * taps_x * parts):
        to = PY + (step // (taps_y * taps_x * parts) - TURNS // 2) * H
        # the first tap that reaches this place, and every stride-th after it
        ky = (place_y + to + H * SY) % SY + step // (taps_x * parts) % taps_y * SY
        kx = (place_x + PX) % SX + step // parts % taps_x * SX
        k = step % parts * BLOCK_K + tl.arange(0, BLOCK_K)
        oy = (iy + to - ky + KH * SY) // SY - KH
        ox = (ix + PX - kx + KW * SX) // SX - KW
        known = (k < COUT) & (ky < KH) & (kx < KW)
        reached = inside & (oy >= 0) & (oy < HO) if TURNS > 1 else inside
        start = ((n * (HO + 2 * DPY) + oy + DPY) * (WO + 2 * DPX) + ox + DPX) * COUT
        at_w = ((k * KH + ky) * KW + kx)[:, None] * CIN + ci[None, :]
        value = tl.load(dy + start[:, None] + k[None, :], mask=reached[:, None] & known[None, :], other=0.0)
        w = tl.load(weight + at_w, mask=known[:, None] & (ci < CIN)[None, :], other=0.0)
        acc = _dot(value, w, acc, PRECISION)
    mask = inside[:, None] & (ci < CIN)[None, :]
    if SHORTCUT > 0:
        row = (n * HO + iy // SY) * WO + ix // SX
        at = row[:, None] * SHORTCUT + ((SHORTCUT - CIN) // 2 + ci)[None, :]
        there = mask & ((iy % SY == 0) & (ix % SX == 0))[:, None]
        acc += tl.load(shortcut + at, mask=there, other=0.0).to(tl.float32)
    if CHAINED:
        at_x = (n * (H + 2 * PY) + iy + PY) * (W + 2 * PX) + ix + PX
        program = tl.program_id(0) * (SY * SX) + place
        _store_gradient(
            acc, x, before_y, before, dx, sums, m, at_x, inside, program, tl.num_programs(0) * (SY * SX),
            CIN, JOINED, BLOCK_N,
        )  # fmt: skip
    else:
        tl.store(dx + m[:, None] * CIN + ci[None, :], acc.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def conv_backward_weight(
    x, dy, dweight, pixels,
    CIN: tl.constexpr, COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr, DPY: tl.constexpr, DPX: tl.constexpr,
    PRECISION: tl.constexpr, STEPS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A share of the weights' gradient: `dweight` (shares, COUT, KH, KW·CIN), to be summed over the shares.

    x is padded to (N, H, W, CIN), dy (N, HO, WO, COUT) by DPY and DPX. Programs: (share of the pixels, row of the
    kernel, part of KW·CIN).
    """
    share = tl.program_id(0)
    ky = tl.program_id(1)
    k = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    co = tl.arange(0, BLOCK_N)
    run: tl.constexpr = KW * CIN
    acc = tl.zeros((BLOCK_K, BLOCK_N), tl.float32)
    for step in range(STEPS):
        m = (share * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = m < pixels
        n = m // (HO * WO)
        oy = m // WO % HO
        ox = m % WO
        start = ((n * H + oy * SY + ky) * W + ox * SX) * CIN
        at_dy = ((n * (HO + 2 * DPY) + oy + DPY) * (WO + 2 * DPX) + ox + DPX) * COUT
        value = tl.load(x + start[:, None] + k[None, :], mask=inside[:, None] & (k < run)[None, :], other=0.0)
        grad = tl.load(dy + at_dy[:, None] + co[None, :], mask=inside[:, None] & (co < COUT)[None, :], other=0.0)
        acc = _dot(tl.trans(value), grad, acc, PRECISION)
    tl.store(
        dweight + ((share * COUT + co[None, :]) * KH + ky) * run + k[:, None],
        acc,
        mask=(k < run)[:, None] & (co < COUT)[None, :],
    )


@triton.jit
def sum_shares(partial, table, total, SHARES: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK: tl.constexpr):
    """All layers' shares summed. A program's row of `table`: where its values begin, how many there are, how far it
    is from one share to the next, and how many shares. Its sums go to its place in `total`."""
    program = tl.program_id(0)
    begin = tl.load(table + program * 4)
    count = tl.load(table + program * 4 + 1)
    step = tl.load(table + program * 4 + 2)
    shares = tl.load(table + program * 4 + 3)
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK_S, BLOCK), tl.float32)
    for first in range(0, SHARES, BLOCK_S):
        share = first + tl.arange(0, BLOCK_S)
        mask = (share < shares)[:, None] & (i < count)[None, :]
        acc += tl.load(partial + begin + share[:, None] * step + i[None, :], mask=mask, other=0.0)
    tl.store(total + program * BLOCK + i, tl.sum(acc, axis=0))
