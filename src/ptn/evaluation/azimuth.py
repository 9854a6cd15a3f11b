"""How well shapes and images are recognised from every side: accuracy against how far they are turned."""

import math
from collections.abc import Sequence
from typing import Unpack

from torch import Tensor, nn

from ..data.dataset import Dataset, VoxelDataset
from ..geometry import similarity_warp
from .classify import ScoreOptions, evaluate

AZIMUTHS = tuple(range(0, 360, 15))
"""The turns in degrees at which accuracy is measured."""


def accuracy_by_azimuth(
    model: nn.Module,
    dataset: Dataset | VoxelDataset,
    degrees: Sequence[float] = AZIMUTHS,
    *,
    size: tuple[int, int] | None = None,
    **options: Unpack[ScoreOptions],
) -> list[float]:
    """The accuracy in % on a data set whose shapes are turned about z (images about their middle) by each angle.

    `size` is that of the middle which the model sees, where images are larger than it takes. Bicubic, because that
    blurs least; `options` are those of `scores`.
    """
    return [evaluate(_Turned(model, angle, size), dataset, **options).accuracy for angle in degrees]


class _Turned(nn.Module):
    """A model that sees everything turned by an angle."""

    def __init__(self, model: nn.Module, degrees: float, size: tuple[int, int] | None) -> None:
        super().__init__()
        self.model = model
        self.size = size
        self.rotation = math.radians(degrees)

    def forward(self, images: Tensor) -> Tensor:
        turned = similarity_warp(images, rotation=self.rotation, size=self.size, mode="bicubic")
        return self.model(turned.clamp(0, 1))
