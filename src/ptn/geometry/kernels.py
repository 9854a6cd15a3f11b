"""The Triton kernels of `fused`: images read at points that are computed on the way, and both gradients of it.

A program works on TILE_ROWS rows of one sample's output, TILE_COLUMNS columns at a time, for BLOCKS blocks of its
channels. Where channels lie side by side in memory a block is TILE_INNER of them, the third axis of a tile;
otherwise it is one. Points, taps and weights are computed once for all blocks. The first axis of a tile is the
column, because lanes run along it first: a warp reads 8 columns of 4 rows, a compact patch of the image.

A store ends what may be read ahead, for the compiler cannot know that it goes elsewhere. So TILES_AT_ONCE tiles or
BLOCKS_AT_ONCE blocks are read before the first of them is written.

The point of (row, column) is centre + size·(u, v):
    - "log", "linear": (u, v) lies at angle(row) + turn and radius(column); the centre is `place`, an origin in
      [-1, 1], and the size is `factor`;
    - "plane": (u, v) is (column, row) seen from the middle of the output moved by `place` pixels, turned back;
      the centre is the middle of the image and the size is 1 / `factor`.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Steps(NamedTuple):
    """How far it is in memory to the next sample, outer channel, row, column and inner channel."""

    sample: int
    outer: int
    row: int
    column: int
    inner: int


class PoseSteps(NamedTuple):
    """How far it is in memory to the next sample's turn and factor."""

    turn: int
    factor: int


class Shape(NamedTuple):
    """The image's size, how many rows are written, ½π/rows, and the numbers of the law.

    Row y lies at angle 2πy/rows; column x at radius start·2^(x·step) ("log") or x·step ("linear"). `step_rest` is
    what float32 leaves of `step`.
    """

    height: int
    width: int
    rows: int
    quarter_step: float
    start: float
    step: float
    step_rest: float


class Channels(NamedTuple):
    """How many there are."""

    outer: int
    inner: int


class Pose(NamedTuple):
    """Where one sample's points are: centre + size·(u, v), if all of it is finite."""

    x: Any
    y: Any
    place_x: Any
    place_y: Any
    cos: Any
    sin: Any
    size: Any
    finite: Any


@triton.jit
def sample_kernel(
    images,
    out,
    place,
    turn,
    factor,
    image_steps,
    out_steps,
    pose_steps,
    shape,
    channels,
    LAW: tl.constexpr,
    MODE: tl.constexpr,
    TAPS: tl.constexpr,
    BORDER: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    TILES_AT_ONCE: tl.constexpr,
    BLOCKS_AT_ONCE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_INNER: tl.constexpr,
):
    """out = the images at the points; NaN for a sample whose pose is not finite."""
    sample, row = _share(shape, 1, TILE_ROWS, TILE_INNER)
    pose = _pose(place, turn, factor, pose_steps, sample, shape, LAW)
    row_u, row_v = _row_terms(row, shape, pose, LAW)
    nothing = tl.where(pose.finite, 0.0, float("nan"))
    images += sample.to(tl.int64) * image_steps.sample
    out += sample.to(tl.int64) * out_steps.sample
    for first in tl.range(0, COLUMNS, TILE_COLUMNS * TILES_AT_ONCE):
        for block in tl.range(0, BLOCKS, BLOCKS_AT_ONCE):
            fractions = ()
            pixels = ()
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                x, y, _, _ = _point(row_u, row_v, column, shape, pose, COLUMNS, LAW)
                x0, tx = _first_tap(x, shape.width, MODE, BORDER)
                y0, ty = _first_tap(y, shape.height, MODE, BORDER)
                fractions += (tx, ty)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    offset, exists = _block(block + k, channels, image_steps, BLOCKS, TILE_INNER)
                    for i in tl.static_range(TAPS):
                        for j in tl.static_range(TAPS):
                            pixel, inside = _tap(images + offset, x0, j, y0, i, image_steps, shape, BORDER)
                            if not EVEN:
                                inside &= exists
                            pixels += (tl.load(pixel, inside, other=0.0),)
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    value = nothing
                    for i in tl.static_range(TAPS):
                        line = 0.0
                        for j in tl.static_range(TAPS):
                            pixel = pixels[((tile * BLOCKS_AT_ONCE + k) * TAPS + i) * TAPS + j]
                            line += _weight(fractions[2 * tile], j, MODE) * pixel.to(tl.float32)
                        value += _weight(fractions[2 * tile + 1], i, MODE) * line
                    target, here = _value_at(
                        out, row, column, block + k, channels, out_steps, shape, COLUMNS, BLOCKS, EVEN, TILE_INNER
                    )
                    tl.store(target, value.to(out.dtype.element_ty), here)


@triton.jit
def image_gradient_kernel(
    images,
    grad,
    place,
    turn,
    factor,
    image_steps,
    grad_steps,
    pose_steps,
    shape,
    channels,
    LAW: tl.constexpr,
    MODE: tl.constexpr,
    TAPS: tl.constexpr,
    BORDER: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    TILES_AT_ONCE: tl.constexpr,
    BLOCKS_AT_ONCE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_INNER: tl.constexpr,
):
    """images += the share of every pixel in `grad`, the gradient to what `sample_kernel` wrote."""
    sample, row = _share(shape, 1, TILE_ROWS, TILE_INNER)
    pose = _pose(place, turn, factor, pose_steps, sample, shape, LAW)
    row_u, row_v = _row_terms(row, shape, pose, LAW)
    images += sample.to(tl.int64) * image_steps.sample
    grad += sample.to(tl.int64) * grad_steps.sample
    for first in tl.range(0, COLUMNS, TILE_COLUMNS * TILES_AT_ONCE):
        for block in tl.range(0, BLOCKS, BLOCKS_AT_ONCE):
            slopes = ()
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    source, here = _value_at(
                        grad, row, column, block + k, channels, grad_steps, shape, COLUMNS, BLOCKS, EVEN, TILE_INNER
                    )
                    slopes += (tl.load(source, here, other=0.0),)
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                x, y, _, _ = _point(row_u, row_v, column, shape, pose, COLUMNS, LAW)
                x0, tx = _first_tap(x, shape.width, MODE, BORDER)
                y0, ty = _first_tap(y, shape.height, MODE, BORDER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    offset, exists = _block(block + k, channels, image_steps, BLOCKS, TILE_INNER)
                    here = (row < shape.rows) & (column < COLUMNS)
                    if not EVEN:
                        here &= exists
                    g = tl.where(pose.finite, slopes[tile * BLOCKS_AT_ONCE + k].to(tl.float32), 0.0)
                    for i in tl.static_range(TAPS):
                        for j in tl.static_range(TAPS):
                            pixel, inside = _tap(images + offset, x0, j, y0, i, image_steps, shape, BORDER)
                            weight = _weight(ty, i, MODE) * _weight(tx, j, MODE)
                            tl.atomic_add(pixel, weight * g, inside & here, sem="relaxed")


@triton.jit
def pose_gradient_kernel(
    images,
    grad,
    place,
    turn,
    factor,
    sums,
    image_steps,
    grad_steps,
    pose_steps,
    shape,
    channels,
    LAW: tl.constexpr,
    MODE: tl.constexpr,
    TAPS: tl.constexpr,
    BORDER: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    TILES_AT_ONCE: tl.constexpr,
    BLOCKS_AT_ONCE: tl.constexpr,
    NUMBERS: tl.constexpr,
    ROW_TILES: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_INNER: tl.constexpr,
):
    """sums[program] = its share of the gradient to place and, where NUMBERS is 4, to turn and factor.

    A program works on ROW_TILES tiles one after the other, so that one may do for a whole sample.
    """
    sample, first_row = _share(shape, ROW_TILES, TILE_ROWS, TILE_INNER)
    pose = _pose(place, turn, factor, pose_steps, sample, shape, LAW)
    images += sample.to(tl.int64) * image_steps.sample
    grad += sample.to(tl.int64) * grad_steps.sample
    if TILE_INNER == 1:
        nothing = tl.zeros([TILE_COLUMNS, TILE_ROWS], tl.float32)
    else:
        nothing = tl.zeros([TILE_COLUMNS, TILE_ROWS, TILE_INNER], tl.float32)
    along_x = nothing
    along_y = nothing
    outwards = nothing
    around = nothing
    for row_tile in tl.range(0, ROW_TILES):
        row = first_row + row_tile * TILE_ROWS
        row_u, row_v = _row_terms(row, shape, pose, LAW)
        for first in tl.range(0, COLUMNS, TILE_COLUMNS * TILES_AT_ONCE):
            for block in tl.range(0, BLOCKS, BLOCKS_AT_ONCE):
                points = ()
                slopes = ()
                pixels = ()
                for tile in tl.static_range(TILES_AT_ONCE):
                    column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                    x, y, u, v = _point(row_u, row_v, column, shape, pose, COLUMNS, LAW)
                    x0, tx = _first_tap(x, shape.width, MODE, BORDER)
                    y0, ty = _first_tap(y, shape.height, MODE, BORDER)
                    points += ((x, y, u, v, tx, ty),)
                    for k in tl.static_range(BLOCKS_AT_ONCE):
                        source, here = _value_at(
                            grad,
                            row,
                            column,
                            block + k,
                            channels,
                            grad_steps,
                            shape,
                            COLUMNS,
                            BLOCKS,
                            EVEN,
                            TILE_INNER,
                        )
                        slopes += (tl.load(source, here, other=0.0),)
                        offset, _ = _block(block + k, channels, image_steps, BLOCKS, TILE_INNER)
                        for i in tl.static_range(TAPS):
                            for j in tl.static_range(TAPS):
                                pixel, inside = _tap(images + offset, x0, j, y0, i, image_steps, shape, BORDER)
                                pixels += (tl.load(pixel, inside & here, other=0.0),)
                for tile in tl.static_range(TILES_AT_ONCE):
                    x, y, u, v, tx, ty = points[tile]
                    for k in tl.static_range(BLOCKS_AT_ONCE):
                        slope_x = 0.0
                        slope_y = 0.0
                        for i in tl.static_range(TAPS):
                            line = 0.0
                            line_slope = 0.0
                            for j in tl.static_range(TAPS):
                                pixel = pixels[((tile * BLOCKS_AT_ONCE + k) * TAPS + i) * TAPS + j].to(tl.float32)
                                line += _weight(tx, j, MODE) * pixel
                                line_slope += _slope(tx, j, MODE) * pixel
                            slope_x += _weight(ty, i, MODE) * line_slope
                            slope_y += _slope(ty, i, MODE) * line
                        if BORDER and MODE == "bilinear":  # held at the edge, whichever way the point moves
                            slope_x = tl.where((x > 0) & (x < shape.width - 1), slope_x, 0.0)
                            slope_y = tl.where((y > 0) & (y < shape.height - 1), slope_y, 0.0)
                        g = tl.where(pose.finite, slopes[tile * BLOCKS_AT_ONCE + k].to(tl.float32), 0.0)
                        along_x += g * slope_x
                        along_y += g * slope_y
                        if NUMBERS == 4:
                            outwards += g * (slope_x * u + slope_y * v)
                            around += g * (slope_y * u - slope_x * v)

    sums += (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * NUMBERS
    sum_x = tl.sum(along_x)
    sum_y = tl.sum(along_y)
    if LAW == "plane":
        tl.store(sums, pose.size * (pose.sin * sum_y - pose.cos * sum_x))
        tl.store(sums + 1, -pose.size * (pose.sin * sum_x + pose.cos * sum_y))
    else:
        tl.store(sums, sum_x * (shape.width * 0.5))
        tl.store(sums + 1, sum_y * (shape.height * 0.5))
    if NUMBERS == 4:
        if LAW == "plane":
            tl.store(sums + 2, -pose.size * tl.sum(around))
            tl.store(sums + 3, -pose.size * pose.size * tl.sum(outwards))
        else:
            tl.store(sums + 2, pose.size * tl.sum(around))
            tl.store(sums + 3, tl.sum(outwards))


@triton.jit
def separate_kernel(side_by_side, apart, PIXELS, CHANNELS, TILE_PIXELS: tl.constexpr, TILE_CHANNELS: tl.constexpr):
    """apart (N, CHANNELS, PIXELS) = side_by_side (N, PIXELS, CHANNELS), a tile of it a program."""
    across = tl.cdiv(CHANNELS, TILE_CHANNELS)
    pixel = (tl.program_id(0) // across * TILE_PIXELS + tl.arange(0, TILE_PIXELS))[:, None]
    channel = (tl.program_id(0) % across * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS))[None, :]
    first = tl.program_id(1).to(tl.int64) * PIXELS * CHANNELS
    exists = (pixel < PIXELS) & (channel < CHANNELS)
    values = tl.load(side_by_side + first + (pixel * CHANNELS + channel), exists)
    tl.store(apart + first + (channel * PIXELS + pixel), values.to(apart.dtype.element_ty), exists)


@triton.jit
def _share(shape, ROW_TILES: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_INNER: tl.constexpr):
    """This program's sample, and the rows of the first of its ROW_TILES tiles."""
    programs = tl.cdiv(shape.rows, ROW_TILES * TILE_ROWS)
    sample = tl.program_id(0) // programs
    row = (tl.program_id(0) % programs) * (ROW_TILES * TILE_ROWS) + tl.arange(0, TILE_ROWS)
    if TILE_INNER == 1:
        return sample, row[None, :]
    else:
        return sample, row[None, :, None]


@triton.jit
def _columns(tile, TILE_COLUMNS: tl.constexpr, TILE_INNER: tl.constexpr):
    """The columns of a tile, counted from the first one's."""
    column = tile * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    if TILE_INNER == 1:
        return column[:, None]
    else:
        return column[:, None, None]


@triton.jit
def _block(index, channels, steps, BLOCKS: tl.constexpr, TILE_INNER: tl.constexpr):
    """Where this program's block of channels `index` is in memory, and whether they exist."""
    per_outer = tl.cdiv(channels.inner, TILE_INNER)
    block = tl.program_id(1) * BLOCKS + index
    outer = block // per_outer
    inner = (block % per_outer) * TILE_INNER
    if TILE_INNER > 1:
        inner += tl.arange(0, TILE_INNER)[None, None, :]
    exists = (outer < channels.outer) & (inner < channels.inner)
    return outer * steps.outer + inner * steps.inner, exists


@triton.jit
def _value_at(
    out,
    row,
    column,
    block,
    channels,
    steps,
    shape,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    TILE_INNER: tl.constexpr,
):
    """Where the output has the values of a tile, and whether it has them."""
    offset, exists = _block(block, channels, steps, BLOCKS, TILE_INNER)
    here = (row < shape.rows) & (column < COLUMNS)
    if not EVEN:
        here &= exists
    return out + offset + (row * steps.row + column * steps.column), here


@triton.jit
def _pose(place, turn, factor, steps, sample, shape, LAW: tl.constexpr):
    """The pose of a sample; any that is finite in place of one that is not, whose values nobody gets to see."""
    x = tl.load(place + 2 * sample)
    y = tl.load(place + 2 * sample + 1)
    finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
    size = 1.0
    if turn is not None:
        angle = tl.load(turn + sample * steps.turn)
        finite = finite & (tl.abs(angle) < float("inf"))
    if factor is not None:
        size = tl.load(factor + sample * steps.factor)
        finite = finite & (tl.abs(size) < float("inf"))
        size = tl.where(finite, size, 1.0)
        if LAW == "plane":
            size = tl.div_rn(1.0, size)
    x = tl.where(finite, x, 0.0)
    y = tl.where(finite, y, 0.0)
    cos = 1.0
    sin = 0.0
    if turn is not None:
        angle = tl.where(finite, angle, 0.0)
        cos = tl.cos(angle)
        sin = tl.sin(angle)
    if LAW == "plane":
        centre_x = (shape.width - 1) * 0.5
        centre_y = (shape.height - 1) * 0.5
    else:
        centre_x = (x + 1) * (shape.width * 0.5) - 0.5
        centre_y = (y + 1) * (shape.height * 0.5) - 0.5
    return Pose(centre_x, centre_y, x, y, cos, sin, size, finite)


@triton.jit
def _row_terms(row, shape, pose, LAW: tl.constexpr):
    """What the points of a row share: their direction, or their part of (u, v)."""
    if LAW == "plane":
        offset = row.to(tl.float32) - (shape.rows - 1) * 0.5 - pose.place_y
        return pose.sin * offset, pose.cos * offset
    else:
        cos, sin = _direction(row, shape)
        return cos * pose.cos - sin * pose.sin, sin * pose.cos + cos * pose.sin


@triton.jit
def _direction(row, shape):
    """cos and sin of 2π·row/rows: to the last bit or so, and quarter turns exactly.

    What remains beyond the nearest quarter turn is at most π/4, where a few terms of the series are enough.
    """
    quarters = (row.to(tl.float32) * (shape.quarter_step * (8 / 3.141592653589793)) + 0.5).to(tl.int32)
    angle = (4 * row - quarters * shape.rows).to(tl.float32) * shape.quarter_step
    square = angle * angle
    cos = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square * (1 / 40320))))
    sin = angle + angle * square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square * (1 / 362880))))
    sign = tl.where(quarters % 4 < 2, 1.0, -1.0)
    odd = quarters % 2 == 1
    return sign * tl.where(odd, -sin, cos), sign * tl.where(odd, cos, sin)


@triton.jit
def _point(row_u, row_v, column, shape, pose, COLUMNS: tl.constexpr, LAW: tl.constexpr):
    """(x, y) in pixels of the image, and (u, v)."""
    if LAW == "plane":
        offset = column.to(tl.float32) - (COLUMNS - 1) * 0.5 - pose.place_x
        u = row_u + pose.cos * offset
        v = row_v - pose.sin * offset
    else:
        radius = _radius(column.to(tl.float32), shape, LAW)
        u = row_u * radius
        v = row_v * radius
    return pose.x + pose.size * u, pose.y + pose.size * v, u, v


@triton.jit
def _radius(column, shape, LAW: tl.constexpr):
    power = column * shape.step
    if LAW == "linear":
        return power
    else:  # what rounding took from the power, given back to first order
        rest = tl.fma(column, shape.step, -power) + column * shape.step_rest
        radius = shape.start * tl.exp2(power)
        return radius + radius * (rest * 0.6931471805599453)


@triton.jit
def _first_tap(x, size, MODE: tl.constexpr, BORDER: tl.constexpr):
    """The first pixel along an axis that counts for a point at x, and how far x is from the one before it."""
    if BORDER and MODE != "bicubic":
        x = tl.minimum(tl.maximum(x, 0.0), size - 1.0)
    else:  # so far outside that no tap reaches in, all points are alike
        x = tl.minimum(tl.maximum(x, -4.0), size + 4.0)
    first = tl.floor(x).to(tl.int32)
    t = x - first.to(tl.float32)
    if MODE == "nearest":  # halfway, the even one
        first += ((t > 0.5) | ((t == 0.5) & (first % 2 != 0))).to(tl.int32)
    elif MODE == "bicubic":
        first -= 1
    return first, t


@triton.jit
def _tap(plane, x0, X_TAP: tl.constexpr, y0, Y_TAP: tl.constexpr, steps, shape, BORDER: tl.constexpr):
    """Where a tap is in memory, and whether there is such a pixel."""
    x = x0 + X_TAP
    y = y0 + Y_TAP
    if BORDER:
        x = tl.minimum(tl.maximum(x, 0), shape.width - 1)
        y = tl.minimum(tl.maximum(y, 0), shape.height - 1)
        return plane + (y * steps.row + x * steps.column), x == x
    else:  # the first tap's address, which all of them share, and from there a constant step
        first = plane + (y0 * steps.row + x0 * steps.column)
        pixel = first + (Y_TAP * steps.row + X_TAP * steps.column)
        return pixel, _below(x, shape.width) & _below(y, shape.height)


@triton.jit
def _below(index, size):
    """0 <= index < size."""
    return index.to(tl.uint32, bitcast=True) < size


@triton.jit
def _weight(t, TAP: tl.constexpr, MODE: tl.constexpr):
    """How much a tap counts for a point that is t, in [0, 1), behind the pixel before it; as in `grid_sample`."""
    A: tl.constexpr = -0.75
    if MODE == "nearest":
        return 1.0
    elif MODE == "bilinear":
        return t if TAP == 1 else 1 - t
    elif TAP == 1 or TAP == 2:
        d = t if TAP == 1 else 1 - t
        return ((A + 2) * d - (A + 3)) * d * d + 1
    else:
        d = 1 + t if TAP == 0 else 2 - t
        return ((d - 5) * d + 8) * d * A - 4 * A


@triton.jit
def _slope(t, TAP: tl.constexpr, MODE: tl.constexpr):
    """The derivative of `_weight` with respect to t."""
    A: tl.constexpr = -0.75
    if MODE == "bilinear":
        return 1.0 if TAP == 1 else -1.0
    elif TAP == 1:
        return (3 * (A + 2) * t - 2 * (A + 3)) * t
    elif TAP == 2:
        return -(3 * (A + 2) * (1 - t) - 2 * (A + 3)) * (1 - t)
    elif TAP == 0:
        return ((3 * (1 + t) - 10) * (1 + t) + 8) * A
    else:
        return -((3 * (2 - t) - 10) * (2 - t) + 8) * A
