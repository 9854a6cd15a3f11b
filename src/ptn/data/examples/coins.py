"""Coins on brick, grass and gravel: at any angle, of any size within a factor of two, anywhere. They have a middle.

Eight coins with heads in profile are cut out of one photograph along their outlines, and brought into the same
light, or their tone would tell them apart. What an image to test on has in common with one to train on is the coin
itself: its pose is another, and the ground comes from another part of its photograph.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...geometry import PolarGrid, Similarity, polar_sample, similarity_warp
from .photographs import GROUNDS, SIZE, STRIPS, cut_patches, photograph

RADII_PX = (8.0, 16.0)
"""How far a coin reaches from its middle in an image, least and greatest."""

MEAN, CONTRAST = 0.6, 0.13
"""Mean and standard deviation of each coin's pixels."""

_ANGLES = 128
_HARMONICS = 10  # finer than that an outline is noise
_FINER = 3  # a coin is drawn on a canvas so much finer, and averaged: it is shrunk, and would alias


class Place(NamedTuple):
    """Where a coin is in the photograph: its middle, and a radius within which there is nothing else but ground."""

    x: int
    y: int
    reach: int


COINS = {
    "band": Place(154, 198, 24),
    "crest": Place(47, 260, 33),
    "curls": Place(102, 196, 27),
    "helmet": Place(274, 194, 27),
    "laurel": Place(206, 125, 25),
    "plume": Place(347, 187, 36),
    "scarf": Place(301, 263, 30),
    "visor": Place(271, 119, 29),
}
"""Named after what the heads wear, as far as it can be seen."""


def draw_coins(name: str, split: str, count: int, generator: torch.Generator) -> Tensor:
    """`count` images (count, 64, 64) of one coin, on each ground in turn, from the part of it that `split` has.

    Sizes are uniform by their logarithm, places uniform among those where the coin is whole.
    """
    ground = torch.empty(count, SIZE, SIZE, dtype=torch.float64)
    for index, material in enumerate(GROUNDS):
        mine = ground[index :: len(GROUNDS)]
        mine.copy_(cut_patches(photograph(material), len(mine), STRIPS[split], generator))
    coin, radius = cut_out(photograph("coins").double(), COINS[name])
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    reach = RADII_PX[0] * (RADII_PX[1] / RADII_PX[0]) ** draws[1]
    layers = similarity_warp(
        coin.expand(count, *coin.shape),
        Similarity(
            2 * math.pi * draws[0],
            _FINER * reach / radius,
            _FINER * ((SIZE / 2 - reach)[:, None] * (2 * draws[2:].T - 1)),
        ),
        size=(_FINER * SIZE, _FINER * SIZE),
        mode="bicubic",
    )
    light, cover = F.avg_pool2d(layers, _FINER).clamp(0, 1).unbind(dim=1)
    return light + (1 - cover) * ground


def cut_out(picture: Tensor, place: Place) -> tuple[Tensor, float]:
    """A coin on nothing (2, h, w), light and how far it covers each pixel, and how far it reaches in pixels."""
    outline = find_outline(picture, place)
    steps = torch.arange(-place.reach, place.reach + 1, dtype=picture.dtype)
    angle = torch.atan2(steps[:, None], steps) * (_ANGLES / (2 * math.pi)) % _ANGLES
    before, share = angle.long() % _ANGLES, angle % 1
    border = torch.lerp(outline[before], outline[(before + 1) % _ANGLES], share)
    cover = (border + 0.5 - torch.hypot(steps[:, None], steps)).clamp(0, 1)
    rows = slice(place.y - place.reach, place.y + place.reach + 1)
    columns = slice(place.x - place.reach, place.x + place.reach + 1)
    light = picture[rows, columns]
    mean = (light * cover).sum() / cover.sum()
    contrast = ((light - mean).square() * cover).sum().div(cover.sum()).sqrt()
    light = MEAN + CONTRAST * (light - mean) / contrast
    return torch.stack((light * cover, cover)), outline.max().item() + 0.5


def find_outline(picture: Tensor, place: Place) -> Tensor:
    """The radius in pixels at which a coin ends, (angles,) as a polar image counts them.

    At each angle that is the last point at least as bright as midway between coin and ground, smoothed, and half a
    pixel less, so that no ground comes along.
    """
    height, width = picture.shape
    grid = PolarGrid(_ANGLES, 4 * place.reach, r_max_px=place.reach, law="linear")
    origin = torch.tensor([[(2 * place.x + 1) / width - 1, (2 * place.y + 1) / height - 1]], dtype=picture.dtype)
    polar = polar_sample(picture[None, None], origin, grid, mode="bicubic")[0, 0]
    coin = polar[:, : 2 * place.reach].median()
    ground = polar[:, -8:].mean(dim=1, keepdim=True)
    bright = polar >= (coin + ground) / 2
    last = torch.where(bright, torch.arange(polar.shape[1]), 0).amax(dim=1)
    spectrum = torch.fft.rfft(last.to(picture.dtype) * place.reach / polar.shape[1])
    spectrum[_HARMONICS + 1 :] = 0
    return torch.fft.irfft(spectrum, _ANGLES) - 0.5
