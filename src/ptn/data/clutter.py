"""Clutter: fragments of other digits, turned, scaled and strewn over an image."""

from dataclasses import dataclass
from math import ceil, pi, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from ..geometry import Similarity, similarity_warp
from .poses import Poses, uniform


@dataclass(frozen=True)
class Clutter:
    """Fragments, F an image: which digit each is cut from, around which pixel of it, and where it goes.

    `digit`, `row` and `column` are int64 (N, F), and `poses` are (N, F).
    """

    digit: Tensor
    row: Tensor
    column: Tensor
    poses: Poses


def draw_clutter(
    digits: Tensor,
    rows: slice,
    generator: torch.Generator,
    *,
    total: int,
    fragments: int,
    size: int,
    scale: tuple[float, float],
) -> Clutter:
    """`fragments` for each image of a split, cut from the other digits of that split.

    A fragment is centred on a pixel with ink, turned by any angle, scaled by a factor in `scale`, and put
    anywhere in the image. `rows` and `total` are those of `draw_poses`.

    Args:
        digits: the digits of the split, uint8 (N, h, w).
    """
    shape = (total, fragments)
    chosen_digit = torch.rand(shape, generator=generator, dtype=torch.float64)[rows]
    chosen_pixel = torch.rand(shape, generator=generator, dtype=torch.float64)[rows]
    rotation = uniform(generator, shape, 0.0, 2 * pi)[rows]
    factor = uniform(generator, shape, *scale)[rows]
    shift = uniform(generator, (*shape, 2), -size / 2, size / 2)[rows]

    ink = digits.flatten(1) > 0
    inked = ink.sum(dim=1)
    start = inked.cumsum(0) - inked
    pixels = ink.flatten().nonzero()[:, 0] % ink.shape[1]

    count = len(digits)
    other = (chosen_digit * (count - 1)).long()
    other += other >= torch.arange(count)[:, None]
    pixel = pixels[start[other] + (chosen_pixel * inked[other]).long()]
    width = digits.shape[2]
    return Clutter(other, pixel // width, pixel % width, Poses(rotation, factor, shift))


def windows(digits: Tensor, side: int) -> Tensor:
    """The square of `side` pixels around every pixel of every digit: (N, h, w) -> a view (N, h, w, side, side).

    Where a square hangs over its tile it is black.
    """
    before = side // 2
    padded = F.pad(digits, (before, side - 1 - before) * 2)
    return padded.unfold(1, side, 1).unfold(2, side, 1)


def strew(canvas: Tensor, fragments: Tensor, poses: Poses, largest: float) -> Tensor:
    """The images with fragments laid over them, the brighter of both at each pixel: (n, 1, S, S), floats.

    Each fragment is warped on a patch just large enough for it, not on all of the image, which is many times
    faster. Patches may hang over the image: they are put on a wider one, which is then cut.

    Args:
        fragments: (n, F, side, side), floats in the range of the canvas.
        poses: (n, F), on any device; the middle of each fragment comes to rest in the image.
        largest: the largest scale there can be.
    """
    count, size, side = len(canvas), canvas.shape[-1], fragments.shape[-1]
    reach = ceil((side + 1) / sqrt(2) * largest) + 1
    margin = reach + 1
    corner = (poses.shift_px + (margin + size / 2 - reach)).round()
    rest = poses.shift_px - (corner - (margin + size / 2 - reach))
    patches = similarity_warp(
        fragments.flatten(0, 1)[:, None],
        Similarity(poses.rotation.flatten(), poses.scale.flatten(), rest.flatten(0, 1)),
        size=(2 * reach, 2 * reach),
    )
    wide = F.pad(canvas, (margin,) * 4)
    width = wide.shape[-1]
    first = (corner[..., 1] * width + corner[..., 0]).long().to(canvas.device)
    line = torch.arange(2 * reach, device=canvas.device)
    within = (line[:, None] * width + line).flatten()
    places = (first[..., None] + within).flatten(1)
    wide.view(count, -1).scatter_reduce_(1, places, patches.view(count, -1), "amax")
    return wide[..., margin : margin + size, margin : margin + size]
