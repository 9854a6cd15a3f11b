"""Sampling in one kernel, with no grid in memory: the Triton backend of polar sampling and of similarity warps.

Three operators of `torch.library`, `ptn::sample`, `ptn::image_gradient` and `ptn::pose_gradient`, and the
differentiable `sample` made of them, which works in `torch.compile`, `torch.func`, autocast and CUDA graphs. This
module is imported only where Triton is used.

The gradient to the images is added up with atomics, in no fixed order: like torch's own operations of that kind it
objects under `torch.use_deterministic_algorithms`. The gradient to the pose (origin, phase, dilation; shift,
rotation, scale) is summed in a fixed order, the same bits every time. Neither runs where it is not needed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import alert_not_deterministic
from torch.autograd.function import once_differentiable

from . import launch
from .backend import INTERPRETING
from .grid import PolarGrid
from .interpolate import Mode, PaddingMode
from .launch import Points, Pose, interleaved, memory_format


def polar(
    images: Tensor,
    origin: Tensor,
    grid: PolarGrid,
    *,
    phase: Tensor | float,
    dilation: Tensor | float,
    mode: Mode,
    padding_mode: PaddingMode,
) -> Tensor:
    """What `polar_sample` makes of images (N, C, H, W) and `cylindrical_sample` of volumes (N, C, X, Y, Z)."""
    height, width = (images.shape[3], images.shape[2]) if images.dim() == 5 else (images.shape[2], images.shape[3])
    r_max = grid.outer_radius((height, width))
    if grid.law == "log":
        start, step = grid.r_min_px, math.log2(r_max / grid.r_min_px) / grid.radii
    else:
        start, step = 0.0, r_max / grid.radii
    points = Points(grid.law, grid.angles, grid.radii, start, step, mode, padding_mode)
    return sample(images, origin, _per_sample(phase, 0.0, images), _per_sample(dilation, 1.0, images), points)


def warp(
    images: Tensor,
    *,
    rotation: Tensor,
    scale: Tensor,
    shift_px: Tensor,
    size: tuple[int, int],
    mode: Mode,
    padding_mode: PaddingMode,
) -> Tensor:
    """What `similarity_warp` makes of images or volumes, with one rotation, scale and shift for every sample."""
    return sample(images, shift_px, rotation, scale, Points("plane", *size, 0.0, 0.0, mode, padding_mode))


def sample(images: Tensor, place: Tensor, turn: Tensor | None, factor: Tensor | None, points: Points) -> Tensor:
    """`images` read at the `points` of every sample's pose (see `launch.Pose`), differentiable in all of them."""
    tensors = (images, place.to(torch.float32), _float32(turn), _float32(factor))
    if torch._C._are_functorch_transforms_active():
        return _Dispatched.apply(*tensors, points)  # type: ignore[no-untyped-call]
    if torch.compiler.is_compiling() or _watched(*tensors):
        return torch.ops.ptn.sample(*tensors, *points)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _Launched.apply(*tensors, points)  # type: ignore[no-untyped-call]
    return _sample(*tensors, *points)


def _float32(numbers: Tensor | None) -> Tensor | None:
    return None if numbers is None else numbers.to(torch.float32)


def _watched(*tensors: Tensor | None) -> bool:
    """Whether somebody wants to see operators rather than what they do: a subclass or a mode of torch."""
    return torch._C._len_torch_dispatch_stack() > 0 or not {*map(type, tensors)} <= _PLAIN


_PLAIN = {Tensor, torch.nn.Parameter, type(None)}


class _Launched(torch.autograd.Function):
    """The kernels and their gradients without torch's dispatcher, which takes time of its own."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _keep(ctx, inputs, None)
        return _sample(*inputs[:4], *ctx.points)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, grad, _image_gradient, _pose_gradient)


class _Dispatched(torch.autograd.Function):
    """The operators and their gradients, for the transforms of `torch.func`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        return torch.ops.ptn.sample(*inputs[:4], *inputs[4])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _keep(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, grad, torch.ops.ptn.image_gradient, torch.ops.ptn.pose_gradient)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor | None) -> None:
    images, place, turn, factor, ctx.points = inputs
    ctx.shape, ctx.channels_last = images.shape, interleaved(images)
    ctx.save_for_backward(images if any(ctx.needs_input_grad[1:4]) else None, place, turn, factor)


def _gradients(ctx: Any, grad: Tensor, *functions: Callable[..., Tensor]) -> tuple[Tensor | None, ...]:
    """The gradients to images, place, turn and factor that are needed, and None to the points."""
    compute = once_differentiable(_compute_gradients) if torch.is_grad_enabled() else _compute_gradients
    return compute(ctx, grad, *functions)


def _compute_gradients(
    ctx: Any, grad: Tensor, image_gradient: Callable[..., Tensor], pose_gradient: Callable[..., Tensor]
) -> tuple[Tensor | None, ...]:
    images, *pose = ctx.saved_tensors
    to_images, to_place, to_turn, to_factor, *_ = ctx.needs_input_grad
    gradients: list[Tensor | None] = [None] * 5
    if to_images:
        gradients[0] = image_gradient(grad, *pose, ctx.shape, ctx.channels_last, *ctx.points)
    if to_place or to_turn or to_factor:
        sums = pose_gradient(grad, images, *pose, *ctx.points)
        if to_place:
            gradients[1] = sums if sums.shape[1] == 2 else sums[:, :2]
        gradients[2] = sums[:, 2] if to_turn else None
        gradients[3] = sums[:, 3] if to_factor else None
    return tuple(gradients)


def _keep_operator(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _keep(ctx, (*inputs[:4], Points(*inputs[4:])), output)


def _operator_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _gradients(ctx, grad, torch.ops.ptn.image_gradient, torch.ops.ptn.pose_gradient)
    return *gradients[:4], *(None for _ in ctx.points)


def _sample(images: Tensor, place: Tensor, turn: Tensor | None, factor: Tensor | None, *points: Any) -> Tensor:
    out = _empty_output(images, place, turn, factor, *points)
    launch.sample(images, out, Pose(place, turn, factor), Points(*points))
    return out


def _empty_output(
    images: Tensor, place: Tensor, turn: Tensor | None, factor: Tensor | None, *points: Any
) -> Tensor:
    law, rows, columns, *_ = points
    count, channels = images.shape[:2]
    if images.dim() == 4:
        layout = memory_format(interleaved(images))
        return torch.empty(
            (count, channels, rows, columns), dtype=images.dtype, device=images.device, memory_format=layout
        )
    size = (columns, rows) if law == "plane" else (rows, columns)
    return images.new_empty((count, channels, *size, images.shape[4]))


def _image_gradient(
    grad: Tensor,
    place: Tensor,
    turn: Tensor | None,
    factor: Tensor | None,
    shape: list[int],
    channels_last: bool,
    *points: Any,
) -> Tensor:
    alert_not_deterministic("the gradient of ptn's sampling to the images (backend 'triton')")
    pose = Pose(place, turn, factor)
    return launch.image_gradient(grad, shape, pose, Points(*points), channels_last=channels_last)


def _empty_images(
    grad: Tensor,
    place: Tensor,
    turn: Tensor | None,
    factor: Tensor | None,
    shape: list[int],
    channels_last: bool,
    *points: Any,
) -> Tensor:
    return torch.empty(shape, dtype=grad.dtype, device=grad.device, memory_format=memory_format(channels_last))


def _pose_gradient(
    grad: Tensor, images: Tensor, place: Tensor, turn: Tensor | None, factor: Tensor | None, *points: Any
) -> Tensor:
    return launch.pose_gradient(grad, images, Pose(place, turn, factor), Points(*points))


def _empty_pose(
    grad: Tensor, images: Tensor, place: Tensor, turn: Tensor | None, factor: Tensor | None, *points: Any
) -> Tensor:
    numbers = Pose(place, turn, factor).numbers
    return grad.new_empty((images.shape[0], numbers), dtype=torch.float32)


def _sample_batched(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    tensors = _fold(info.batch_size, dims[:4], inputs[:4])
    return torch.ops.ptn.sample(*tensors, *inputs[4:]).unflatten(0, (info.batch_size, -1)), 0


def _image_gradient_batched(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    tensors = _fold(info.batch_size, dims[:4], inputs[:4])
    count, *shape = inputs[4]
    gradient = torch.ops.ptn.image_gradient(*tensors, [info.batch_size * count, *shape], *inputs[5:])
    return gradient.unflatten(0, (info.batch_size, -1)), 0


def _pose_gradient_batched(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    tensors = _fold(info.batch_size, dims[:5], inputs[:5])
    return torch.ops.ptn.pose_gradient(*tensors, *inputs[5:]).unflatten(0, (info.batch_size, -1)), 0


def _fold(size: int, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """`tensors` with the dimension that vmap hides among the samples."""

    def fold(tensor: Tensor | None, dim: int | None) -> Tensor | None:
        if tensor is None:
            return None
        batched = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        return batched.flatten(0, 1)

    return [fold(tensor, dim) for tensor, dim in zip(tensors, dims, strict=True)]


def _per_sample(value: Tensor | float, default: float, images: Tensor) -> Tensor | None:
    """`value` for every sample (N,), or None where it is the default."""
    if isinstance(value, Tensor):
        return value.to(images.device).expand(images.shape[0])
    if value == default:
        return None
    return torch.full((images.shape[0],), value, dtype=torch.float32, device=images.device)


def _register(
    name: str, arguments: str, run: Callable[..., Tensor], like: Callable[..., Tensor], batched: Callable[..., Any]
) -> None:
    points = "str law, SymInt rows, SymInt columns, float start, float step, str interpolation, str padding"
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    _LIBRARY.define(f"{name}({arguments}, {points}) -> Tensor", tags=tags)
    for device in ("CUDA", "CPU") if INTERPRETING else ("CUDA",):
        _LIBRARY.impl(name, run, device)
    torch.library.register_fake(f"ptn::{name}", like, lib=_LIBRARY)
    torch.library.register_vmap(f"ptn::{name}", batched, lib=_LIBRARY)


_LIBRARY = torch.library.Library("ptn", "FRAGMENT")
_POSE = "Tensor place, Tensor? turn, Tensor? factor"
_register("sample", f"Tensor images, {_POSE}", _sample, _empty_output, _sample_batched)
_register(
    "image_gradient",
    f"Tensor grad, {_POSE}, SymInt[] shape, bool channels_last",
    _image_gradient,
    _empty_images,
    _image_gradient_batched,
)
_register(
    "pose_gradient", f"Tensor grad, Tensor images, {_POSE}", _pose_gradient, _empty_pose, _pose_gradient_batched
)
torch.library.register_autograd("ptn::sample", _operator_gradients, setup_context=_keep_operator, lib=_LIBRARY)
