"""Networks: a transformer and a classifier of what it samples, ensembles of networks, and how each is built."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..config import check
from ..errors import InputError
from ..geometry import Law, Mode, PaddingMode, PolarGrid, check_images
from ..layers import (
    Blocks,
    ConvBlock,
    CylindricalTransformer,
    HeatmapActivation,
    OriginPredictor,
    PolarTransformer,
    SpatialTransformer,
    default_predictor,
)
from .classifiers import Classifier, Stack, VoxelStack, image_classifier, residual_stage, voxel_classifier

ImageSize = tuple[int, int]
Origin = Literal["learned", "center"]


@dataclass(frozen=True)
class ModelConfig:
    """Name, sizes and options of a model: the arguments of `create_model` that build it."""

    name: str
    num_classes: int = 10
    image_size: ImageSize = (28, 28)
    in_chans: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check("num_classes", self.num_classes, self.num_classes >= 0, "at least 0")
        check("in_chans", self.in_chans, self.in_chans >= 1, "at least 1")
        check("image_size", self.image_size, min(self.image_size) >= 4, "at least 4 pixels")


@dataclass(frozen=True)
class Explanation:
    """Intermediate results of a forward pass, without gradients; None for what a network does not have.

    Attributes:
        logits: (N, num_classes).
        feature_maps: (N, C, h, w), the last ones of the network.
        origins: (N, 2) in [-1, 1].
        heatmaps: (N, h, w); the origins are their centroids.
        polar_images: (N, C, angles, radii), in the units of the images. Of volumes: (N, C, angles, radii, Z).
    """

    logits: Tensor
    feature_maps: Tensor | None = None
    origins: Tensor | None = None
    heatmaps: Tensor | None = None
    polar_images: Tensor | None = None


@contextmanager
def inferring(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module is back in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


class Network(nn.Module, ABC):
    """Base class: images (N, *input_shape), floats in [0, 1] -> logits (N, num_classes).

    Images are normalized by the buffers `mean` and `std`, so normalization is part of the model.

    Attributes:
        config: How `create_model` built the network; networks that it cannot build have none.
        classes: Names of the classes, or None.
        metadata: What is known about the training, such as "dataset", "recipe", "seed" and "test_error".
    """

    config: ModelConfig

    def __init__(self, input_shape: tuple[int, ...], classifier: nn.Module) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.classes: tuple[str, ...] | None = None
        self.metadata: dict[str, Any] = {}
        self.register_buffer("mean", torch.zeros(input_shape[0]))
        self.register_buffer("std", torch.ones(input_shape[0]))
        self._add_parts()
        self.classifier = classifier
