"""The Triton backend of polar sampling and similarity warps: one operator that computes its points.

`ptn::sample` and its gradients, `ptn::sample_grad_images` and `ptn::sample_grad_pose`, are operators of
`torch.library`. They work in `torch.compile`, autocast and CUDA graphs, and are imported only where Triton is used.

The gradient of the images is accumulated with atomics, in no fixed order; it raises under
`torch.use_deterministic_algorithms`, like operations of torch of that kind. The gradient of the pose is summed in a
fixed order. Neither is computed if it is not needed.
"""

import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch._prims_common import alert_not_deterministic

from . import triton_kernels
from .grid import GridPose, PolarGrid, reduce_angle, shift_origin
from .sample import Mode, PaddingMode
from .triton_kernels import Channels, PoseStrides, Shape, Strides

# tile of a program: rows and columns of one channel, or fewer rows of up to TILE_INNER interleaved channels
TILE_COLUMNS = 8
TILE_ROWS = 32
TILE_INNER = 64
TILE_VALUES = 1024
# from this number of samples on, one program computes the gradient of the pose of a whole sample
MANY_SAMPLES = 64
# tiles of one channel, or blocks of channels, that are loaded before the first is used
AT_ONCE = 4
# blocks of channels per program, which computes its points once: more if there are enough programs
FEW_BLOCKS, MANY_BLOCKS = 4, 16
ENOUGH_PROGRAMS = 4096
# from this number of channels on, the gradient of the images is accumulated with channels interleaved, as vectors
MIN_INTERLEAVED = 16
# pixels and channels of a program that copies interleaved channels to separate ones
COPY_PIXELS, COPY_CHANNELS = 64, 32


class Points(NamedTuple):
    """The points of an operator: one for each row and column of the output.

    `law` is that of a `PolarGrid`, with the `start` and `step` of `triton_kernels.Shape`, or "plane", a similarity.
    """

    law: str
    rows: int
    columns: int
    start: float
    step: float
    mode: str
    padding_mode: str
    sweep: float = 2 * math.pi


def polar_sample(
    images: Tensor, origin: Tensor, grid: PolarGrid, pose: GridPose, mode: Mode, padding_mode: PaddingMode
) -> Tensor:
    """`ptn.polar_sample` of images (N, C, H, W), and `ptn.cylindrical_sample` of volumes (N, C, X, Y, Z)."""
    height, width = (images.shape[3], images.shape[2]) if images.dim() == 5 else (images.shape[2], images.shape[3])
    r_max, r_min = grid.outer_radius((height, width)), grid.inner_radius
    step = math.log2(r_max / r_min) if grid.law == "log" else r_max - r_min
    points = Points(grid.law, grid.angles, grid.radii, r_min, step / grid.radii, mode, padding_mode, grid.sweep)
    origin = origin.float()
    if grid.is_circular(pose):
        phase = reduce_angle(pose.phase) if grid.start == 0 else grid.first_angle(pose.phase)
        rotation, scale = _per_sample(phase, 0.0, images), _per_sample(pose.dilation, 1.0, images)
        return sample(images, origin, rotation, scale, None, *points)
    frame = grid.frame((height, width), pose, torch.float32, images.device)
    origin = shift_origin(origin, -r_min * frame[..., 2], (height, width))
    matrix = frame.expand(images.shape[0], 2, 3).flatten(1)
    return sample(images, origin, None, None, matrix, *points)


def _per_sample(value: Tensor | float, default: float, images: Tensor) -> Tensor | None:
    """Return `value` as a tensor (N,), or None if it is the default."""
    if isinstance(value, Tensor):
        return value.to(images.device, torch.float32).expand(images.shape[0])
    if value == default:
        return None
    return torch.full((images.shape[0],), value, dtype=torch.float32, device=images.device)


# Operators

_POSE = "Tensor position, Tensor? rotation, Tensor? scale, Tensor? matrix"
_POINTS = "str law, SymInt rows, SymInt columns, float start, float step, str mode, str padding_mode, float sweep"


def _operator(name: str, arguments: str) -> Callable[[Callable[..., Tensor]], CustomOpDef]:
    return torch.library.custom_op(
        f"ptn::{name}",
        mutates_args=(),
        schema=f"({arguments}, {_POINTS}) -> Tensor",
        tags=(torch.Tag.needs_fixed_stride_order,),
    )


@_operator("sample", f"Tensor images, {_POSE}")
def sample(images: Tensor, *arguments: Any) -> Tensor:
    """Sample images at the points of a pose: position (N, 2), rotation (N,) and scale (N,), or matrix (N, 6).

    See `triton_kernels`.
    """
    out = _empty_output(images, *arguments)
    _launch("sample", images, out, arguments[:4], Points(*arguments[4:]), interleaved(images))
    return out


@_operator("sample_grad_images", f"Tensor grad, {_POSE}, SymInt[] shape, bool channels_last")
def sample_grad_images(grad: Tensor, *arguments: Any) -> Tensor:
    """Gradient of images of `shape`, accumulated in float32, in the dtype of `grad`."""
    pose, (shape, channels_last), points = arguments[:4], arguments[4:6], Points(*arguments[6:])
    alert_not_deterministic("the gradient of the images of polar_sample and similarity_warp with backend 'triton'")
    vectors = channels_last or (len(shape) == 4 and shape[1] >= MIN_INTERLEAVED)
    layout = _memory_format(vectors)
    sums = torch.empty(shape, dtype=torch.float32, device=grad.device, memory_format=layout).zero_()
    _launch("image_gradient", sums, grad, pose, points, vectors)
    if not vectors or channels_last:
        return sums.to(grad.dtype)
    separate = torch.empty(shape, dtype=grad.dtype, device=grad.device)
    count, channels, pixels = shape[0], shape[1], shape[2] * shape[3]
    programs = triton.cdiv(pixels, COPY_PIXELS) * triton.cdiv(channels, COPY_CHANNELS), count
    if count:
        with torch.cuda.device_of(grad):
            triton_kernels.split_channels_kernel[programs](
                sums, separate, pixels, channels, COPY_PIXELS, COPY_CHANNELS, num_warps=4
            )
    return separate


@_operator("sample_grad_pose", f"Tensor grad, Tensor images, {_POSE}")
def sample_grad_pose(grad: Tensor, images: Tensor, *arguments: Any) -> Tensor:
    """Gradient of position (x, y), rotation and scale: (N, 4); with a matrix (N, 8), with neither (N, 2)."""
    pose, where = arguments[:4], Points(*arguments[4:])
    out = _empty_pose(grad, images, *arguments)
    if where.mode == "nearest" or not len(images):
        return out.zero_()
    programs, *_ = _plan("pose_gradient", images, grad, pose, where, interleaved(images))
    per_sample = math.prod(programs) // len(images)
    sums = out if per_sample == 1 else out.new_empty(len(images), per_sample, out.shape[1])
    _launch("pose_gradient", images, grad, pose, where, interleaved(images), sums)
    return sums if per_sample == 1 else sums.sum(dim=1)


@sample.register_fake
def _empty_output(images: Tensor, *arguments: Any) -> Tensor:
    law, rows, columns = arguments[4:7]
    count, channels = images.shape[:2]
    if images.dim() == 5:
        size = (columns, rows) if law == "plane" else (rows, columns)
        return images.new_empty((count, channels, *size, images.shape[4]))
    layout, shape = _memory_format(interleaved(images)), (count, channels, rows, columns)
    return torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=layout)


@sample_grad_images.register_fake
def _empty_images(grad: Tensor, *arguments: Any) -> Tensor:
    shape, channels_last = arguments[4:6]
    return torch.empty(shape, dtype=grad.dtype, device=grad.device, memory_format=_memory_format(channels_last))


@sample_grad_pose.register_fake
def _empty_pose(grad: Tensor, images: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty((images.shape[0], _numbers(arguments[:4])), dtype=torch.float32)


def _numbers(pose: "Pose") -> int:
    """Return how many numbers of a pose have a gradient."""
    _, rotation, scale, matrix = pose
    return 8 if matrix is not None else 2 if rotation is scale is None else 4


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    images, position, rotation, scale, matrix, *ctx.points = inputs
    ctx.shape, ctx.channels_last = images.shape, interleaved(images)
    ctx.save_for_backward(images if any(ctx.needs_input_grad[1:5]) else None, position, rotation, scale, matrix)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    images, *pose = ctx.saved_tensors
    needs_images, needs_position, needs_rotation, needs_scale, needs_matrix = ctx.needs_input_grad[:5]
    gradients: list[Tensor | None] = [None] * 5
    if needs_images:
        gradients[0] = sample_grad_images(grad, *pose, ctx.shape, ctx.channels_last, *ctx.points)
    if any(ctx.needs_input_grad[1:5]):
        sums = sample_grad_pose(grad, images, *pose, *ctx.points)
        gradients[1] = sums[:, :2] if needs_position else None
        gradients[2] = sums[:, 2] if needs_rotation else None
        gradients[3] = sums[:, 3] if needs_scale else None
        gradients[4] = sums[:, 2:] if needs_matrix else None
    return *gradients, *(None for _ in ctx.points)


sample.register_autograd(_backward, setup_context=_save_inputs)


def interleaved(images: Tensor) -> bool:
    """Return whether the channels of a pixel are adjacent in memory, as with `torch.channels_last`."""
    return images.dim() == 4 and images.shape[1] > 1 and images.stride(1) == 1


def _memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


# Launches


Pose = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
# the grid of programs of a kernel, its arguments after the tensors, and its number of warps
Plan = tuple[tuple[int, int], tuple[Any, ...], int]


def _launch(
    name: str, images: Tensor, out: Tensor, pose: Pose, points: Points, vectors: bool, *sums: Tensor
) -> None:
    """Launch a kernel on `images` and `out`; with `vectors` it loads and stores channels as vectors."""
    programs, arguments, warps = _plan(name, images, out, pose, points, vectors)
    if 0 in programs:
        return
    position, rotation, scale, matrix = pose
    where = position.contiguous(), rotation, scale, None if matrix is None else matrix.contiguous()
    kernel = getattr(triton_kernels, f"{name}_kernel")
    with torch.cuda.device_of(images):
        kernel[programs](images, out, *where, *sums, *arguments, num_warps=warps)


def _plan(name: str, images: Tensor, out: Tensor, pose: Pose, points: Points, vectors: bool) -> Plan:
    _, rotation, scale, _ = pose
    pose_strides = (None if rotation is None else rotation.stride(0), None if scale is None else scale.stride(0))
    strides = images.stride(), out.stride(), pose_strides
    return _make_plan(name, images.shape, *strides, _numbers(pose), points, vectors)


@lru_cache(maxsize=1024)
def _make_plan(
    name: str,
    shape: tuple[int, ...],
    image_strides: tuple[int, ...],
    out_strides: tuple[int, ...],
    pose_strides: tuple[int | None, int | None],
    numbers: int,
    points: Points,
    vectors: bool,
) -> Plan:
    samples, size, channels, image, out = _axes(shape, image_strides, out_strides, points.law == "plane", vectors)
    step_rest = points.step - struct.unpack("f", struct.pack("f", points.step))[0]
    turn_rows = points.rows * (2 * math.pi / points.sweep)
    law = points.start, points.step, step_rest
    geometry = Shape(*size, points.rows, turn_rows, 0.5 * math.pi / turn_rows, *law)
    tile_inner = min(TILE_INNER, triton.next_power_of_2(channels.inner)) if image.inner == 1 else 1
    blocks = channels.outer * triton.cdiv(channels.inner, tile_inner)

    to_pose = name == "pose_gradient"
    one_channel = tile_inner == blocks == 1
    tile_rows = TILE_ROWS if tile_inner == 1 else TILE_VALUES // (TILE_COLUMNS * tile_inner)
    tile_rows = min(tile_rows, triton.next_power_of_2(points.rows))
    tiles = triton.cdiv(points.rows, tile_rows)
    row_tiles = tiles if to_pose and one_channel and samples >= MANY_SAMPLES else 1
    groups = samples * triton.cdiv(tiles, row_tiles)
    per_program = min(blocks, MANY_BLOCKS if groups * blocks >= MANY_BLOCKS * ENOUGH_PROGRAMS else FEW_BLOCKS)
    tiles_at_once = blocks_at_once = 1
    if tile_inner == 1 and points.mode != "bicubic":  # otherwise one tile has many loads already
        tiles_at_once = min(AT_ONCE, triton.cdiv(points.columns, TILE_COLUMNS)) if one_channel else 1
        blocks_at_once = per_program if per_program <= AT_ONCE else math.gcd(per_program, AT_ONCE)
    taps = {"nearest": 1, "bilinear": 2, "bicubic": 4}[points.mode]
    even = blocks % per_program == 0 and channels.inner % tile_inner == 0
    # in the order of the kernels' parameters
    constants: list[Any] = [points.law, points.mode, taps, points.padding_mode == "border", points.columns]
    constants += [per_program, even, tiles_at_once, blocks_at_once]
    if to_pose:
        constants += [numbers, row_tiles]
    constants += [tile_rows, TILE_COLUMNS, tile_inner]
    rotation_stride, scale_stride = pose_strides
    arguments = (image, out, PoseStrides(rotation_stride or 0, scale_stride or 0), geometry, channels, *constants)
    warps = max(1, TILE_COLUMNS * tile_rows // 32) if tile_inner == 1 else 4
    return (groups, triton.cdiv(blocks, per_program)), arguments, warps


def _axes(
    shape: tuple[int, ...], image: tuple[int, ...], out: tuple[int, ...], plane: bool, vectors: bool
) -> tuple[int, tuple[int, int], Channels, Strides, Strides]:
    """Return the number of samples, (height, width), the channels, and the strides of images and output."""
    if len(shape) == 5:  # (N, C, X, Y, Z): rows are y, except of a polar volume
        samples, outer, width, height, inner = shape
        row, column = (3, 2) if plane else (2, 3)
        image_strides = Strides(image[0], image[1], image[3], image[2], image[4])
        out_strides = Strides(out[0], out[1], out[row], out[column], out[4])
        return samples, (height, width), Channels(outer, inner), image_strides, out_strides
    samples, channels, height, width = shape
    if vectors:
        image_strides, out_strides = (Strides(s[0], 0, s[2], s[3], s[1]) for s in (image, out))
        return samples, (height, width), Channels(1, channels), image_strides, out_strides
    image_strides, out_strides = (Strides(s[0], s[1], s[2], s[3], 0) for s in (image, out))
    return samples, (height, width), Channels(channels, 1), image_strides, out_strides
