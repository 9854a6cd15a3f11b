"""Triton kernels that sample images at computed points, and their gradients.

A program computes TILE_ROWS rows of the output of one sample, TILE_COLUMNS columns at a time, for BLOCKS blocks of
channels. A block is TILE_INNER channels, the third axis of a tile, if channels are interleaved in memory, and one
channel otherwise. Points, taps and weights are computed once for all blocks. Columns are the first axis of a tile,
because lanes run along it first: a warp reads 8 columns of 4 rows, a compact patch of the image.

The compiler does not move loads across a store, which may alias. So TILES_AT_ONCE tiles or BLOCKS_AT_ONCE blocks
are loaded before the first of them is stored.

The point of (row, column) is center + size·(u, v):
    - "log", "linear": (u, v) lies at angle(row) + rotation and radius(column); the center is `position`, an origin
      in [-1, 1], and the size is `scale`. With a `matrix` of two rows and three columns, (u, v) is
      radius(column)·matrix·(cos angle(row), sin angle(row), 1): ellipses, and circles with different centres;
    - "plane": (u, v) is (column, row) relative to the middle of the output shifted by `position` pixels, rotated
      back; the center is the middle of the image and the size is 1 / `scale`. With a `matrix`, (u, v) is
      matrix·(column, row, 1) of these.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Strides(NamedTuple):
    """Strides of sample, outer channel, row, column and inner channel."""

    sample: int
    outer: int
    row: int
    column: int
    inner: int


class PoseStrides(NamedTuple):
    """Strides of the rotation and the scale of a sample."""

    rotation: int
    scale: int


class Shape(NamedTuple):
    """Size of the image, number of output rows, rows of a full turn, ½π/turn_rows, and the constants of the law.

    Row y lies at angle 2πy/turn_rows; column x at radius start·2^(x·step) ("log") or start + x·step ("linear").
    `step_rest` is the rounding error of `step` in float32.
    """

    height: int
    width: int
    rows: int
    turn_rows: float
    quarter_step: float
    start: float
    step: float
    step_rest: float


class Channels(NamedTuple):
    """Numbers of channels."""

    outer: int
    inner: int


class Pose(NamedTuple):
    """Parameters of the points of one sample; `finite` if all of them are."""

    x: Any
    y: Any
    shift_x: Any
    shift_y: Any
    cos: Any
    sin: Any
    size: Any
    finite: Any


@triton.jit
def sample_kernel(
    images, out, position, rotation, scale, matrix, image_strides, out_strides, pose_strides, shape, channels,
    LAW: tl.constexpr, MODE: tl.constexpr, TAPS: tl.constexpr, BORDER: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, EVEN: tl.constexpr, TILES_AT_ONCE: tl.constexpr, BLOCKS_AT_ONCE: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr, TILE_INNER: tl.constexpr,
):  # fmt: skip
    """out = images at the points; NaN for a sample whose pose is not finite."""
    sample, row = _program_rows(shape, 1, TILE_ROWS, TILE_INNER)
    pose = _pose(position, rotation, scale, matrix, pose_strides, sample, shape, LAW)
    row_u, row_v = _row_terms(row, shape, pose, matrix, sample, LAW)
    initial = tl.where(pose.finite, 0.0, float("nan"))
    images += sample.to(tl.int64) * image_strides.sample
    out += sample.to(tl.int64) * out_strides.sample
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
                    offset, exists = _block(block + k, channels, image_strides, BLOCKS, TILE_INNER)
                    for i in tl.static_range(TAPS):
                        for j in tl.static_range(TAPS):
                            pixel, inside = _tap(images + offset, x0, j, y0, i, image_strides, shape, BORDER)
                            if not EVEN:
                                inside &= exists
                            pixels += (tl.load(pixel, inside, other=0.0),)
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    value = initial
                    for i in tl.static_range(TAPS):
                        line = 0.0
                        for j in tl.static_range(TAPS):
                            pixel = pixels[((tile * BLOCKS_AT_ONCE + k) * TAPS + i) * TAPS + j]
                            line += _weight(fractions[2 * tile], j, MODE) * pixel.to(tl.float32)
                        value += _weight(fractions[2 * tile + 1], i, MODE) * line
                    target, here = _output_at(
                        out, row, column, block + k, channels, out_strides, shape,
                        COLUMNS, BLOCKS, EVEN, TILE_INNER,
                    )  # fmt: skip
                    tl.store(target, value.to(out.dtype.element_ty), here)


@triton.jit
def image_gradient_kernel(
    images, grad, position, rotation, scale, matrix, image_strides, grad_strides, pose_strides, shape, channels,
    LAW: tl.constexpr, MODE: tl.constexpr, TAPS: tl.constexpr, BORDER: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, EVEN: tl.constexpr, TILES_AT_ONCE: tl.constexpr, BLOCKS_AT_ONCE: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr, TILE_INNER: tl.constexpr,
):  # fmt: skip
    """images += gradient of the images, given `grad`, the gradient of the output of `sample_kernel`."""
    sample, row = _program_rows(shape, 1, TILE_ROWS, TILE_INNER)
    pose = _pose(position, rotation, scale, matrix, pose_strides, sample, shape, LAW)
    row_u, row_v = _row_terms(row, shape, pose, matrix, sample, LAW)
    images += sample.to(tl.int64) * image_strides.sample
    grad += sample.to(tl.int64) * grad_strides.sample
    for first in tl.range(0, COLUMNS, TILE_COLUMNS * TILES_AT_ONCE):
        for block in tl.range(0, BLOCKS, BLOCKS_AT_ONCE):
            grads = ()
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    source, here = _output_at(
                        grad, row, column, block + k, channels, grad_strides, shape,
                        COLUMNS, BLOCKS, EVEN, TILE_INNER,
                    )  # fmt: skip
                    grads += (tl.load(source, here, other=0.0),)
            for tile in tl.static_range(TILES_AT_ONCE):
                column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                x, y, _, _ = _point(row_u, row_v, column, shape, pose, COLUMNS, LAW)
                x0, tx = _first_tap(x, shape.width, MODE, BORDER)
                y0, ty = _first_tap(y, shape.height, MODE, BORDER)
                for k in tl.static_range(BLOCKS_AT_ONCE):
                    offset, exists = _block(block + k, channels, image_strides, BLOCKS, TILE_INNER)
                    here = (row < shape.rows) & (column < COLUMNS)
                    if not EVEN:
                        here &= exists
                    g = tl.where(pose.finite, grads[tile * BLOCKS_AT_ONCE + k].to(tl.float32), 0.0)
                    for i in tl.static_range(TAPS):
                        for j in tl.static_range(TAPS):
                            pixel, inside = _tap(images + offset, x0, j, y0, i, image_strides, shape, BORDER)
                            weight = _weight(ty, i, MODE) * _weight(tx, j, MODE)
                            tl.atomic_add(pixel, weight * g, inside & here, sem="relaxed")


@triton.jit
def pose_gradient_kernel(
    images, grad, position, rotation, scale, matrix, sums,
    image_strides, grad_strides, pose_strides, shape, channels,
    LAW: tl.constexpr, MODE: tl.constexpr, TAPS: tl.constexpr, BORDER: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, EVEN: tl.constexpr, TILES_AT_ONCE: tl.constexpr, BLOCKS_AT_ONCE: tl.constexpr,
    NUMBERS: tl.constexpr, ROW_TILES: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr, TILE_INNER: tl.constexpr,
):  # fmt: skip
    """sums[program] = its part of the gradient of position, and of rotation and scale (NUMBERS 4) or matrix (8).

    A program loops over ROW_TILES tiles, so that one may suffice for a sample.
    """
    sample, first_row = _program_rows(shape, ROW_TILES, TILE_ROWS, TILE_INNER)
    pose = _pose(position, rotation, scale, matrix, pose_strides, sample, shape, LAW)
    images += sample.to(tl.int64) * image_strides.sample
    grad += sample.to(tl.int64) * grad_strides.sample
    if TILE_INNER == 1:
        zeros = tl.zeros([TILE_COLUMNS, TILE_ROWS], tl.float32)
    else:
        zeros = tl.zeros([TILE_COLUMNS, TILE_ROWS, TILE_INNER], tl.float32)
    sum_x = zeros
    sum_y = zeros
    sum_scale = zeros
    sum_rotation = zeros
    sum_x_cos = zeros
    sum_x_sin = zeros
    sum_x_one = zeros
    sum_y_cos = zeros
    sum_y_sin = zeros
    sum_y_one = zeros
    for row_tile in tl.range(0, ROW_TILES):
        row = first_row + row_tile * TILE_ROWS
        row_u, row_v = _row_terms(row, shape, pose, matrix, sample, LAW)
        for first in tl.range(0, COLUMNS, TILE_COLUMNS * TILES_AT_ONCE):
            for block in tl.range(0, BLOCKS, BLOCKS_AT_ONCE):
                points = ()
                grads = ()
                pixels = ()
                for tile in tl.static_range(TILES_AT_ONCE):
                    column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                    x, y, u, v = _point(row_u, row_v, column, shape, pose, COLUMNS, LAW)
                    x0, tx = _first_tap(x, shape.width, MODE, BORDER)
                    y0, ty = _first_tap(y, shape.height, MODE, BORDER)
                    points += ((x, y, u, v, tx, ty),)
                    for k in tl.static_range(BLOCKS_AT_ONCE):
                        source, here = _output_at(
                            grad, row, column, block + k, channels, grad_strides, shape,
                            COLUMNS, BLOCKS, EVEN, TILE_INNER,
                        )  # fmt: skip
                        grads += (tl.load(source, here, other=0.0),)
                        offset, _ = _block(block + k, channels, image_strides, BLOCKS, TILE_INNER)
                        for i in tl.static_range(TAPS):
                            for j in tl.static_range(TAPS):
                                pixel, inside = _tap(images + offset, x0, j, y0, i, image_strides, shape, BORDER)
                                pixels += (tl.load(pixel, inside & here, other=0.0),)
                for tile in tl.static_range(TILES_AT_ONCE):
                    x, y, u, v, tx, ty = points[tile]
                    for k in tl.static_range(BLOCKS_AT_ONCE):
                        d_x = 0.0
                        d_y = 0.0
                        for i in tl.static_range(TAPS):
                            line = 0.0
                            line_d = 0.0
                            for j in tl.static_range(TAPS):
                                pixel = pixels[((tile * BLOCKS_AT_ONCE + k) * TAPS + i) * TAPS + j].to(tl.float32)
                                line += _weight(tx, j, MODE) * pixel
                                line_d += _weight_derivative(tx, j, MODE) * pixel
                            d_x += _weight(ty, i, MODE) * line_d
                            d_y += _weight_derivative(ty, i, MODE) * line
                        if BORDER and MODE == "bilinear":  # constant beyond the edge
                            d_x = tl.where((x > 0) & (x < shape.width - 1), d_x, 0.0)
                            d_y = tl.where((y > 0) & (y < shape.height - 1), d_y, 0.0)
                        g = tl.where(pose.finite, grads[tile * BLOCKS_AT_ONCE + k].to(tl.float32), 0.0)
                        sum_x += g * d_x
                        sum_y += g * d_y
                        if NUMBERS == 4:
                            sum_scale += g * (d_x * u + d_y * v)
                            sum_rotation += g * (d_y * u - d_x * v)
                        if NUMBERS == 8:
                            column = first + _columns(tile, TILE_COLUMNS, TILE_INNER)
                            if LAW == "plane":
                                cos, sin = _column_offset(column, pose, COLUMNS), _row_offset(row, shape, pose)
                            else:
                                cos, sin = _direction(row, shape)
                                g *= _radius(column.to(tl.float32), shape, LAW)
                            sum_x_cos += g * d_x * cos
                            sum_x_sin += g * d_x * sin
                            sum_x_one += g * d_x
                            sum_y_cos += g * d_y * cos
                            sum_y_sin += g * d_y * sin
                            sum_y_one += g * d_y

    sums += (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * NUMBERS
    total_x = tl.sum(sum_x)
    total_y = tl.sum(sum_y)
    if LAW == "plane":
        tl.store(sums, pose.size * (pose.sin * total_y - pose.cos * total_x))
        if NUMBERS == 8:
            matrix += 6 * sample
            tl.store(sums + 1, -(_entry(matrix, 1, pose) * total_x + _entry(matrix, 4, pose) * total_y))
        else:
            tl.store(sums + 1, -pose.size * (pose.sin * total_x + pose.cos * total_y))
    else:
        tl.store(sums, total_x * (shape.width * 0.5))
        tl.store(sums + 1, total_y * (shape.height * 0.5))
    if NUMBERS == 4:
        if LAW == "plane":
            tl.store(sums + 2, -pose.size * tl.sum(sum_rotation))
            tl.store(sums + 3, -pose.size * pose.size * tl.sum(sum_scale))
        else:
            tl.store(sums + 2, pose.size * tl.sum(sum_rotation))
            tl.store(sums + 3, tl.sum(sum_scale))
    if NUMBERS == 8:
        tl.store(sums + 2, tl.sum(sum_x_cos))
        tl.store(sums + 3, tl.sum(sum_x_sin))
        tl.store(sums + 4, tl.sum(sum_x_one))
        tl.store(sums + 5, tl.sum(sum_y_cos))
        tl.store(sums + 6, tl.sum(sum_y_sin))
        tl.store(sums + 7, tl.sum(sum_y_one))


@triton.jit
def split_channels_kernel(
    interleaved, separate, PIXELS, CHANNELS, TILE_PIXELS: tl.constexpr, TILE_CHANNELS: tl.constexpr,
):  # fmt: skip
    """separate (N, CHANNELS, PIXELS) = interleaved (N, PIXELS, CHANNELS), one tile per program."""
    across = tl.cdiv(CHANNELS, TILE_CHANNELS)
    pixel = (tl.program_id(0) // across * TILE_PIXELS + tl.arange(0, TILE_PIXELS))[:, None]
    channel = (tl.program_id(0) % across * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS))[None, :]
    first = tl.program_id(1).to(tl.int64) * PIXELS * CHANNELS
    exists = (pixel < PIXELS) & (channel < CHANNELS)
    values = tl.load(interleaved + first + (pixel * CHANNELS + channel), exists)
    tl.store(separate + first + (channel * PIXELS + pixel), values.to(separate.dtype.element_ty), exists)


@triton.jit
def _program_rows(shape, ROW_TILES: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_INNER: tl.constexpr):
    """The sample of this program, and the rows of the first of its ROW_TILES tiles."""
    programs = tl.cdiv(shape.rows, ROW_TILES * TILE_ROWS)
    sample = tl.program_id(0) // programs
    row = (tl.program_id(0) % programs) * (ROW_TILES * TILE_ROWS) + tl.arange(0, TILE_ROWS)
    if TILE_INNER == 1:
        return sample, row[None, :]
    else:
        return sample, row[None, :, None]


@triton.jit
def _columns(tile, TILE_COLUMNS: tl.constexpr, TILE_INNER: tl.constexpr):
    """The columns of a tile, relative to those of the first tile."""
    column = tile * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    if TILE_INNER == 1:
        return column[:, None]
    else:
        return column[:, None, None]


@triton.jit
def _block(index, channels, strides, BLOCKS: tl.constexpr, TILE_INNER: tl.constexpr):
    """Offset of the block of channels `index` of this program, and whether the channels exist."""
    per_outer = tl.cdiv(channels.inner, TILE_INNER)
    block = tl.program_id(1) * BLOCKS + index
    outer = block // per_outer
    inner = (block % per_outer) * TILE_INNER
    if TILE_INNER > 1:
        inner += tl.arange(0, TILE_INNER)[None, None, :]
    exists = (outer < channels.outer) & (inner < channels.inner)
    return outer * strides.outer + inner * strides.inner, exists


@triton.jit
def _output_at(
    out, row, column, block, channels, strides, shape,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr, TILE_INNER: tl.constexpr,
):  # fmt: skip
    """Pointers to the values of a tile in the output, and a mask of those that exist."""
    offset, exists = _block(block, channels, strides, BLOCKS, TILE_INNER)
    here = (row < shape.rows) & (column < COLUMNS)
    if not EVEN:
        here &= exists
    return out + offset + (row * strides.row + column * strides.column), here


@triton.jit
def _pose(position, rotation, scale, matrix, strides, sample, shape, LAW: tl.constexpr):
    """The pose of a sample; finite numbers in place of those that are not, so that pointers stay valid."""
    x = tl.load(position + 2 * sample)
    y = tl.load(position + 2 * sample + 1)
    finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
    size = 1.0
    if rotation is not None:
        angle = tl.load(rotation + sample * strides.rotation)
        finite = finite & (tl.abs(angle) < float("inf"))
    if scale is not None:
        size = tl.load(scale + sample * strides.scale)
        finite = finite & (tl.abs(size) < float("inf"))
        size = tl.where(finite, size, 1.0)
        if LAW == "plane":
            size = tl.div_rn(1.0, size)
    if matrix is not None:
        for entry in tl.static_range(6):
            finite = finite & (tl.abs(tl.load(matrix + 6 * sample + entry)) < float("inf"))
    x = tl.where(finite, x, 0.0)
    y = tl.where(finite, y, 0.0)
    cos = 1.0
    sin = 0.0
    if rotation is not None:
        angle = tl.where(finite, angle, 0.0)
        cos = tl.cos(angle)
        sin = tl.sin(angle)
    if LAW == "plane":
        if matrix is not None:  # its first column
            cos = tl.where(finite, tl.load(matrix + 6 * sample), 0.0)
            sin = tl.where(finite, -tl.load(matrix + 6 * sample + 3), 0.0)
        center_x = (shape.width - 1) * 0.5
        center_y = (shape.height - 1) * 0.5
    else:
        center_x = (x + 1) * (shape.width * 0.5) - 0.5
        center_y = (y + 1) * (shape.height * 0.5) - 0.5
    return Pose(center_x, center_y, x, y, cos, sin, size, finite)


@triton.jit
def _row_terms(row, shape, pose, matrix, sample, LAW: tl.constexpr):
    """Terms common to the points of a row: their direction, or their part of (u, v)."""
    if LAW == "plane":
        offset = _row_offset(row, shape, pose)
        if matrix is not None:
            matrix += 6 * sample
            u = _entry(matrix, 1, pose) * offset + _entry(matrix, 2, pose)
            return u, _entry(matrix, 4, pose) * offset + _entry(matrix, 5, pose)
        return pose.sin * offset, pose.cos * offset
    else:
        cos, sin = _direction(row, shape)
        if matrix is not None:
            matrix += 6 * sample
            u = _entry(matrix, 0, pose) * cos + _entry(matrix, 1, pose) * sin + _entry(matrix, 2, pose)
            v = _entry(matrix, 3, pose) * cos + _entry(matrix, 4, pose) * sin + _entry(matrix, 5, pose)
            return u, v
        return cos * pose.cos - sin * pose.sin, sin * pose.cos + cos * pose.sin


@triton.jit
def _row_offset(row, shape, pose):
    return row.to(tl.float32) - (shape.rows - 1) * 0.5 - pose.shift_y


@triton.jit
def _column_offset(column, pose, COLUMNS: tl.constexpr):
    return column.to(tl.float32) - (COLUMNS - 1) * 0.5 - pose.shift_x


@triton.jit
def _entry(matrix, INDEX: tl.constexpr, pose):
    return tl.where(pose.finite, tl.load(matrix + INDEX), 0.0)


@triton.jit
def _direction(row, shape):
    """cos and sin of 2π·row/turn_rows, accurate to about one ulp and exact for quarter rotations.

    The angle from the nearest quarter rotation is at most π/4, where a few terms of the series suffice.
    """
    quarters = (row.to(tl.float32) * (shape.quarter_step * (8 / 3.141592653589793)) + 0.5).to(tl.int32)
    angle = ((4 * row).to(tl.float32) - quarters.to(tl.float32) * shape.turn_rows) * shape.quarter_step
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
        offset = _column_offset(column, pose, COLUMNS)
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
        return shape.start + power
    else:  # correct the rounding error of the power to first order
        rest = tl.fma(column, shape.step, -power) + column * shape.step_rest
        radius = shape.start * tl.exp2(power)
        return radius + radius * (rest * 0.6931471805599453)


@triton.jit
def _first_tap(x, size, MODE: tl.constexpr, BORDER: tl.constexpr):
    """Index of the first tap along an axis for a point at x, and the distance of x from the pixel before it."""
    if BORDER and MODE != "bicubic":
        x = tl.minimum(tl.maximum(x, 0.0), size - 1.0)
    else:  # clamp to where no tap reaches the image
        x = tl.minimum(tl.maximum(x, -4.0), size + 4.0)
    first = tl.floor(x).to(tl.int32)
    t = x - first.to(tl.float32)
    if MODE == "nearest":  # halfway to even
        first += ((t > 0.5) | ((t == 0.5) & (first % 2 != 0))).to(tl.int32)
    elif MODE == "bicubic":
        first -= 1
    return first, t


@triton.jit
def _tap(plane, x0, X_TAP: tl.constexpr, y0, Y_TAP: tl.constexpr, strides, shape, BORDER: tl.constexpr):
    """Pointers to a tap, and a mask of those inside the image."""
    x = x0 + X_TAP
    y = y0 + Y_TAP
    if BORDER:
        x = tl.minimum(tl.maximum(x, 0), shape.width - 1)
        y = tl.minimum(tl.maximum(y, 0), shape.height - 1)
        return plane + (y * strides.row + x * strides.column), x == x
    else:  # the address of the first tap, shared by all taps, plus a constant
        first = plane + (y0 * strides.row + x0 * strides.column)
        pixel = first + (Y_TAP * strides.row + X_TAP * strides.column)
        return pixel, _below(x, shape.width) & _below(y, shape.height)


@triton.jit
def _below(index, size):
    """0 <= index < size."""
    return index.to(tl.uint32, bitcast=True) < size


@triton.jit
def _weight(t, TAP: tl.constexpr, MODE: tl.constexpr):
    """Weight of a tap for a point at distance t, in [0, 1), from the pixel before it; as in `grid_sample`."""
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
def _weight_derivative(t, TAP: tl.constexpr, MODE: tl.constexpr):
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
