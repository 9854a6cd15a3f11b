"""The stacks that classify an image, Cartesian or polar: S, B, L, ResNet32, and the two for voxels.

Each has `features` (the last feature maps) and `score` (feature maps to logits); `forward` is one after the
other.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..layers import Blocks, ChannelDropout, ConvBlock, ResidualBlock, make_conv
from ..layers.blocks import Size, mean_response

Layers = Sequence[tuple[int, Size]]
"""(filters, stride) of each block."""

Stages = Sequence[tuple[int, int]]
"""(filters, number of residual blocks) of each stage."""

Stack = Literal["s", "b", "l", "resnet32"]
VoxelStack = Literal["plain", "residual"]

RESNET32: Stages = ((16, 5), (32, 5), (64, 5))
VOXEL_LAYERS: Layers = [(32, 1), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (128, 2), (128, 1)]
VOXEL_STAGES: Stages = ((32, 2), (64, 2), (128, 1))


def halvings(image_size: tuple[int, int]) -> int:
    """How many times an image is halved before the stack that suits 28 pixels: 1 at 42 pixels, 2 at 96."""
    return max(0, round(math.log2(max(image_size) / 28)))


def stack_layers(stack: Stack, image_size: tuple[int, int]) -> Layers:
    """The blocks of a stack. The paper names them at 28, 42 and 96 pixels; other sizes follow the same rule."""
    extra = halvings(image_size)
    if stack == "s":
        return [(20, 2)] * extra + [(20, stride) for stride in (1, 2, 1, 1, 1, 1)]
    if stack == "b":
        return _widening_layers((16, 32, 64), extra)
    (filters, stride), *others = _widening_layers((24, 48, 96), extra)
    # twice the angles, halved again at once: finer sampling pays only when the kernels still see far
    return [(filters, (2 * stride, stride)), *others]


def _widening_layers(widths: tuple[int, int, int], extra: int) -> list[tuple[int, int]]:
    first, second, third = widths
    before = {0: (), 1: (1, 2)}.get(extra, (2,) * extra)
    strides = (*before, 1, 1, 2, 1, 1, 2, 1, 1)
    filters = (*(first,) * (len(before) + 2), *(second,) * 3, *(third,) * 3)
    return list(zip(filters, strides, strict=True))


class RowHead(nn.Linear):
    """Scores of feature maps averaged along their columns alone: (N, C, rows, …) -> (N, num_classes).

    Each row counts by itself. Of polar images: each direction, so that a turned object may be another one. At the
    start all count the same, and SGD learns what they have in common as fast as in a layer over their average.
    """

    def __init__(self, channels: int, rows: int, num_classes: int) -> None:
        super().__init__(channels * rows, num_classes)
        self.scale = rows**-0.5
        of_average = nn.Linear(channels, num_classes)
        with torch.no_grad():
            self.weight.unflatten(1, (channels, rows)).copy_(self.scale * of_average.weight[:, :, None])
            self.bias.copy_(of_average.bias)

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(self.scale * features.flatten(3).mean(dim=3).flatten(1))


class ConvStack(nn.Module):
    """Blocks, a final convolution to the classes, and their average: (N, C, …) -> (N, num_classes).

    With `rows`, of the input, a `RowHead` instead of the last two.
    """

    def __init__(
        self,
        in_chans: int,
        num_classes: int,
        layers: Layers,
        *,
        kernel: int = 3,
        head_kernel: int | None = None,
        wrap: bool = False,
        dropout: float = 0.0,
        rows: int | None = None,
        dims: Literal[2, 3] = 2,
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = in_chans
        for filters, stride in layers:
            blocks.append(ConvBlock(channels, filters, kernel=kernel, stride=stride, wrap=wrap, dims=dims))
            channels = filters
        self.features = Blocks(*blocks)
        self.dropout = ChannelDropout(channels, dropout)
        self.head: nn.Conv2d | nn.Conv3d | RowHead
        if rows is None:
            self.head = make_conv(channels, num_classes, kernel=head_kernel or kernel, wrap=wrap, dims=dims)
        else:
            self.head = RowHead(channels, rows_left(rows, [stride for _, stride in layers]), num_classes)

    def score(self, features: Tensor) -> Tensor:
        """Feature maps -> logits."""
        seen = self.dropout(features)
        return self.head(seen) if isinstance(self.head, RowHead) else mean_response(self.head, seen)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.features(x))


class ResNet(nn.Module):
    """A stem, stages of residual blocks, and the average of their feature maps: (N, C, …) -> (N, num_classes).

    Every stage after the first has half the size of the one before. By default He et al.'s ResNet32. With `rows`,
    of the input, a `RowHead` scores them.
    """

    def __init__(
        self,
        in_chans: int,
        num_classes: int,
        *,
        stages: Stages = RESNET32,
        stem_kernel: int = 3,
        stem_stride: Size = 1,
        wrap: bool = False,
        dropout: float = 0.0,
        rows: int | None = None,
        dims: Literal[2, 3] = 2,
    ) -> None:
        super().__init__()
        channels = stages[0][0]
        stem = ConvBlock(in_chans, channels, kernel=stem_kernel, stride=stem_stride, wrap=wrap, dims=dims)
        blocks: list[ResidualBlock] = []
        for index, (width, count) in enumerate(stages):
            stride = 1 if index == 0 else 2
            blocks += residual_stage(channels, width, count, stride=stride, wrap=wrap, dims=dims)
            channels = width
        self.features = Blocks(stem, *blocks)
        self.dropout = ChannelDropout(channels, dropout)
        if rows is None:
            self.head = nn.Linear(channels, num_classes)
        else:
            strides = [stem_stride, *(2 for _ in stages[1:])]
            self.head = RowHead(channels, rows_left(rows, strides), num_classes)

    def score(self, features: Tensor) -> Tensor:
        """Feature maps -> logits."""
        seen = self.dropout(features)
        return self.head(seen if isinstance(self.head, RowHead) else seen.flatten(2).mean(dim=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.features(x))


def rows_left(rows: int, strides: Sequence[Size]) -> int:
    """How many of so many rows of an image are left after convolutions of these strides."""
    for stride in strides:
        rows = -(-rows // (stride if isinstance(stride, int) else stride[0]))
    return rows


def residual_stage(
    in_chans: int,
    channels: int,
    count: int,
    *,
    stride: int = 1,
    wrap: bool = False,
    dims: Literal[2, 3] = 2,
) -> list[ResidualBlock]:
    """`count` residual blocks, the first of which changes width and size."""
    first = ResidualBlock(in_chans, channels, stride=stride, wrap=wrap, dims=dims)
    return [first, *(ResidualBlock(channels, channels, wrap=wrap, dims=dims) for _ in range(count - 1))]


def make_classifier(
    stack: Stack,
    *,
    num_classes: int,
    image_size: tuple[int, int],
    in_chans: int,
    kernel: int | None = None,
    wrap: bool = False,
    dropout: float = 0.0,
    angle_stride: int = 1,
    rows: int | None = None,
) -> ConvStack | ResNet:
    """The classifier called `stack`, for images of a size.

    `angle_stride` is a stride of its first convolution along the rows, on top of its own. `rows` are those of the
    images, where its scores are to tell them apart.
    """
    if isinstance(angle_stride, bool) or not isinstance(angle_stride, int) or angle_stride < 1:
        raise InputError(f"angle_stride must be a whole number of at least 1; got {angle_stride!r}")
    if stack == "resnet32":
        stem_stride = (angle_stride, 1)
        return ResNet(in_chans, num_classes, stem_stride=stem_stride, wrap=wrap, dropout=dropout, rows=rows)
    (filters, stride), *others = stack_layers(stack, image_size)
    along, across = stride if isinstance(stride, tuple) else (stride, stride)
    layers = [(filters, (angle_stride * along, across)), *others]
    size = (5 if stack == "l" else 3) if kernel is None else kernel
    return ConvStack(in_chans, num_classes, layers, kernel=size, wrap=wrap, dropout=dropout, rows=rows)


def make_voxel_classifier(
    stack: VoxelStack, *, num_classes: int, in_chans: int, wrap: bool = False, dropout: float = 0.0
) -> ConvStack | ResNet:
    """The classifier of voxels called `stack`: the paper's eight plain blocks, or residual ones at half size."""
    if stack == "plain":
        return ConvStack(in_chans, num_classes, VOXEL_LAYERS, head_kernel=1, wrap=wrap, dropout=dropout, dims=3)
    return ResNet(
        in_chans,
        num_classes,
        stages=VOXEL_STAGES,
        stem_kernel=5,
        stem_stride=2,
        wrap=wrap,
        dropout=dropout,
        dims=3,
    )
