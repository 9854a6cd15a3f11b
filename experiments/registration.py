"""Pairs of photographs with a known similarity between them, to test and time registration."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ptn.errors import optional_module
from ptn.geometry import Registration, Similarity, similarity_warp

PHOTOGRAPHS = (
    *("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "hubble_deep_field", "moon"),
    *("rocket", "stereo_motorcycle"),
)
"""Photographs that scikit-image includes."""
MAX_SCALE = 2.0
NOISE = 0.02


def make_pairs(count: int, size: int = 256, seed: int = 0) -> tuple[Tensor, Tensor, Similarity]:
    """Returns `moving` and `fixed`, (count, 1, size, size) in [0, 1], and the similarity from one to the other.

    Rotations are uniform, scales log-uniform from 1/2 to 2, shifts uniform in a disc with a radius of a quarter of
    the width. Both images are views of one photograph, two thirds of its shorter side wide at scale 1: the borders
    of one have content that the other does not have. Pixels outside the photograph are black. Gaussian noise has
    a standard deviation of 0.02.
    """
    generator = torch.Generator().manual_seed(seed)
    pictures = [photograph(name).mean(dim=1, keepdim=True) for name in PHOTOGRAPHS]
    numbers = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    rotation, scale = (2 * numbers[:, 0] - 1) * math.pi, MAX_SCALE ** (2 * numbers[:, 1] - 1)
    direction, distance = 2 * math.pi * numbers[:, 2], numbers[:, 3].sqrt() * size / 4
    shift = torch.stack((distance * direction.cos(), distance * direction.sin()), dim=1)
    views: list[list[Tensor]] = [[], []]
    for index in range(count):
        picture = pictures[index % len(pictures)]
        zoom = Similarity(scale=1.5 * size / min(picture.shape[2:]))
        x, y = shift[index].tolist()
        truth = Similarity(rotation[index].item(), scale[index].item(), (x, y))
        for images, pose in zip(views, (truth.inverse().compose(zoom), zoom), strict=True):
            view = _view(picture, pose, size)
            images.append((view + NOISE * torch.randn(view.shape, generator=generator)).clamp(0, 1))
    return torch.cat(views[0]), torch.cat(views[1]), Similarity(rotation, scale, shift)


def photograph(name: str) -> Tensor:
    """Returns a photograph that scikit-image includes, (1, 1, H, W) or (1, 3, H, W) in [0, 1]."""
    loaded: Any = getattr(optional_module("skimage.data", "ptn[examples]"), name)()
    pixels = torch.from_numpy(loaded[0] if isinstance(loaded, tuple) else loaded).float() / 255
    return pixels[None, None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)[None]


def _view(picture: Tensor, pose: Similarity, size: int) -> Tensor:
    """Returns the picture warped by `pose`, averaged over pixels where it is reduced."""
    fine = max(1, math.ceil(1 / float(pose.scale)))
    x, y = pose.shift_px
    enlarged = Similarity(pose.rotation, pose.scale * fine, (float(x) * fine, float(y) * fine))
    return F.avg_pool2d(similarity_warp(picture, enlarged, size=(fine * size, fine * size), mode="bicubic"), fine)


def errors(result: Registration, truth: Similarity) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the errors of the rotation in degrees, of the scale in %, and of the shift in pixels, each (N,)."""
    difference = torch.as_tensor(result.pose.rotation).cpu() - torch.as_tensor(truth.rotation)
    rotation = torch.rad2deg(torch.remainder(difference + math.pi, 2 * math.pi) - math.pi).abs()
    scale = 100 * (torch.as_tensor(result.pose.scale).cpu() / torch.as_tensor(truth.scale) - 1).abs()
    shift = (torch.as_tensor(result.pose.shift_px).cpu() - torch.as_tensor(truth.shift_px)).norm(dim=1)
    return rotation, scale, shift
