"""Example folders of images to train on, generated from photographs in the package scikit-image.

Training, validation and test images use disjoint parts of the photographs of textures.
"""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, check_choice
from ..geometry import PolarGrid, Similarity, polar_sample, similarity_warp
from .images import read_image, write_png

SIZE = 64
TEXTURES = ("brick", "grass", "gravel")
# Columns of a photograph of a texture that belong to a split.
STRIPS = {"train": (0, 292), "valid": (292, 402), "test": (402, 512)}


@dataclass(frozen=True)
class Example:
    """Images per class of each split; `draw(class, split, count, generator)` returns floats (count, 64, 64)."""

    classes: tuple[str, ...]
    counts: dict[str, int]
    draw: Callable[[str, str, int, torch.Generator], Tensor]


def write_example(name: str, root: Path | str, *, seed: int = 0) -> Example:
    """Write root/train/<class>/000.png and so on, gray and 64×64. `root` must be new or empty."""
    check_choice("example", name, EXAMPLES)
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} exists already: name a folder that is new or empty")
    example = EXAMPLES[name]
    generator = torch.Generator().manual_seed(seed)
    for split, count in example.counts.items():
        for kind in example.classes:
            for index, image in enumerate(example.draw(kind, split, count, generator)):
                write_png(image[None], root / split / kind / f"{index:03}.png")
    return example


def load_photograph(name: str) -> Tensor:
    """Load a photograph (H, W) in [0, 1] from scikit-image, without importing that package."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise InputError("the photographs are in the package scikit-image: pip install 'ptn[examples]'")
    image, _ = read_image(Path(spec.origin).parent / "data" / f"{name}.png")
    return image[0]


def draw_textures(name: str, split: str, count: int, generator: torch.Generator) -> Tensor:
    """Cut patches (count, 64, 64) out of a photograph, at any angle and enlarged by 1 to 2."""
    photograph = load_photograph(name)
    strip = STRIPS[split]
    height, width = photograph.shape
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    rotation = 2 * math.pi * draws[0]
    scale = 2.0 ** draws[1]
    # half the diagonal of a patch, and the support of the cubic kernel
    reach = math.ceil(SIZE / math.sqrt(2)) + 2
    x = strip[0] + reach + (strip[1] - strip[0] - 2 * reach) * draws[2] - (width - 1) / 2
    y = reach + (height - 2 * reach) * draws[3] - (height - 1) / 2
    # (x, y) is mapped to the middle of the patch
    cos, sin = scale * rotation.cos(), scale * rotation.sin()
    shift = torch.stack((sin * y - cos * x, -sin * x - cos * y), dim=1)
    photographs = photograph.double().expand(count, 1, height, width)
    pose = Similarity(rotation, scale, shift)
    return similarity_warp(photographs, pose, size=(SIZE, SIZE), mode="bicubic")[:, 0]


# Mean and standard deviation of each coin's pixels: otherwise the brightness alone would distinguish coins.
COIN_MEAN, COIN_STD = 0.6, 0.13

_ANGLES = 128
_HARMONICS = 10  # of an outline; higher ones are noise
_SUPERSAMPLING = 3  # against aliasing


class Place(NamedTuple):
    """A coin in the photograph: its center, and a radius within which there is no other coin."""

    x: int
    y: int
    reach: int


# Named after the headdress or hair of the portrait.
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


def draw_coins(name: str, split: str, count: int, generator: torch.Generator) -> Tensor:
    """Draw a coin (count, 64, 64) on textures in alternation, at any angle, with a radius of 8 to 16, anywhere."""
    background = torch.empty(count, SIZE, SIZE, dtype=torch.float64)
    for index, texture in enumerate(TEXTURES):
        target = background[index :: len(TEXTURES)]
        target.copy_(draw_textures(texture, split, len(target), generator))
    coin, radius = cut_out(load_photograph("coins").double(), COINS[name])
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    reach = 8.0 * 2.0 ** draws[1]
    pose = Similarity(
        rotation=2 * math.pi * draws[0],
        scale=_SUPERSAMPLING * reach / radius,
        shift_px=_SUPERSAMPLING * ((SIZE / 2 - reach)[:, None] * (2 * draws[2:].T - 1)),
    )
    size = (_SUPERSAMPLING * SIZE, _SUPERSAMPLING * SIZE)
    layers = similarity_warp(coin.expand(count, *coin.shape), pose, size=size, mode="bicubic")
    light, alpha = F.avg_pool2d(layers, _SUPERSAMPLING).clamp(0, 1).unbind(dim=1)
    return light + (1 - alpha) * background


def cut_out(picture: Tensor, place: Place) -> tuple[Tensor, float]:
    """Cut out a coin: premultiplied light and alpha (2, h, w), and its largest radius in pixels."""
    outline = find_outline(picture, place)
    steps = torch.arange(-place.reach, place.reach + 1, dtype=picture.dtype)
    angle = torch.atan2(steps[:, None], steps) * (_ANGLES / (2 * math.pi)) % _ANGLES
    before, share = angle.long() % _ANGLES, angle % 1
    border = torch.lerp(outline[before], outline[(before + 1) % _ANGLES], share)
    alpha = (border + 0.5 - torch.hypot(steps[:, None], steps)).clamp(0, 1)
    rows = slice(place.y - place.reach, place.y + place.reach + 1)
    columns = slice(place.x - place.reach, place.x + place.reach + 1)
    light = picture[rows, columns]
    mean = (light * alpha).sum() / alpha.sum()
    std = ((light - mean).square() * alpha).sum().div(alpha.sum()).sqrt()
    light = COIN_MEAN + COIN_STD * (light - mean) / std
    return torch.stack((light * alpha, alpha)), outline.max().item() + 0.5


def find_outline(picture: Tensor, place: Place) -> Tensor:
    """Return the radius of a coin in pixels at each angle of a polar image, (angles,).

    The last point at least as bright as halfway between coin and background, smoothed, minus half a pixel.
    """
    height, width = picture.shape
    grid = PolarGrid(_ANGLES, 4 * place.reach, r_max_px=place.reach, law="linear")
    origin = torch.tensor([[(2 * place.x + 1) / width - 1, (2 * place.y + 1) / height - 1]], dtype=picture.dtype)
    polar = polar_sample(picture[None, None], origin, grid, mode="bicubic")[0, 0]
    coin = polar[:, : 2 * place.reach].median()
    background = polar[:, -8:].mean(dim=1, keepdim=True)
    bright = polar >= (coin + background) / 2
    last = torch.where(bright, torch.arange(polar.shape[1]), 0).amax(dim=1)
    spectrum = torch.fft.rfft(last.to(picture.dtype) * place.reach / polar.shape[1])
    spectrum[_HARMONICS + 1 :] = 0
    return torch.fft.irfft(spectrum, _ANGLES) - 0.5


EXAMPLES = {
    "coins": Example(tuple(COINS), {"train": 100, "valid": 40, "test": 100}, draw_coins),
    "textures": Example(TEXTURES, {"train": 200, "valid": 40, "test": 100}, draw_textures),
}
