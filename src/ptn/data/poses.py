"""Where the generators put a digit: its turn, its size and its place, drawn by one CPU generator."""

from dataclasses import dataclass
from math import radians
from typing import Literal

import torch
from torch import Tensor

from .threads import in_threads

# Where a digit may be: in the middle; where its ink, turned and scaled, is all on the canvas ("ink"); or where
# its tile is too, scaled but not turned ("tile").
Placement = Literal["middle", "tile", "ink"]

_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Poses:
    """Similarities: `rotation` (N,) in radians, `scale` (N,), `shift_px` (N, 2) as (x, y), or all (N, F) of them.

    They mean what the arguments of `ptn.geometry.similarity_warp` mean. All are float32, drawn on the CPU.
    """

    rotation: Tensor
    scale: Tensor
    shift_px: Tensor

    def __getitem__(self, rows: slice) -> "Poses":
        return Poses(self.rotation[rows], self.scale[rows], self.shift_px[rows])


def draw_poses(
    digits: Tensor,
    rows: slice,
    generator: torch.Generator,
    *,
    total: int,
    size: int,
    degrees: tuple[float, float],
    scale: tuple[float, float],
    placement: Placement,
) -> Poses:
    """A pose on a canvas of `size` × `size` pixels for each digit of a split, `rows` of a set of `total` digits.

    Angle and scale are uniform in their ranges, and the place is uniform among those that `placement` allows.
    Numbers are drawn for the whole set, so that a split does not depend on which others are made.

    Args:
        digits: the digits of the split, uint8 (N, h, w).
    """
    rotation = uniform(generator, (total,), radians(degrees[0]), radians(degrees[1]))[rows]
    factor = uniform(generator, (total,), *scale)[rows]
    place = uniform(generator, (total, 2), 0.0, 1.0)[rows]
    if placement == "middle":
        return Poses(rotation, factor, torch.zeros_like(place))
    low, high = ink_extent(digits, rotation, factor)
    if placement == "tile":
        reach = factor[:, None] * torch.tensor((digits.shape[2], digits.shape[1])) / 2
        low, high = torch.minimum(low, -reach), torch.maximum(high, reach)
    # Where a digit is larger than the canvas the bounds cross, and it hangs over at either side.
    first, last = -size / 2 - low, size / 2 - high
    return Poses(rotation, factor, first + place * (last - first))


def uniform(generator: torch.Generator, shape: tuple[int, ...], low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)


def ink_extent(digits: Tensor, rotation: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The box of each turned and scaled digit's ink, (N, 2) least and greatest (x, y).

    In pixels from the middle of the digit's tile. The ink of a pixel is the square around its centre in which
    bilinear interpolation lets it be seen, two pixels wide before scaling.
    """
    height, width = digits.shape[1:]
    y, x = torch.meshgrid(
        torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij"
    )
    x, y = x.flatten(), y.flatten()

    def measure(rows: slice) -> tuple[Tensor, Tensor]:
        blank = digits[rows].flatten(1) == 0
        cos = (scale[rows] * torch.cos(rotation[rows]))[:, None]
        sin = (scale[rows] * torch.sin(rotation[rows]))[:, None]
        turned = torch.stack((cos * x - sin * y, sin * x + cos * y), dim=1)
        margin = cos.abs() + sin.abs()
        low = turned.masked_fill(blank[:, None], torch.inf).amin(dim=2) - margin
        return low, turned.masked_fill(blank[:, None], -torch.inf).amax(dim=2) + margin

    lows, highs = zip(*in_threads(measure, len(digits), _ROWS_AT_ONCE), strict=True)
    return torch.cat(lows), torch.cat(highs)
