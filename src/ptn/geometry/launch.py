"""How the work of the Triton kernels is divided into programs, and their start."""

import math
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.compiler import CompiledKernel

from . import kernels
from .kernels import Channels, PoseSteps, Shape, Steps

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}

# what a program works on at a time: a patch of one channel, or a smaller one with channels that lie side by side
TILE_COLUMNS = 8
TILE_ROWS = 32
TILE_INNER = 64
TILE_VALUES = 1024
# the gradient to the pose takes more rows, so that one program does for a whole sample where there are many of them
POSE_ROWS = 32
MANY_SAMPLES = 64
# how much is read before the first of it is used: tiles of one channel, or blocks of channels
AT_ONCE = 4, 4
POSE_AT_ONCE = 4, 4
# for how many channels a program computes its points only once: more where there are programs enough without that
FEW_BLOCKS, MANY_BLOCKS = 4, 16
ENOUGH_PROGRAMS = 4096
# from so many channels on, the gradient to the images is added up with channels side by side, as vectors
SIDE_BY_SIDE = 16
# pixels and channels of a program that takes them apart again
TILE_APART = 64, 32


class Points(NamedTuple):
    """Where images are read: a point for every row and column of the output.

    `law` is that of a `PolarGrid`, with the `start` and `step` of `kernels.Shape`, or "plane", a similarity.
    """

    law: str
    rows: int
    columns: int
    start: float
    step: float
    mode: str
    padding_mode: str


class Pose(NamedTuple):
    """Of every sample the place (N, 2), the turn (N,) and the factor (N,), all float32; see `kernels`."""

    place: Tensor
    turn: Tensor | None
    factor: Tensor | None

    @property
    def numbers(self) -> int:
        """How many numbers the gradient to it has."""
        return 2 if self.turn is None and self.factor is None else 4


class Plan:
    """A kernel for tensors of one kind: the programs that work on them, and the numbers that they are given.

    From the second time on it is started without Triton's look at every argument, which takes longer than most of
    the work: tensors of one kind need the same machine code as long as they all begin at a multiple of 16 bytes.
    """

    def __init__(
        self,
        kernel: Any,
        programs: tuple[int, int],
        numbers: tuple[Any, ...],
        constants: dict[str, Any],
        warps: int,
    ) -> None:
        self.kernel, self.programs, self.warps = kernel, programs, warps
        self.rest = (*numbers, *constants.values())
        self.compiled: Callable[..., None] | None = None

    def start(self, *tensors: Tensor | None) -> None:
        """Start it on the `tensors` that the kernel takes, the first of them on its device."""
        if 0 in self.programs:
            return
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        aligned = not any(address & 15 for address in addresses)
        with _on_device_of(tensors[0]):
            if self.compiled is not None and aligned:
                self.compiled(*addresses, *self.rest)
                return
            made = self.kernel[self.programs](*tensors, *self.rest, num_warps=self.warps)
            if aligned and isinstance(made, CompiledKernel):
                self.compiled = made[(*self.programs, 1)]


def sample(images: Tensor, out: Tensor, pose: Pose, points: Points) -> None:
    """out = the images at the points."""
    place, turn, factor = pose
    plan = _plan("sample", *_kind(images), *_kind(out), *_steps(turn, factor), points, interleaved(images))
    plan.start(images, out, place.contiguous(), turn, factor)


def image_gradient(grad: Tensor, shape: list[int], pose: Pose, points: Points, *, channels_last: bool) -> Tensor:
    """The gradient to images of `shape`, added up in float32, in the precision of `grad`."""
    place, turn, factor = pose
    side_by_side = channels_last or (len(shape) == 4 and shape[1] >= SIDE_BY_SIDE)
    layout = memory_format(side_by_side)
    sums = torch.empty(shape, dtype=torch.float32, device=grad.device, memory_format=layout).zero_()
    plan = _plan("image_gradient", *_kind(sums), *_kind(grad), *_steps(turn, factor), points, side_by_side)
    plan.start(sums, grad, place.contiguous(), turn, factor)
    if side_by_side and not channels_last:
        gradient = torch.empty(shape, dtype=grad.dtype, device=grad.device)
        _separation(*shape, grad.dtype, grad.device).start(sums, gradient)
        return gradient
    return sums if grad.dtype == torch.float32 else sums.to(grad.dtype)


def pose_gradient(grad: Tensor, images: Tensor, pose: Pose, points: Points) -> Tensor:
    """The gradient to place (x, y), turn and factor: (N, 4), or (N, 2) where there is only a place."""
    place, turn, factor = pose
    samples, numbers = images.shape[0], pose.numbers
    if samples == 0 or points.mode == "nearest":
        return torch.zeros((samples, numbers), dtype=torch.float32, device=grad.device)
    plan = _plan("pose_gradient", *_kind(images), *_kind(grad), *_steps(turn, factor), points, interleaved(images))
    programs = plan.programs[0] * plan.programs[1] // samples
    shape = (samples, numbers) if programs == 1 else (samples, programs, numbers)
    sums = torch.empty(shape, dtype=torch.float32, device=grad.device)
    plan.start(images, grad, place.contiguous(), turn, factor, sums)
    return sums if programs == 1 else sums.sum(dim=1)


def interleaved(images: Tensor) -> bool:
    """Whether the channels of a pixel lie side by side, as `torch.channels_last` has them."""
    return images.dim() == 4 and images.shape[1] > 1 and images.stride(1) == 1


def memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _steps(turn: Tensor | None, factor: Tensor | None) -> tuple[int | None, int | None]:
    """How far it is in memory to the next sample's, or None."""
    return None if turn is None else turn.stride(0), None if factor is None else factor.stride(0)


def _on_device_of(tensor: Tensor | None) -> AbstractContextManager[Any]:
    if tensor is None or not tensor.is_cuda or tensor.get_device() == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device_of(tensor)


_HERE = nullcontext()


@lru_cache(maxsize=1024)
def _plan(
    work: str,
    shape: tuple[int, ...],
    image: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    out_shape: tuple[int, ...],
    out: tuple[int, ...],
    out_dtype: torch.dtype,
    out_device: torch.device,
    turn_step: int | None,
    factor_step: int | None,
    points: Points,
    side_by_side: bool,
) -> Plan:
    """For images of a shape and strides, and strides of the output; `side_by_side` are channels of pixels."""
    samples, size, channels, image_steps, out_steps = _axes(shape, image, out, points.law == "plane", side_by_side)
    rest = points.step - struct.unpack("f", struct.pack("f", points.step))[0]
    geometry = Shape(*size, points.rows, 0.5 * math.pi / points.rows, points.start, points.step, rest)
    tile_inner = min(TILE_INNER, triton.next_power_of_2(channels.inner)) if image_steps.inner == 1 else 1
    blocks = channels.outer * triton.cdiv(channels.inner, tile_inner)

    to_pose = work == "pose_gradient"
    alone = tile_inner == blocks == 1
    tile_rows = TILE_ROWS if tile_inner == 1 else TILE_VALUES // (TILE_COLUMNS * tile_inner)
    tile_rows = min(POSE_ROWS if to_pose and alone else tile_rows, triton.next_power_of_2(points.rows))
    tiles = triton.cdiv(points.rows, tile_rows)
    row_tiles = tiles if to_pose and alone and samples >= MANY_SAMPLES else 1
    groups = samples * triton.cdiv(tiles, row_tiles)
    each = min(blocks, MANY_BLOCKS if groups * blocks >= MANY_BLOCKS * ENOUGH_PROGRAMS else FEW_BLOCKS)
    constants = {
        "LAW": points.law,
        "MODE": points.mode,
        "TAPS": TAPS[points.mode],
        "BORDER": points.padding_mode == "border",
        "COLUMNS": points.columns,
        "BLOCKS": each,
        "EVEN": blocks % each == 0 and channels.inner % tile_inner == 0,
    }
    if tile_inner == 1 and points.mode != "bicubic":  # else there is much to read for one already
        tiles_at_once, blocks_at_once = POSE_AT_ONCE if to_pose else AT_ONCE
        constants["TILES_AT_ONCE"] = min(tiles_at_once, triton.cdiv(points.columns, TILE_COLUMNS)) if alone else 1
        constants["BLOCKS_AT_ONCE"] = each if each <= blocks_at_once else math.gcd(each, blocks_at_once)
    else:
        constants |= {"TILES_AT_ONCE": 1, "BLOCKS_AT_ONCE": 1}
    if to_pose:
        numbers = 2 if turn_step is None and factor_step is None else 4
        constants |= {"NUMBERS": numbers, "ROW_TILES": row_tiles}
    constants |= {"TILE_ROWS": tile_rows, "TILE_COLUMNS": TILE_COLUMNS, "TILE_INNER": tile_inner}
    return Plan(
        getattr(kernels, f"{work}_kernel"),
        (groups, triton.cdiv(blocks, each)),
        (image_steps, out_steps, PoseSteps(turn_step or 0, factor_step or 0), geometry, channels),
        constants,
        max(1, TILE_COLUMNS * tile_rows // 32) if tile_inner == 1 else 4,
    )


def _axes(
    shape: tuple[int, ...], image: tuple[int, ...], out: tuple[int, ...], plane: bool, side_by_side: bool
) -> tuple[int, tuple[int, int], Channels, Steps, Steps]:
    """How many samples, (height, width), the channels, and the steps of images and output."""
    if len(shape) == 5:  # (N, C, X, Y, Z): rows are y, except of a polar volume
        samples, outer, width, height, inner = shape
        row, column = (3, 2) if plane else (2, 3)
        image_steps = Steps(image[0], image[1], image[3], image[2], image[4])
        out_steps = Steps(out[0], out[1], out[row], out[column], out[4])
        return samples, (height, width), Channels(outer, inner), image_steps, out_steps
    samples, channels, height, width = shape
    if side_by_side:
        image_steps, out_steps = (Steps(s[0], 0, s[2], s[3], s[1]) for s in (image, out))
        return samples, (height, width), Channels(1, channels), image_steps, out_steps
    image_steps, out_steps = (Steps(s[0], s[1], s[2], s[3], 0) for s in (image, out))
    return samples, (height, width), Channels(channels, 1), image_steps, out_steps


@lru_cache(maxsize=256)
def _separation(
    samples: int, channels: int, height: int, width: int, dtype: torch.dtype, device: torch.device
) -> Plan:
    """Channels that lie side by side, in float32, taken apart."""
    pixels, (tile_pixels, tile_channels) = height * width, TILE_APART
    programs = triton.cdiv(pixels, tile_pixels) * triton.cdiv(channels, tile_channels)
    tile = {"TILE_PIXELS": tile_pixels, "TILE_CHANNELS": tile_channels}
    return Plan(kernels.separate_kernel, (programs, samples), (pixels, channels), tile, 4)
