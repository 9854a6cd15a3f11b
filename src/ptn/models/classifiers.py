"""Classifiers of Cartesian and polar images and of voxels: blocks, dropout and a head."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..config import check
from ..layers import Blocks, ChannelDropout, ConvBlock, ResidualBlock, make_conv, mean_response
from ..layers.origin import halvings

Stack = Literal["s", "b", "l", "resnet32", "voxels", "residual_voxels"]

# (filters, stride) of each block; in a residual stack all blocks but the first are residual
_RESNET32 = [*[(16, 1)] * 6, (32, 2), *[(32, 1)] * 4, (64, 2), *[(64, 1)] * 4]
_VOXELS = [(32, 1), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (128, 2), (128, 1)]
_RESIDUAL_VOXELS = [(32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (128, 2)]
_STEM = 16
_ANY_SIZE = {"resnet32": _RESNET32, "voxels": _VOXELS, "residual_voxels": _RESIDUAL_VOXELS}


class Classifier(nn.Module):
    """Blocks and a head: (N, C, …) -> logits (N, num_classes), or pooled features (N, channels) without a head.

    A convolutional head is averaged over all positions, a linear head is applied to the average of the features.
    """

    def __init__(self, blocks: Sequence[nn.Module], channels: int, head: nn.Module | None, dropout: float) -> None:
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


def make_classifier(
    stack: Stack,
    in_chans: int,
    num_classes: int,
    image_size: tuple[int, int],
    *,
    wrap: bool = False,
    dropout: float = 0.0,
    rows: int | None = None,
) -> Classifier:
    """Returns the classifier `stack`; with `rows`, the height of its input, it has a `RowHead`."""
    if stack == "resnet32":  # unlike the others it has no additional halvings
        check("image_size", image_size, math.prod(image_size) <= 2**20, "at most 1,024 × 1,024 pixels for ResNet32")
    residual = stack in ("resnet32", "residual_voxels")
    kernel = 5 if stack in ("l", "residual_voxels") else 3
    dims: Literal[2, 3] = 3 if stack in ("voxels", "residual_voxels") else 2
    blocks: list[nn.Module] = []
    channels = in_chans
    if stack == "l":  # it samples twice the angles, which this block halves
        blocks.append(ConvBlock(channels, _STEM, kernel=(5, 3), stride=(2, 1), wrap=wrap))
        channels, rows = _STEM, rows and math.ceil(rows / 2)
    for filters, stride in stack_layers(stack, image_size):
        if residual and blocks:
            blocks.append(ResidualBlock(channels, filters, stride=stride, wrap=wrap, dims=dims))
        else:
            blocks.append(ConvBlock(channels, filters, kernel=kernel, stride=stride, wrap=wrap, dims=dims))
        channels = filters
        rows = rows and math.ceil(rows / stride)
    head: nn.Module | None = None
    if num_classes and rows:
        check("rows × num_classes", rows * num_classes, rows * num_classes <= 10**6, "at most a million")
        head = RowHead(channels, rows, num_classes)
    elif num_classes and residual:
        head = nn.Linear(channels, num_classes)
    elif num_classes:
        head = make_conv(channels, num_classes, kernel=1 if stack == "voxels" else 3, wrap=wrap, dims=dims)
    return Classifier(blocks, channels, head, dropout)


def stack_layers(stack: Stack, image_size: tuple[int, int]) -> list[tuple[int, int]]:
    """(filters, stride) of each block. The paper has S and B at 28, 42 and 96 pixels; others follow the rule."""
    if stack in _ANY_SIZE:
        return _ANY_SIZE[stack]
    extra = halvings(image_size)
    if stack == "s":
        return [(20, 2)] * extra + [(20, stride) for stride in (1, 2, 1, 1, 1, 1)]
    first, second, third = (16, 32, 64) if stack == "b" else (24, 48, 96)
    before = (1, 2) if extra == 1 else (2,) * extra
    filters = [first] * (len(before) + 2) + [second] * 3 + [third] * 3
    return list(zip(filters, (*before, 1, 1, 2, 1, 1, 2, 1, 1), strict=True))
