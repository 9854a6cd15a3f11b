"""Triton kernels for chains of convolution blocks: convolution, batch norm and ReLU, forward and backward.

Layout: feature maps are (N, H, W, C) in memory, where W stands for all spatial axes but the first, and weights are
(C', KH, KW, C). The input of a convolution is stored with its padding, wrapped rows or zeros, so that a row of the
kernel reads one contiguous range of memory for each pixel. 3-D convolutions are cuDNN's; their inputs are stored
with wrapped rows only.

A `norm` is (4, C) or more: gain, shift, mean and 1/deviation of each channel, with norm(y) = gain·y + shift. Each
program writes its own partial sums over pixels, and these are added in a fixed order: results are deterministic.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def _dot(a, b, acc, precision: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=precision, out_dtype=tl.float32)


@triton.jit
def _load_norm(norm, c, C: tl.constexpr):
    """Gain, shift, mean and 1/deviation of the channels `c`, each (1, channels)."""
    gain = tl.load(norm + c, mask=c < C, other=0.0)[None, :]
    shift = tl.load(norm + C + c, mask=c < C, other=0.0)[None, :]
    mean = tl.load(norm + 2 * C + c, mask=c < C, other=0.0)[None, :]
    inverse = tl.load(norm + 3 * C + c, mask=c < C, other=0.0)[None, :]
    return gain, shift, mean, inverse


@triton.jit
def _unpad(m, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, WRAP: tl.constexpr):
    """The index into (N, H, W) of pixel `m` of the padded map (N, H + 2·PY, W + 2·PX), and False for a zero."""
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
    NORMALIZE: tl.constexpr, CX: tl.constexpr, HX: tl.constexpr, WX: tl.constexpr,
    STRIDE: tl.constexpr, PYX: tl.constexpr, PXX: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """z = max(norm(y) + shortcut, 0), padded; without `NORMALIZE`, z is y, padded.

    The shortcut is every `STRIDE`-th pixel of `x`, which is padded by PYX and PXX. Its CX channels are added to the
    middle channels of z. Without a shortcut CX is 0.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    at, there = _unpad(m, H, W, PY, PX, WRAP)
    stored = (m < pixels)[:, None] & (c < C)[None, :]
    mask = stored & there[:, None]
    value = tl.load(y + at[:, None] * C + c[None, :], mask=mask, other=0.0)
    if NORMALIZE:
        gain, shift, _mean, _inverse = _load_norm(norm, c, C)
        value = value.to(tl.float32) * gain + shift
        if CX > 0:
            row = at // (H * W) * (HX + 2 * PYX) + at // W % H * STRIDE + PYX
            from_x = row * (WX + 2 * PXX) + at % W * STRIDE + PXX
            ci = c - (C - CX) // 2
            middle = mask & ((ci >= 0) & (ci < CX))[None, :]
            value += tl.load(x + from_x[:, None] * CX + ci[None, :], mask=middle, other=0.0).to(tl.float32)
        value = tl.where(mask, tl.maximum(value, 0.0), 0.0)
    tl.store(z + m[:, None] * C + c[None, :], value.to(z.dtype.element_ty), mask=stored)


@triton.jit
def sum_channels(
    y, sums, pixels, C: tl.constexpr, STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Sum and squared deviation per channel of the pixels of each program: `sums` (2, C, programs)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, BLOCK_N)
    total = tl.full((), 0.0, tl.float32)
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
        share = count / tl.maximum(total + count, 1.0)
        squares += tl.sum(deviation * deviation, axis=0) + (own - mean) * (own - mean) * total * share
        mean += (own - mean) * share
        total += count
    tl.store(sums + c * programs + program, mean * total, mask=c < C)
    tl.store(sums + (C + c) * programs + program, squares, mask=c < C)


@triton.jit
def norm_forward(
    sums, scale, offset, norm, pixels, programs, eps,
    C: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One channel of `norm` (5, C), its last row the unbiased variance, from `sums` over BLOCK_M pixels each."""
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
def norm_backward(sums, norm, dnorm, pixels, programs, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """One channel of `dnorm` (4, C): base and factor, with dy = gain·du − base − factor·y, and the gradients of the
    scale and offset of batch norm."""
    c = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    total = tl.sum(tl.load(sums + c * programs + p, mask=p < programs, other=0.0), axis=0)
    moment = tl.sum(tl.load(sums + (C + c) * programs + p, mask=p < programs, other=0.0), axis=0)
    gain = tl.load(norm + c)
    factor = gain * tl.load(norm + 3 * C + c) * moment / pixels
    tl.store(dnorm + c, gain * total / pixels - factor * tl.load(norm + 2 * C + c))
    tl.store(dnorm + C + c, factor)
    tl.store(dnorm + 2 * C + c, moment)
    tl.store(dnorm + 3 * C + c, total)


@triton.jit
def output_gradient(
    du, y, norm, dnorm, dy, pixels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, WRAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's output y from that of norm(y): dy = gain·du − base − factor·y, padded."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    known = c < C
    at, there = _unpad(m, H, W, PY, PX, WRAP)
    stored = (m < pixels)[:, None] & known[None, :]
    mask = stored & there[:, None]
    grad = tl.load(du + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    value = tl.load(y + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    gain = tl.load(norm + c, mask=known, other=0.0)
    base = tl.load(dnorm + c, mask=known, other=0.0)
    factor = tl.load(dnorm + C + c, mask=known, other=0.0)
    grad = tl.where(mask, grad * gain[None, :] - base[None, :] - value * factor[None, :], 0.0)
    tl.store(dy + m[:, None] * C + c[None, :], grad.to(dy.dtype.element_ty), mask=stored)


@triton.jit
def _pass_relu(
    grad, z, y, gain, shift, mean, inverse, du, m, at_z, inside, c, C: tl.constexpr, JOINED: tl.constexpr
):
    """Store the gradient before a ReLU; return its sum, and that of its product with the normalized y, per channel.

    The ReLU passes where its output z is positive (`JOINED`, with a shortcut), else where norm(y) is.
    """
    mask = inside[:, None] & (c < C)[None, :]
    value = tl.load(y + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    if JOINED:
        passed = tl.load(z + at_z[:, None] * C + c[None, :], mask=mask, other=0.0) > 0
    else:
        passed = mask & (value * gain + shift > 0)
    kept = tl.where(passed, grad, 0.0).to(du.dtype.element_ty)
    tl.store(du + m[:, None] * C + c[None, :], kept, mask=mask)
    kept = kept.to(tl.float32)
    return tl.sum(kept, axis=0), tl.sum(kept * ((value - mean) * inverse), axis=0)


@triton.jit
def relu_backward(
    dz, around, z, y, norm, du, sums, pixels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, PY: tl.constexpr, AROUND: tl.constexpr, JOINED: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient before a ReLU, and its `sums` (2, C, programs) for batch norm.

    `dz` is the gradient of the ReLU's output, which is wrapped by PY rows on each side; with `AROUND`, the gradient
    `around` of a shortcut is added. z is wrapped like dz; see `_pass_relu`.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, BLOCK_N)
    gain, shift, mean, inverse = _load_norm(norm, c, C)
    total = tl.zeros([BLOCK_N], tl.float32)
    moment = tl.zeros([BLOCK_N], tl.float32)
    for step in range(STEPS):
        m = (program * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = m < pixels
        mask = inside[:, None] & (c < C)[None, :]
        row = m // W % H
        at = m + (m // (W * H) * 2 + 1) * PY * W  # in the wrapped map
        grad = tl.load(dz + at[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        if PY > 0:
            above = mask & (row < PY)[:, None]
            grad += tl.load(dz + (at + H * W)[:, None] * C + c[None, :], mask=above, other=0.0).to(tl.float32)
            below = mask & (row >= H - PY)[:, None]
            grad += tl.load(dz + (at - H * W)[:, None] * C + c[None, :], mask=below, other=0.0).to(tl.float32)
        if AROUND:
            grad += tl.load(around + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        own, product = _pass_relu(grad, z, y, gain, shift, mean, inverse, du, m, at, inside, c, C, JOINED)
        total += own
        moment += product
    tl.store(sums + c * programs + program, total, mask=c < C)
    tl.store(sums + (C + c) * programs + program, moment, mask=c < C)


@triton.jit
def conv_forward(
    x, weight, y, sums, pixels,
    CIN: tl.constexpr, COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    SUMS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """y (N, HO, WO, COUT) = conv(x) for padded x (N, H, W, CIN); with `SUMS`, sums as of `sum_channels`."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    m = program * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < pixels
    co = tl.arange(0, BLOCK_N)
    start = ((m // (HO * WO) * H + m // WO % HO * SY) * W + m % WO * SX) * CIN
    start = tl.where(inside, start, 0)
    run: tl.constexpr = KW * CIN
    chunks: tl.constexpr = (run + BLOCK_K - 1) // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(KH * chunks):
        ky = step // chunks
        k = step % chunks * BLOCK_K + tl.arange(0, BLOCK_K)
        at = start[:, None] + (ky * (W * CIN) + k)[None, :]
        at_w = co[None, :] * (KH * run) + (ky * run + k)[:, None]
        if run % BLOCK_K == 0:
            value = tl.load(x + at)
            w = tl.load(weight + at_w, mask=(co < COUT)[None, :], other=0.0)
        else:
            value = tl.load(x + at, mask=(k < run)[None, :], other=0.0)
            w = tl.load(weight + at_w, mask=(k < run)[:, None] & (co < COUT)[None, :], other=0.0)
        acc = _dot(value, w, acc, PRECISION)
    stored = acc.to(y.dtype.element_ty)
    tl.store(y + m[:, None] * COUT + co[None, :], stored, mask=inside[:, None] & (co < COUT)[None, :])
    if SUMS:
        value = tl.where(inside[:, None], stored.to(tl.float32), 0.0)
        count = tl.minimum(pixels - program * BLOCK_M, BLOCK_M)
        total = tl.sum(value, axis=0)
        deviation = tl.where(inside[:, None], value - (total / count)[None, :], 0.0)
        tl.store(sums + co * programs + program, total, mask=co < COUT)
        tl.store(sums + (COUT + co) * programs + program, tl.sum(deviation * deviation, axis=0), mask=co < COUT)


@triton.jit
def conv_backward_input(
    dy, weight, shortcut, x, before_y, before, dx, sums, tiles,
    CIN: tl.constexpr, COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PY: tl.constexpr, PX: tl.constexpr, DPY: tl.constexpr, DPX: tl.constexpr, PERIODS: tl.constexpr,
    PRECISION: tl.constexpr, SHORTCUT: tl.constexpr, CHAINED: tl.constexpr, JOINED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's input (N, H, W, CIN) from `dy` (N, HO, WO, COUT), padded by DPY and DPX.

    With `CHAINED` it is the gradient before the ReLU of the preceding block: `before_y` is the output of its
    convolution, `before` its norm, and x its output, padded by PY and PX; see `_pass_relu`. If the convolution
    begins a residual block, `shortcut` is the gradient at the end of the block, with `SHORTCUT` channels.

    Programs: (tile of pixels, offset within the stride): the taps that reach a pixel depend only on its offset.
    With wrapping, a row also contributes one period before and after itself. `PERIODS` is 3 if the kernel reads
    all of them, and 1 if the padding of dy already contains them.
    """
    offset = 0 if SY * SX == 1 else tl.program_id(1)
    offset_y = offset // SX
    offset_x = offset % SX
    rows: tl.constexpr = (H + SY - 1) // SY
    columns: tl.constexpr = (W + SX - 1) // SX
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = i // (rows * columns)
    iy = i // columns % rows * SY + offset_y
    ix = i % columns * SX + offset_x
    inside = (i < tiles) & (iy < H) & (ix < W)
    m = (n * H + iy) * W + ix
    ci = tl.arange(0, BLOCK_N)
    chunks: tl.constexpr = (COUT + BLOCK_K - 1) // BLOCK_K
    taps_y: tl.constexpr = (KH + SY - 1) // SY
    taps_x: tl.constexpr = (KW + SX - 1) // SX
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(PERIODS * taps_y * taps_x * chunks):
        to = PY + (step // (taps_y * taps_x * chunks) - PERIODS // 2) * H
        # the first tap that reaches this offset, and every stride-th after it
        ky = (offset_y + to + H * SY) % SY + step // (taps_x * chunks) % taps_y * SY
        kx = (offset_x + PX) % SX + step // chunks % taps_x * SX
        k = step % chunks * BLOCK_K + tl.arange(0, BLOCK_K)
        oy = (iy + to - ky + KH * SY) // SY - KH
        ox = (ix + PX - kx + KW * SX) // SX - KW
        known = (k < COUT) & (ky < KH) & (kx < KW)
        reached = inside & (oy >= 0) & (oy < HO) if PERIODS > 1 else inside
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
        program = tl.program_id(0) * (SY * SX) + offset
        programs = tl.num_programs(0) * (SY * SX)
        gain, shift, mean, inverse = _load_norm(before, ci, CIN)
        total, moment = _pass_relu(
            acc, x, before_y, gain, shift, mean, inverse, dx, m, at_x, inside, ci, CIN, JOINED
        )
        tl.store(sums + ci * programs + program, total, mask=ci < CIN)
        tl.store(sums + (CIN + ci) * programs + program, moment, mask=ci < CIN)
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
    """One split of the gradient of the weights: `dweight` (splits, COUT, KH, KW·CIN), to be summed over the splits.

    x is padded to (N, H, W, CIN), dy (N, HO, WO, COUT) by DPY and DPX. Programs: (split of the pixels, row of the
    kernel, chunk of KW·CIN).
    """
    split = tl.program_id(0)
    ky = tl.program_id(1)
    k = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    co = tl.arange(0, BLOCK_N)
    run: tl.constexpr = KW * CIN
    acc = tl.zeros((BLOCK_K, BLOCK_N), tl.float32)
    for step in range(STEPS):
        m = (split * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
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
        dweight + ((split * COUT + co[None, :]) * KH + ky) * run + k[:, None],
        acc,
        mask=(k < run)[:, None] & (co < COUT)[None, :],
    )


@triton.jit
def sum_splits(partial, table, total, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK: tl.constexpr):
    """The sums over the splits of all layers. Row p of `table` is for program p: where its values begin, how many
    there are, the distance from one split to the next, and the number of splits."""
    program = tl.program_id(0)
    begin = tl.load(table + program * 4)
    count = tl.load(table + program * 4 + 1)
    step = tl.load(table + program * 4 + 2)
    splits = tl.load(table + program * 4 + 3)
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK_S, BLOCK), tl.float32)
    for first in range(0, SPLITS, BLOCK_S):
        split = first + tl.arange(0, BLOCK_S)
        mask = (split < splits)[:, None] & (i < count)[None, :]
        acc += tl.load(partial + begin + split[:, None] * step + i[None, :], mask=mask, other=0.0)
    tl.store(total + program * BLOCK + i, tl.sum(acc, axis=0))
