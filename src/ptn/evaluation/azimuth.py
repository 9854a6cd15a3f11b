"""How well shapes are recognised from every side: accuracy against how far they are turned about z."""

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
    **options: Unpack[ScoreOptions],
) -> list[float]:
    """The accuracy in % on a data set whose shapes are turned about z (images about their middle) by each angle.

    Bicubic, because that blurs least; `options` are those of `scores`.
    """
    return [evaluate(_Turned(model, angle), dataset, **options).accuracy for angle in degrees]


class _Turned(nn.Module):
    """A model that sees everything turned by an angle."""

    def __init__(self, model: nn.Module, degrees: float) -> None:
        super().__init__()
        self.model = model
        self.rotation = math.radians(degrees)

    def forward(self, images: Tensor) -> Tensor:
        turned = similarity_warp(images, rotation=self.rotation, interpolation="bicubic")
        return self.model(turned.clamp(0, 1))
