"""Classifiers of Cartesian and polar images and of voxels: blocks, dropout and a head."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ..layers import Blocks, ChannelDropout, ConvBlock, ResidualBlock, make_conv, mean_response
from ..layers.origin import halvings

Stride = int | tuple[int, ...]
Layers = Sequence[tuple[int, Stride]]
"""(filters, stride) of each block."""

Stages = Sequence[tuple[int, int]]
"""(filters, number of residual blocks) of each stage."""

Stack = Literal["s", "b", "l", "resnet32"]
VoxelStack = Literal["plain", "residual"]
Dims = Literal[2, 3]

RESNET32: Stages = ((16, 5), (32, 5), (64, 5))
VOXEL_LAYERS: Layers = [(32, 1), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (128, 2), (128, 1)]
VOXEL_STAGES: Stages = ((32, 2), (64, 2), (128, 1))


class Classifier(nn.Module):
    """Blocks and a head: (N, C, …) -> logits (N, num_classes), or pooled features (N, channels) without a head.

    A convolutional head is averaged over all positions, a linear head is applied to the average of the features.
    """

    def __init__(
        self, blocks: Sequence[nn.Module], channels: int, head: nn.Module | None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.features = Blocks(*blocks)
        self.dropout = ChannelDropout(channels, dropout)
        self.head = head

    def score(self, features: Tensor) -> Tensor:
        """Logits of feature maps."""
        features = self.dropout(features)
        if isinstance(self.head, nn.Conv2d | nn.Conv3d):
            return mean_response(self.head, features)
        if isinstance(self.head, RowHead):
            return self.head(features)
        pooled = features.flatten(2).mean(dim=2)
        return pooled if self.head is None else self.head(pooled)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.features(x))


class RowHead(nn.Linear):
    """Linear layer over feature maps averaged along the columns only: (N, C, rows, columns) -> (N, num_classes).

    Each row of a polar image is a direction, so the logits depend on how an object is rotated. All rows start
    with equal weights. The scale makes SGD learn the component common to all rows at the rate of a linear layer
    over the average of all positions.
    """

    def __init__(self, channels: int, rows: int, num_classes: int) -> None:
        super().__init__(channels * rows, num_classes)
        self.scale = rows**-0.5
        shared = nn.Linear(channels, num_classes)
        with torch.no_grad():
            self.weight.unflatten(1, (channels, rows)).copy_(self.scale * shared.weight[:, :, None])
            self.bias.copy_(shared.bias)

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(self.scale * features.flatten(3).mean(dim=3).flatten(1))


def image_classifier(
    stack: Stack,
    in_chans: int,
    num_classes: int,
    image_size: tuple[int, int],
    *,
    wrap: bool = False,
    dropout: float = 0.0,
    rows: int | None = None,
) -> Classifier:
    """Returns the classifier `stack` for images; with `rows`, the height of its input, it has a `RowHead`."""
    if stack == "resnet32":
        return _residual_classifier(in_chans, num_classes, RESNET32, wrap=wrap, dropout=dropout, rows=rows)
    layers, kernel = stack_layers(stack, image_size), 5 if stack == "l" else 3
    return _plain_classifier(in_chans, num_classes, layers, kernel=kernel, wrap=wrap, dropout=dropout, rows=rows)


def voxel_classifier(
    stack: VoxelStack, in_chans: int, num_classes: int, *, wrap: bool = False, dropout: float = 0.0
) -> Classifier:
    """Returns the classifier `stack` for voxels: the blocks of the paper, or residual blocks at half resolution."""
    if stack == "plain":
        return _plain_classifier(
            in_chans, num_classes, VOXEL_LAYERS, head_kernel=1, wrap=wrap, dropout=dropout, dims=3
        )
    return _residual_classifier(
        in_chans, num_classes, VOXEL_STAGES, stem_kernel=5, stem_stride=2, wrap=wrap, dropout=dropout, dims=3
    )


def stack_layers(stack: Stack, image_size: tuple[int, int]) -> Layers:
    """Blocks of a stack. The paper defines them for 28, 42 and 96 pixels; other sizes follow the same rule."""
    extra = halvings(image_size)
    if stack == "s":
        return [(20, 2)] * extra + [(20, stride) for stride in (1, 2, 1, 1, 1, 1)]
    if stack == "b":
        return _widening_layers((16, 32, 64), extra)
    (filters, stride), *others = _widening_layers((24, 48, 96), extra)
    # stack L samples twice the angles and halves them in its first block
    return [(filters, (2 * stride, stride)), *others]


def _widening_layers(widths: tuple[int, int, int], extra: int) -> list[tuple[int, int]]:
    first, second, third = widths
    before = {0: (), 1: (1, 2)}.get(extra, (2,) * extra)
    strides = (*before, 1, 1, 2, 1, 1, 2, 1, 1)
    filters = (*(first,) * (len(before) + 2), *(second,) * 3, *(third,) * 3)
    return list(zip(filters, strides, strict=True))


def _plain_classifier(
    in_chans: int,
    num_classes: int,
    layers: Layers,
    *,
    wrap: bool,
    dropout: float,
    kernel: int = 3,
    head_kernel: int | None = None,
    rows: int | None = None,
    dims: Dims = 2,
) -> Classifier:
    widths, strides = [in_chans, *(width for width, _ in layers)], [stride for _, stride in layers]
    blocks = [
        ConvBlock(before, after, kernel=kernel, stride=stride, wrap=wrap, dims=dims)
        for (before, after), stride in zip(pairwise(widths), strides, strict=True)
    ]
    head: nn.Module | None = None
    if num_classes and rows is not None:
        head = RowHead(widths[-1], _rows_after(rows, strides), num_classes)
    elif num_classes:
        head = make_conv(widths[-1], num_classes, kernel=head_kernel or kernel, wrap=wrap, dims=dims)
    return Classifier(blocks, widths[-1], head, dropout=dropout)


def _residual_classifier(
    in_chans: int,
    num_classes: int,
    stages: Stages,
    *,
    wrap: bool,
    dropout: float,
    stem_kernel: int = 3,
    stem_stride: int = 1,
    rows: int | None = None,
    dims: Dims = 2,
) -> Classifier:
    width = stages[0][0]
    stem = ConvBlock(in_chans, width, kernel=stem_kernel, stride=stem_stride, wrap=wrap, dims=dims)
    blocks: list[nn.Module] = [stem, *residual_stage(width, width, stages[0][1], wrap=wrap, dims=dims)]
    for (before, _), (width, count) in pairwise(stages):
        blocks += residual_stage(before, width, count, stride=2, wrap=wrap, dims=dims)
    head: nn.Module | None = None
    if num_classes and rows is not None:
        head = RowHead(width, _rows_after(rows, [stem_stride, *(2 for _ in stages[1:])]), num_classes)
    elif num_classes:
        head = nn.Linear(width, num_classes)
    return Classifier(blocks, width, head, dropout=dropout)


def residual_stage(
    in_chans: int, channels: int, count: int, *, stride: int = 1, wrap: bool = False, dims: Dims = 2
) -> list[ResidualBlock]:
    """`count` residual blocks; the first changes the number of channels and the resolution."""
    first = ResidualBlock(in_chans, channels, stride=stride, wrap=wrap, dims=dims)
    return [first, *(ResidualBlock(channels, channels, wrap=wrap, dims=dims) for _ in range(count - 1))]


def _rows_after(rows: int, strides: Sequence[Stride]) -> int:
    """Number of rows after size-preserving convolutions with these strides."""
    for stride in strides:
        rows = math.ceil(rows / (stride if isinstance(stride, int) else stride[0]))
    return rows
