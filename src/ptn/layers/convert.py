"""Conversion of existing layers so that they wrap around the angle, in place, with unchanged weights.

A converted layer covers the circle exactly once: windows of K rows at stride s, the first of them at row -p, read
rows -p … H+K-s-p of the circle and give H/s rows, for any padding before. Nothing changes along the radius.
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
# timm's layers with TensorFlow's "same" padding, which depends on the input size, and their plain classes
_SAME_PADDED: dict[str, type[nn.Module]] = {
    "Conv2dSame": nn.Conv2d,
    "MaxPool2dSame": nn.MaxPool2d,
    "AvgPool2dSame": nn.AvgPool2d,
}
# attributes with which timm's other layers switch on "same" padding
_SAME_FLAGS = ("same_pad", "dynamic_padding")


@dataclass(frozen=True)
class WrapInput:
    """Forward pre-hook that pads the input of a converted layer.

    Args:
        rows: rows of the circle before and after; a negative number crops.
        columns: columns of `fill` left and right.
        same: (window, stride) of "same" padding along the columns, instead of `columns`.
    """

    rows: tuple[int, int]
    columns: tuple[int, int] = (0, 0)
    same: tuple[int, int] | None = None
    fill: float = 0.0

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        columns = self.columns
        if self.same is not None:
            (window, stride), width = self.same, x.shape[3]
            missing = max(0, (math.ceil(width / stride) - 1) * stride + window - width)
            columns = (missing // 2, missing - missing // 2)
        x = wrap_angle(x, self.rows)
        return (F.pad(x, columns, value=self.fill) if any(columns) else x, *others)


def wrap_layer(layer: Any) -> bool:
    """Makes a convolution, pooling or padding layer wrap around the angle; returns False for any other layer.

    Raises:
        InputError: the layer returns the indices of its maxima, which would count wrapped rows.
    """
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
            raise InputError("returns indices, which would count wrapped rows")
        angle, radius = _pair(getattr(layer, "padding", 0))
        layer.padding = (0, radius)
        hook = WrapInput(_rows(_windows(layer)[0], angular_stride(layer), angle))
    else:
        return False
    if hook.rows[0] or hook.rows[1] > 0 or any(hook.columns) or hook.same:
        layer.register_forward_pre_hook(hook)
    return True


def is_wrapped(layer: nn.Module) -> bool:
    """Returns whether `wrap_layer` has added padding to this layer."""
    return any(isinstance(hook, WrapInput) for hook in layer._forward_pre_hooks.values())


def is_convolution(layer: nn.Module) -> bool:
    """Returns whether a layer that `wrap_layer` supports is a convolution with weights."""
    return isinstance(layer, nn.Conv2d) or _is_timm(layer, "CondConv2d")


def angular_stride(layer: Any) -> int:
    """Returns the stride along the angle of a layer that `wrap_layer` supports."""
    return _strides(layer)[0]


def _wrap_conv(conv: nn.Conv2d) -> WrapInput:
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
    """Rows before and after that windows need to cover the circle once, the first of them at row -`top`."""
    return top, window - stride - top


def _windows(layer: Any) -> tuple[int, int]:
    """Rows and columns that one window of a layer covers, dilation included."""
    kernel, dilation = _pair(layer.kernel_size), _pair(getattr(layer, "dilation", 1))
    return dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1


def _strides(layer: Any) -> tuple[int, int]:
    stride = getattr(layer, "stride", 1)
    return _pair(layer.kernel_size if stride is None else stride)


def _pair(value: Any) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, int) else value
    return rows, columns


def _is_timm(layer: nn.Module, *names: str) -> bool:
    """Whether a layer is one of timm's, by the names of its classes: timm need not be installed."""
    return any(base.__module__.startswith("timm.") and base.__name__ in names for base in type(layer).__mro__)
