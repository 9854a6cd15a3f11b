"""How the work of the Triton kernels is divided into programs, and their start."""

import math
import struct
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .kernels import Channels, Poses, Shape, Steps, image_gradient_kernel, pose_gradient_kernel, sample_kernel

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}

# what a program works on at a time: a patch of one channel, or a smaller one with channels that lie side by side
TILE_COLUMNS = 8
TILE_ROWS = 32
TILE_INNER = 64
TILE_VALUES = 1024
# for how many channels it computes its points only once: more where there are programs enough without that
FEW_BLOCKS, MANY_BLOCKS = 4, 16
ENOUGH_PROGRAMS = 4096
# from so many channels on, the gradient to the images is added up with channels side by side, as vectors
SIDE_BY_SIDE = 16


class Points(NamedTuple):
    """Where images are read: a point for every row and column of the output.

    `law` is that of a `PolarGrid`, with the `start` and `step` of `kernels.Shape`, or "plane", a similarity.
    """

    law: str
    rows: int
    columns: int
    start: float
    step: float
    interpolation: str
    padding: str


class Pose(NamedTuple):
    """Of every sample the place (N, 2), the turn (N,) and the factor (N,), all float32; see `kernels`."""

    place: Tensor
    turn: Tensor | None
    factor: Tensor | None

    @property
    def numbers(self) -> int:
        """How many numbers the gradient to it has."""
        return 2 if self.turn is None and self.factor is None else 4


class Plan(NamedTuple):
    """The programs that work on images and output, how they find their way in memory, and their constants."""

    programs: tuple[int, int]
    image_steps: Steps
    out_steps: Steps
    shape: Shape
    channels: Channels
    constants: dict[str, Any]


def sample(images: Tensor, out: Tensor, pose: Pose, points: Points) -> None:
    """out = the images at the points."""
    plan = _plan(images.shape, images.stride(), out.stride(), points, interleaved(images))
    _start(sample_kernel, (images, plan.image_steps, out, plan.out_steps), plan, pose)


def image_gradient(grad: Tensor, shape: list[int], pose: Pose, points: Points, *, channels_last: bool) -> Tensor:
    """The gradient to images of `shape`, added up in float32, in the precision of `grad`."""
    side_by_side = channels_last or (len(shape) == 4 and shape[1] >= SIDE_BY_SIDE)
    layout = memory_format(side_by_side)
    sums = torch.empty(shape, dtype=torch.float32, device=grad.device, memory_format=layout).zero_()
    plan = _plan(sums.shape, sums.stride(), grad.stride(), points, side_by_side)
    _start(image_gradient_kernel, (grad, plan.out_steps, sums, plan.image_steps), plan, pose)
    return sums.to(grad.dtype, memory_format=memory_format(channels_last))


def pose_gradient(grad: Tensor, images: Tensor, pose: Pose, points: Points) -> Tensor:
    """The gradient to place (x, y), turn and factor: (N, 4), or (N, 2) where there is only a place."""
    samples = images.shape[0]
    if samples == 0 or points.interpolation == "nearest":
        return grad.new_zeros((samples, pose.numbers), dtype=torch.float32)
    plan = _plan(images.shape, images.stride(), grad.stride(), points, interleaved(images))
    programs = plan.programs[0] // samples * plan.programs[1]
    sums = grad.new_empty((samples, programs, pose.numbers), dtype=torch.float32)
    tensors = (grad, plan.out_steps, images, plan.image_steps, sums)
    _start(pose_gradient_kernel, tensors, plan, pose, NUMBERS=pose.numbers)
    return sums[:, 0] if programs == 1 else sums.sum(dim=1)


def interleaved(images: Tensor) -> bool:
    """Whether the channels of a pixel lie side by side, as `torch.channels_last` has them."""
    return images.dim() == 4 and images.shape[1] > 1 and images.stride(1) == 1


def memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def _start(kernel: Any, tensors: tuple[Any, ...], plan: Plan, pose: Pose, **constants: int) -> None:
    if 0 in plan.programs:
        return
    place, turn, factor = pose
    turn_step = 0 if turn is None else turn.stride(0)
    factor_step = 0 if factor is None else factor.stride(0)
    poses = Poses(place.contiguous(), turn, turn_step, factor, factor_step)
    with torch.cuda.device_of(place) if place.is_cuda else nullcontext():
        kernel[plan.programs](*tensors, poses, plan.shape, plan.channels, **plan.constants, **constants)


@lru_cache(maxsize=256)
def _plan(
    images: tuple[int, ...], image: tuple[int, ...], out: tuple[int, ...], points: Points, side_by_side: bool
) -> Plan:
    """For images of a shape and strides, and strides of the output; `side_by_side` are channels of pixels."""
    if len(images) == 5:  # (N, C, X, Y, Z): rows are y, except of a polar volume
        samples, outer, width, height, inner = images
        image_steps = Steps(image[0], image[1], image[3], image[2], image[4])
        row, column = (3, 2) if points.law == "plane" else (2, 3)
        out_steps = Steps(out[0], out[1], out[row], out[column], out[4])
    else:
        samples, outer, height, width = images
        inner = 1
        image_steps, out_steps = (Steps(s[0], s[1], s[2], s[3], 0) for s in (image, out))
        if side_by_side:
            outer, inner = inner, outer
            image_steps = image_steps._replace(outer=0, inner=image_steps.outer)
            out_steps = out_steps._replace(outer=0, inner=out_steps.outer)
    rest = points.step - struct.unpack("f", struct.pack("f", points.step))[0]
    shape = Shape(height, width, points.rows, 0.5 * math.pi / points.rows, points.start, points.step, rest)

    tile_inner = min(TILE_INNER, triton.next_power_of_2(inner)) if image_steps.inner == 1 else 1
    tile_rows = TILE_ROWS if tile_inner == 1 else TILE_VALUES // (TILE_COLUMNS * tile_inner)
    tile_rows = min(tile_rows, triton.next_power_of_2(points.rows))
    tiles = samples * triton.cdiv(points.rows, tile_rows)
    blocks = outer * triton.cdiv(inner, tile_inner)
    each = min(blocks, MANY_BLOCKS if tiles * blocks >= MANY_BLOCKS * ENOUGH_PROGRAMS else FEW_BLOCKS)
    constants = {
        "LAW": points.law,
        "MODE": points.interpolation,
        "TAPS": TAPS[points.interpolation],
        "BORDER": points.padding == "border",
        "COLUMNS": points.columns,
        "BLOCKS": each,
        "EVEN": blocks % each == 0 and inner % tile_inner == 0,
        "UNROLL": 2 if tile_inner == each == 1 else 1,
        "TILE_ROWS": tile_rows,
        "TILE_COLUMNS": TILE_COLUMNS,
        "TILE_INNER": tile_inner,
        "num_warps": max(1, TILE_COLUMNS * tile_rows // 32) if tile_inner == 1 else 4,
    }
    programs = (tiles, triton.cdiv(blocks, each))
    return Plan(programs, image_steps, out_steps, shape, Channels(outer, inner), constants)
