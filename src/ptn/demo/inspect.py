"""Intermediate results and predictions of a pair of networks for a transformed image."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.images import LUMA
from ..geometry import Similarity, similarity_warp
from ..layers import normalize_heatmap
from ..models import PolarNetwork
from ..models.classifiers import Classifier
from .models import Pair, Samples

Point = tuple[float, float]

# Index of the layer whose feature maps are shown: an early one, nearly as fine as the polar image.
_LAYER = 1
_MAPS = 3
# Limit of the supersampling of images that are scaled down.
_MAX_SUPERSAMPLING = 8
_CHUNK = 100  # images that are classified at once


@dataclass(frozen=True, eq=False)
class Inspection:
    """Inputs, intermediate results and predictions of a pair of networks for one image.

    Images and maps are in [0, 1]; pins are (x, y) as fractions of width and height.
    """

    image: Tensor  # (C, H, W), the input of both networks
    origin: Point  # (x, y) in [-1, 1]
    heatmap: Tensor | None  # (h, w); None for a fixed origin
    polar_image: Tensor  # (C, angles, radii)
    features: list[Tensor]  # maps (h, w) of an early layer
    pin: Point  # the tracked point in `image`
    polar_pin: Point  # and in `polar_image`
    polar_probabilities: list[float]  # of each class
    plain_probabilities: list[float] | None  # None without a plain network


class Predictions(NamedTuple):
    """Predicted classes (N,) of both networks of a pair; None without a plain network."""

    polar: Tensor
    plain: Tensor | None


@torch.inference_mode()
def inspect_image(
    pair: Pair, image: Tensor, pose: Similarity, pin_px: Point = (0.0, 0.0), clutter: Tensor | None = None
) -> Inspection:
    """Runs both networks on `image` (C, H, W) in [0, 1], gray or RGB, of any size, placed on their input by `pose`.

    `pin_px` is a point to track, in pixels from the center of `image`. `clutter` (1, H, W), of the input's size,
    is combined with the image by the maximum.
    """
    canvas = place(image[None], pose, pair.size, pair.channels, clutter)
    values = {name: value[0] for name, value in run_pair(pair, canvas).items()}
    x, y = values["origin"].tolist()
    pin_x, pin_y = pose.compose(Similarity(shift_px=pin_px)).shift_px
    pin = 0.5 + float(pin_x) / pair.size[1], 0.5 + float(pin_y) / pair.size[0]
    return Inspection(
        image=canvas[0],
        origin=(x, y),
        heatmap=values.get("heatmap"),
        polar_image=values["polar_image"],
        features=list(values.get("features", ())),
        pin=pin,
        polar_pin=_pin_in_polar(pair, pin, (x, y)),
        polar_probabilities=values["polar_probabilities"].tolist(),
        plain_probabilities=values["plain_probabilities"].tolist() if pair.plain is not None else None,
    )


def run_pair(pair: Pair, images: Tensor) -> dict[str, Tensor]:
    """Returns what the page shows of images (N, C, H, W), by name, without what the networks do not have."""
    network, shown = pair.polar, list(shown_channels(pair.polar))
    location = network.locate(images)
    features, logits = classify(network, network.classifier_input(images, location.origin))
    if location.candidates is not None:  # the logits of all candidates for the origin
        logits = network(images)
    values = {
        "polar_probabilities": logits.softmax(dim=1),
        "origin": location.origin,
        "polar_image": network.transformer.sample(images, location.origin)[:, : pair.channels],
    }
    if location.heatmap is not None:
        values["heatmap"] = normalize_heatmap(location.heatmap)
    if shown:
        maps = features[:, shown]
        values["features"] = maps / maps.amax(dim=(2, 3), keepdim=True).clamp(min=1e-6)
    if pair.plain is not None:
        values["plain_probabilities"] = pair.plain(images).softmax(dim=1)
    return values


@torch.inference_mode()
def predict_ring(
    pair: Pair, image: Tensor, pose: Similarity, steps: int, clutter: Tensor | None = None
) -> Predictions:
    """Returns the predictions for `image` at `steps` angles from 0°, with the scale and the shift of `pose`."""
    turns = torch.arange(steps) * (2 * math.pi / steps)
    every = Similarity(turns, pose.scale, pose.shift_px)
    return _predict(pair, place(image.expand(steps, -1, -1, -1), every, pair.size, pair.channels, clutter))


@torch.inference_mode()
def count_correct(pair: Pair, samples: Samples, pose: Similarity) -> dict[str, int | None]:
    """Returns the number of images, and the number of correct predictions of each network in the pose `pose`."""
    expected = torch.tensor([pair.classes.index(str(int(label))) for label in samples.labels])
    correct: dict[str, int | None] = {
        "count": len(expected),
        "polar": 0,
        "plain": None if pair.plain is None else 0,
    }
    for images, labels in zip(samples.images.split(_CHUNK), expected.split(_CHUNK), strict=True):
        predictions = _predict(pair, place(images / 255, pose, pair.size, pair.channels))
        for name, predicted in predictions._asdict().items():
            if predicted is not None:
                correct[name] = (correct[name] or 0) + int((predicted == labels).sum())
    return correct


def _predict(pair: Pair, images: Tensor) -> Predictions:
    plain = None if pair.plain is None else pair.plain(images).argmax(dim=1)
    return Predictions(pair.polar(images).argmax(dim=1), plain)


def place(
    images: Tensor, pose: Similarity, size: tuple[int, int], channels: int, clutter: Tensor | None = None
) -> Tensor:
    """Returns images (N, C, H, W) transformed by `pose`, and clutter (1, h, w): (N, channels, h, w)."""
    if images.shape[1] == 3 and channels == 1:
        images = (images * images.new_tensor(LUMA)[:, None, None]).sum(dim=1, keepdim=True)
    # Supersample when scaling down, to avoid aliasing.
    factor = min(_MAX_SUPERSAMPLING, max(1, round(1 / float(pose.scale))))
    fine = Similarity(scale=factor).compose(pose)
    placed = F.avg_pool2d(similarity_warp(images, fine, size=(size[0] * factor, size[1] * factor)), factor)
    if clutter is not None:
        placed = placed.maximum(clutter)
    return placed.expand(-1, channels, -1, -1)


def distinct_channels(maps: Tensor, count: int) -> list[int]:
    """Returns up to `count` channels of maps (C, h, w) with large variance and low correlation with each other."""
    centered = maps.flatten(1) - maps.flatten(1).mean(dim=1, keepdim=True)
    energy = centered.square().sum(dim=1)
    unit = centered / energy.sqrt().clamp(min=1e-12)[:, None]
    chosen: list[int] = []
    for _ in range(min(count, len(maps))):
        correlation = (unit @ unit[chosen].T).abs().amax(dim=1) if chosen else torch.zeros(len(maps))
        rating = energy * (1 - correlation.square())
        rating[chosen] = -1
        chosen.append(int(rating.argmax()))
    return chosen


def classify(network: PolarNetwork, maps: Tensor) -> tuple[Tensor, Tensor]:
    """Returns maps (N, C, h, w) of an early layer (C = 0 for backbones of other packages), and logits."""
    classifier = network.classifier
    if not isinstance(classifier, Classifier):
        return maps.new_zeros(len(maps), 0, 1, 1), classifier(maps)
    for index, block in enumerate(classifier.features):
        maps = block(maps)
        if index == _LAYER:
            early = maps
    return early, classifier.score(maps)


@lru_cache
def shown_channels(network: PolarNetwork) -> tuple[int, ...]:
    """Returns the channels to show, chosen by their response to an L shape."""
    channels, height, width = network.input_shape
    corner = torch.zeros(1, channels, height, width)
    corner[..., height // 4 : 3 * height // 4, width // 2] = 1
    corner[..., 3 * height // 4, width // 2 : 3 * width // 4] = 1
    features, _ = classify(network, network.classifier_input(corner, torch.zeros(1, 2)))
    return tuple(distinct_channels(features[0], _MAPS))


def _pin_in_polar(pair: Pair, pin: Point, origin: Point) -> Point:
    """Returns the position of an image point in the polar image around `origin`; pixel i of n is at (i + ½) / n."""
    grid = pair.transformer.grid
    height, width = pair.size
    x = (pin[0] - (origin[0] + 1) / 2) * width
    y = (pin[1] - (origin[1] + 1) / 2) * height
    radius = torch.tensor(max(math.hypot(x, y), 1e-3), dtype=torch.float64)
    column = float(grid.column_at(radius, pair.size))
    row = math.atan2(y, x) / (2 * math.pi) * grid.angles
    return (column + 0.5) / grid.radii, ((row + 0.5) / grid.angles) % 1
