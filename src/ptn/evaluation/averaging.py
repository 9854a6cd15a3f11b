"""Answers averaged over turns of an image, and over origins near the one that a network finds in it."""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from ..errors import InputError
from ..geometry import similarity_warp
from ..models import InferenceModel, OnnxModel, PolarNetwork

ORIGINS = (1, 5)
"""Over how many origins answers can be averaged: the one found, or that and its four neighbours."""

NEIGHBOUR_PX = 1.0
"""How far the neighbours of an origin lie from it, to the right, left, below and above."""


def check_averaging(model: nn.Module, *, rotations: int = 1, origins: int = 1) -> None:
    """Raise unless the answers of `model` can be averaged so."""
    if rotations < 1:
        raise InputError(f"rotations must be at least 1; got {rotations}")
    if origins not in ORIGINS:
        raise InputError(f"origins must be {' or '.join(map(str, ORIGINS))}; got {origins}")
    network = model.model if isinstance(model, InferenceModel) else model
    if origins > 1 and isinstance(network, OnnxModel):
        raise InputError(f"{network.path} is an ONNX file, which takes no origin: leave origins at 1")
    if origins > 1 and not isinstance(network, PolarNetwork):
        name = getattr(getattr(network, "config", None), "name", type(network).__name__)
        raise InputError(
            f"averaging over origins is for networks with a polar transformer of their own, which {name} has not: "
            "leave origins at 1"
        )


def mean_scores(model: nn.Module, images: Tensor, *, rotations: int = 1, origins: int = 1) -> Tensor:
    """The softmax scores of a batch (N, classes), averaged over so many turns by equal angles and, in each, over
    so many origins. Only turns interpolate the image once more: other origins are other points to read it at."""
    summed = None
    for turn in range(rotations):
        turned = similarity_warp(images, rotation=2 * math.pi * turn / rotations) if turn else images
        for logits in _answers(model, turned, origins):
            scores = logits.float().softmax(dim=1)
            summed = scores if summed is None else summed + scores
    assert summed is not None
    return summed / (rotations * origins)


def averaged_over(rotations: int, origins: int) -> str:
    """The end of a sentence: ", averaged over 8 rotations and 5 origins"; nothing where nothing is averaged."""
    counts = ((rotations, "rotations"), (origins, "origins"))
    parts = [f"{count} {name}" for count, name in counts if count > 1]
    return f", averaged over {' and '.join(parts)}" if parts else ""


def _answers(model: Any, images: Tensor, origins: int) -> Iterator[Tensor]:
    """The logits of `model` around the origin that it finds, and around the neighbours of that."""
    if origins == 1:
        yield model(images)
        return
    seen = model.explain(images)
    yield seen.logits
    for step in _steps(images, seen.origins):
        yield model(images, origin=seen.origins + step)


def _steps(images: Tensor, origins: Tensor) -> Tensor:
    """From an origin to its neighbours (4, 2), in units of [-1, 1]; of volumes x comes first, of images last."""
    width, height = (images.shape[2], images.shape[3]) if images.dim() == 5 else (images.shape[3], images.shape[2])
    x, y = 2 * NEIGHBOUR_PX / width, 2 * NEIGHBOUR_PX / height
    return origins.new_tensor([[x, 0], [-x, 0], [0, y], [0, -y]])
