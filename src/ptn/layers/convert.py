"""Layers of other people's networks made to wrap around the angle, in place, their weights as they are.

Along the angle a layer starts where it always did and goes once around: windows of K rows at stride s, the first of
them at row -p, see rows -p … H+K-s-p of the circle and give H/s rows, whatever was padded before. Along the radius
nothing changes.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import nn

from ..errors import InputError
from ..geometry import wrap_angle
from .conv import WrapConv2d

_PADS = (nn.ConstantPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.LPPool2d)
# timm's layers that pad by the size of their input, as TensorFlow does, and what they are without that
_SAME_PADDED: dict[str, type[nn.Module]] = {
    "Conv2dSame": nn.Conv2d,
    "MaxPool2dSame": nn.MaxPool2d,
    "AvgPool2dSame": nn.AvgPool2d,
}
# how timm's other layers say that they pad so
_SAME_FLAGS = ("same_pad", "dynamic_padding")


@dataclass(frozen=True)
class WrapInput:
    """What a converted layer sees in place of its input: a forward pre-hook.

    `rows` of the circle before and after, cut off where negative; `columns` of `fill` left and right, or with
    `same` = (window, stride) as many as give one column for each stride.
    """

    rows: tuple[int, int]
    columns: tuple[int, int] = (0, 0)
    same: tuple[int, int] | None = None
    fill: float = 0.0

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        columns = self.columns if self.same is None else _same_columns(x.shape[3], *self.same)
        x = wrap_angle(x, self.rows)
        return (F.pad(x, columns, value=self.fill) if any(columns) else x, *others)


def wrap_layer(layer: Any) -> bool:
    """Make `layer` wrap around the angle; False if it is no convolution, pooling or padding that could."""
    if isinstance(layer, WrapConv2d) or is_wrapped(layer):
        return True
    if isinstance(layer, _PADS):
        left, right, top, _ = layer.padding
        layer.padding = (left, right, 0, 0)
        hook = WrapInput((top, -top))
    elif _is_timm(layer, *_SAME_PADDED) or any(getattr(layer, flag, False) for flag in _SAME_FLAGS):
        hook = _wrap_same_padded(layer)
    elif _is_timm(layer, "BlurPool2d"):
        left, right, top, _ = layer.padding
        layer.padding = [left, right, 0, 0]
        hook = WrapInput(_rows(layer.filt_size, layer.stride, top))
    elif isinstance(layer, nn.Conv2d):
        hook = _wrap_conv(layer)
    elif isinstance(layer, _POOLS) or _is_timm(layer, "CondConv2d"):
        if getattr(layer, "return_indices", False):
            raise InputError("returns indices, which would count the rows that were wrapped around")
        angle, radius = _pair(getattr(layer, "padding", 0))
        layer.padding = (0, radius)
        hook = WrapInput(_rows(_windows(layer)[0], angular_stride(layer), angle))
    else:
        return False
    if hook.rows[0] or hook.rows[1] > 0 or any(hook.columns) or hook.same:
        layer.register_forward_pre_hook(hook)
    return True


def is_wrapped(layer: nn.Module) -> bool:
    """Whether `wrap_layer` has made this layer see rows beyond the ends."""
    return any(isinstance(hook, WrapInput) for hook in layer._forward_pre_hooks.values())


def is_convolution(layer: nn.Module) -> bool:
    """Whether a layer that `wrap_layer` knows is a convolution with weights."""
    return isinstance(layer, nn.Conv2d) or _is_timm(layer, "CondConv2d")


def angular_stride(layer: Any) -> int:
    """By how many rows the windows of a layer that `wrap_layer` knows lie apart."""
    return _strides(layer)[0]


def _wrap_conv(conv: nn.Conv2d) -> WrapInput:
    """A convolution of any padding, or one of its subclasses that pad by `padding`."""
    columns = (0, 0)
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        left, right, top, _ = conv._reversed_padding_repeated_twice
        conv._reversed_padding_repeated_twice = [left, right, 0, 0]
        if conv.padding_mode == "zeros":
            conv.padding, columns = (0, 0), (left, right)
    else:
        top, radius = _pair(conv.padding)
        conv.padding = (0, radius)
    return WrapInput(_rows(_windows(conv)[0], conv.stride[0], top), columns)


def _wrap_same_padded(layer: Any) -> WrapInput:
    """A layer whose forward pads until there is an output for each stride of input."""
    for name, plain in _SAME_PADDED.items():
        if _is_timm(layer, name):
            layer.__class__ = plain
    for flag in _SAME_FLAGS:
        if hasattr(layer, flag):
            setattr(layer, flag, False)
    (rows, columns), (angular, radial) = _windows(layer), _strides(layer)
    fill = -math.inf if isinstance(layer, nn.MaxPool2d) else 0.0
    return WrapInput(_rows(rows, angular, max(0, rows - angular) // 2), same=(columns, radial), fill=fill)


def _rows(window: int, stride: int, top: int) -> tuple[int, int]:
    """The rows before and after that windows need to go once around, the first of them at row -`top`."""
    return top, window - stride - top


def _same_columns(width: int, window: int, stride: int) -> tuple[int, int]:
    missing = max(0, (math.ceil(width / stride) - 1) * stride + window - width)
    return missing // 2, missing - missing // 2


def _windows(layer: Any) -> tuple[int, int]:
    """How many rows and columns a layer looks at at once."""
    kernel, dilation = _pair(layer.kernel_size), _pair(getattr(layer, "dilation", 1))
    return dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1


def _strides(layer: Any) -> tuple[int, int]:
    stride = getattr(layer, "stride", 1)
    return _pair(layer.kernel_size if stride is None else stride)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    rows, columns = value
    return rows, columns


def _is_timm(layer: nn.Module, *names: str) -> bool:
    """Whether a layer is one of timm's, by the names of its class and bases: timm need not be installed."""
    return any(base.__module__.startswith("timm.") and base.__name__ in names for base in type(layer).__mro__)
