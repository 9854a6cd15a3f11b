"""Example folders of images to train on, generated from photographs in scikit-image and fonts in matplotlib.

Training, validation and test images use disjoint parts of the photographs.
"""

import importlib.util
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
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
    """Images per class of each split; `draw(class, split, count, generator)` returns images (h, w) or (3, h, w)."""

    classes: tuple[str, ...]
    counts: dict[str, int]
    draw: Callable[[str, str, int, torch.Generator], Iterable[Tensor]]


def write_example(name: str, root: Path | str, *, seed: int = 0) -> Example:
    """Write root/train/<class>/000.png and so on. `root` must be new or empty."""
    check_choice("example", name, EXAMPLES)
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} exists already: name a folder that is new or empty")
    example = EXAMPLES[name]
    generator = torch.Generator().manual_seed(seed)
    for split, count in example.counts.items():
        for kind in example.classes:
            for index, image in enumerate(example.draw(kind, split, count, generator)):
                write_png(image if image.dim() == 3 else image[None], root / split / kind / f"{index:03}.png")
    return example


def load_photograph(name: str) -> Tensor:
    """Load a photograph (H, W) in [0, 1] from scikit-image."""
    image, _ = read_image(_package_folder("skimage", "scikit-image") / "data" / f"{name}.png")
    return image[0]


def _package_folder(module: str, package: str) -> Path:
    """Return the folder of a package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise InputError(f"the examples use files of the package {package}: pip install 'ptn[examples]'")
    return Path(spec.origin).parent


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
    background = _draw_backgrounds(split, count, generator)
    coin, radius = cut_out(load_photograph("coins").double(), COINS[name])
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    light, alpha = _paste(coin.expand(count, *coin.shape), radius, 8.0 * 2.0 ** draws[1], draws, SIZE).unbind(dim=1)
    return light + (1 - alpha) * background


def _draw_backgrounds(split: str, count: int, generator: torch.Generator) -> Tensor:
    """Return patches (count, 64, 64) of the textures in alternation."""
    background = torch.empty(count, SIZE, SIZE, dtype=torch.float64)
    for index, texture in enumerate(TEXTURES):
        target = background[index :: len(TEXTURES)]
        target.copy_(draw_textures(texture, split, len(target), generator))
    return background


def _paste(layers: Tensor, radius: float, reach: Tensor, draws: Tensor, size: int) -> Tensor:
    """Warp objects of a radius, (N, C, h, w), to the radius `reach` (N,), at any angle, anywhere inside `size`².

    `draws` (4, N) are random numbers: row 0 for the angle, rows 2 and 3 for x and y; row 1 is not used here.
    """
    pose = Similarity(
        rotation=2 * math.pi * draws[0],
        scale=_SUPERSAMPLING * reach / radius,
        shift_px=_SUPERSAMPLING * ((size / 2 - reach)[:, None] * (2 * draws[2:].T - 1)),
    )
    canvas = (_SUPERSAMPLING * size, _SUPERSAMPLING * size)
    return F.avg_pool2d(similarity_warp(layers, pose, size=canvas, mode="bicubic"), _SUPERSAMPLING).clamp(0, 1)


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


# The share of a photograph's columns that belongs to a split.
SHARES = {"train": (0.0, 0.57), "valid": (0.57, 0.785), "test": (0.785, 1.0)}
# Fonts of matplotlib; each font is in one split only.
FONTS = {
    "train": (
        *("DejaVuSans", "DejaVuSans-BoldOblique", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
        *("DejaVuSerif-Bold", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBolIta", "cmr10", "cmss10"),
    ),
    "valid": ("DejaVuSans-Bold", "DejaVuSerif", "STIXGeneralItalic", "cmb10"),
    "test": ("DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif-BoldItalic", "STIXGeneralBol", "cmtt10"),
}


def draw_digits(name: str, split: str, count: int, generator: torch.Generator) -> Iterable[Tensor]:
    """Draw white digits in fonts of the split on textures in alternation, at any angle, 18 to 36 pixels tall."""
    glyphs = [draw_glyph(name, font) for font in FONTS[split]]
    fonts = torch.randint(len(glyphs), (count,), generator=generator)
    for background, font in zip(_draw_backgrounds(split, count, generator), fonts.tolist(), strict=True):
        glyph, radius = glyphs[font]
        draws = torch.rand(4, 1, generator=generator, dtype=torch.float64)
        reach = 18 * 2.0 ** draws[1] * radius / glyph.shape[0]
        alpha = _paste(glyph[None, None], radius, reach, draws, SIZE)[0, 0]
        yield alpha + (1 - alpha) * background


SYMBOLS = {
    "airplane": "✈",
    "anchor": "⚓",
    "cloud": "☁",
    "club": "♣",
    "heart": "♥",
    "knight": "♞",
    "note": "♫",
    "scissors": "✂",
    "telephone": "☎",
    "umbrella": "☂",
}
PHOTOGRAPHS = ("astronaut", "coffee", "motorcycle_left", "ihc")
_GLYPH = 192  # font size in pixels


def draw_symbols(name: str, split: str, count: int, generator: torch.Generator) -> Iterable[Tensor]:
    """Draw a symbol in any color, 34 to 64 pixels across, at any angle on patches of photographs.

    Images are (3, s, s) with s from 100 to 160.
    """
    glyph, radius = draw_glyph(SYMBOLS[name])
    patches = [_color_photograph(photograph, split) for photograph in PHOTOGRAPHS]
    for index in range(count):
        draws = torch.rand(11, generator=generator, dtype=torch.float64)
        size = 100 + int(61 * draws[4])
        background = _cut_patch(patches[index % len(patches)], size, draws[5:8])
        color = 0.1 + 0.8 * draws[8:11]
        if (color.mean() - background.mean()).abs() < 0.15:  # otherwise some would be invisible
            color = 1 - color
        reach = (17 + 15 * draws[1])[None]
        alpha = _paste(glyph[None, None], radius, reach, draws[:4, None], size)[0]
        yield alpha * color[:, None, None] + (1 - alpha) * background


def draw_glyph(character: str, font_name: str = "DejaVuSans") -> tuple[Tensor, float]:
    """Draw a character in a font of matplotlib: coverage (h, w) in [0, 1], and its largest radius in pixels."""
    from PIL import Image, ImageDraw, ImageFont

    folder = _package_folder("matplotlib", "matplotlib") / "mpl-data" / "fonts" / "ttf"
    font = ImageFont.truetype(str(folder / f"{font_name}.ttf"), _GLYPH)
    left, top, right, bottom = font.getbbox(character)
    picture = Image.new("L", (math.ceil(right - left) + 4, math.ceil(bottom - top) + 4))
    ImageDraw.Draw(picture).text((2 - left, 2 - top), character, fill=255, font=font)
    coverage = torch.from_numpy(np.array(picture)).double() / 255
    return coverage, math.hypot(picture.height, picture.width) / 2


def _color_photograph(name: str, split: str) -> Tensor:
    """Load the columns of a photograph that belong to a split, (3, H, W) in [0, 1]."""
    image, _ = read_image(_package_folder("skimage", "scikit-image") / "data" / f"{name}.png")
    first, last = (round(share * image.shape[2]) for share in SHARES[split])
    return image[:3, :, first:last].double()


def _cut_patch(photograph: Tensor, size: int, draws: Tensor) -> Tensor:
    """Cut out a square of 70 to 110 pixels, as far as it fits, and resize it to (3, size, size)."""
    _, height, width = photograph.shape
    side = min(70 + int(41 * draws[0]), height, width)
    top, left = int((height - side + 1) * draws[1]), int((width - side + 1) * draws[2])
    patch = photograph[None, :, top : top + side, left : left + side]
    return F.interpolate(patch, size=(size, size), mode="bicubic", align_corners=False)[0].clamp(0, 1)


EXAMPLES = {
    "coins": Example(tuple(COINS), {"train": 100, "valid": 40, "test": 100}, draw_coins),
    # without the 9, which is a 6 rotated by 180°
    "digits": Example(tuple("012345678"), {"train": 112, "valid": 40, "test": 100}, draw_digits),
    "symbols": Example(tuple(SYMBOLS), {"train": 80, "valid": 40, "test": 100}, draw_symbols),
    "textures": Example(TEXTURES, {"train": 200, "valid": 40, "test": 100}, draw_textures),
}
