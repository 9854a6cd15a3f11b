"""What a pair of networks makes of one image, turned, scaled and moved."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.folder import LUMA
from ..evaluation.predict import heat_share
from ..geometry import similarity_warp
from ..models.classifiers import ConvStack, ResNet
from ..models.networks import PolarNetwork
from .models import Pair

# the layer whose maps are shown: early enough to be as fine as the polar image, or nearly
_LAYER = 1
_MAPS = 3
# an image that is made smaller is sampled up to so many times as finely as the networks see it
_FINEST = 8


class Pose(NamedTuple):
    """Where an image stands among the pixels that the networks see.

    `turn_deg` clockwise on the screen; `scale` in pixels of theirs per pixel of the image; `shift_px` of its middle
    from theirs, (x, y).
    """

    turn_deg: float = 0.0
    scale: float = 1.0
    shift_px: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Sight:
    """What the networks saw and said.

    `image` (C, H, W) is what both saw, `polar_image` (C, angles, radii), both in [0, 1]; `heatmap` (h, w) and
    `features`, maps (h, w) of the polar image, from 0 to 1. `origin` is (x, y) in [-1, 1]. The pin is a point of
    the image that was given: `pin` where it is in `image`, `polar_pin` where in `polar_image`, (x, y) in shares of
    width and height. Probabilities are by class.
    """

    image: Tensor
    origin: tuple[float, float]
    heatmap: Tensor | None
    polar_image: Tensor
    features: list[Tensor]
    pin: tuple[float, float]
    polar_pin: tuple[float, float]
    polar_scores: list[float]
    plain_scores: list[float] | None


@torch.inference_mode()
def look(pair: Pair, image: Tensor, pose: Pose, pin_px: tuple[float, float] = (0.0, 0.0)) -> Sight:
    """What `pair` makes of `image` (C, H, W) in [0, 1], grey or colour, of any size, in a pose.

    `pin_px` is the point to follow, in pixels from the image's middle.
    """
    seen = place(image, pose, pair.size, pair.channels)[None]
    polar, transformer = pair.polar, pair.transformer
    location = transformer.locate(polar.normalize(seen))
    polar_image = transformer.sample(seen, location.origin)
    features, logits = _read(polar, polar.normalize(polar_image))
    x, y = location.origin[0].tolist()
    pin = _pin_in_image(pose, pin_px, pair.size)
    return Sight(
        image=seen[0],
        origin=(x, y),
        heatmap=None if location.heatmap is None else heat_share(location.heatmap[0]),
        polar_image=polar_image[0],
        features=[features[channel] for channel in _telling_channels(polar)],
        pin=pin,
        polar_pin=_pin_in_polar(pair, pin, (x, y)),
        polar_scores=logits[0].softmax(dim=0).tolist(),
        plain_scores=None if pair.plain is None else pair.plain(seen)[0].softmax(dim=0).tolist(),
    )


def place(image: Tensor, pose: Pose, size: tuple[int, int], channels: int) -> Tensor:
    """`image` (C, H, W) in its pose on a canvas (`channels`, *size)."""
    if image.shape[0] == 3 and channels == 1:
        image = (image * image.new_tensor(LUMA)[:, None, None]).sum(dim=0, keepdim=True)
    finer = min(_FINEST, max(1, round(1 / pose.scale)))  # small images are averaged, not passed over
    placed = similarity_warp(
        image[None],
        rotation=math.radians(pose.turn_deg),
        scale=pose.scale * finer,
        shift_px=torch.tensor([pose.shift_px]) * finer,
        size=(size[0] * finer, size[1] * finer),
    )
    placed = F.avg_pool2d(placed, finer)[0] if finer > 1 else placed[0]
    return placed.expand(channels, -1, -1)


def _read(polar: PolarNetwork, image: Tensor) -> tuple[Tensor, Tensor]:
    """The maps of an early layer (C, h, w), and the logits, of one normalised polar image (1, C, H, W).

    A backbone that is not ours has no maps to show: (0, 1, 1).
    """
    classifier = polar.classifier
    if not isinstance(classifier, ConvStack | ResNet):
        return image.new_zeros(0, 1, 1), classifier(image)
    maps = image
    for index, block in enumerate(classifier.features):
        maps = block(maps)
        if index == _LAYER:
            early = maps[0]
    return early, classifier.score(maps)


@lru_cache
def _telling_channels(polar: PolarNetwork) -> tuple[int, ...]:
    """A few channels of the early layer that show much of an image, and not the same."""
    channels, height, width = polar.input_shape
    corner = torch.zeros(1, channels, height, width)  # an L, which looks different from every side
    corner[..., height // 4 : 3 * height // 4, width // 2] = 1
    corner[..., 3 * height // 4, width // 2 : 3 * width // 4] = 1
    transformer = polar.transformer
    sampled = transformer.sample(corner, torch.zeros(1, 2))
    maps = _read(polar, polar.normalize(sampled))[0].flatten(1)
    centred = maps - maps.mean(dim=1, keepdim=True)
    spread = centred.norm(dim=1)
    chosen: list[int] = []
    worth = spread
    while len(chosen) < min(_MAPS, len(maps)):
        chosen.append(int(worth.argmax()))
        likeness = F.cosine_similarity(centred[chosen[-1]][None], centred, dim=1)
        worth = worth * (1 - likeness.abs())
    return tuple(chosen)


def _pin_in_image(pose: Pose, pin_px: tuple[float, float], size: tuple[int, int]) -> tuple[float, float]:
    angle = math.radians(pose.turn_deg)
    cos, sin = pose.scale * math.cos(angle), pose.scale * math.sin(angle)
    x = cos * pin_px[0] - sin * pin_px[1] + pose.shift_px[0]
    y = sin * pin_px[0] + cos * pin_px[1] + pose.shift_px[1]
    return 0.5 + x / size[1], 0.5 + y / size[0]


def _pin_in_polar(pair: Pair, pin: tuple[float, float], origin: tuple[float, float]) -> tuple[float, float]:
    """Where a point of the image is in the polar image around `origin`; pixel i of n is at (i + ½) / n."""
    grid = pair.transformer.grid
    height, width = pair.size
    x = (pin[0] - (origin[0] + 1) / 2) * width
    y = (pin[1] - (origin[1] + 1) / 2) * height
    radius = torch.tensor(max(math.hypot(x, y), 1e-3), dtype=torch.float64)
    column = float(grid.column_at(radius, pair.size))
    row = math.atan2(y, x) / (2 * math.pi) * grid.angles
    return (column + 0.5) / grid.radii, ((row + 0.5) / grid.angles) % 1
