"""PolarGrid: the sampling points of a polar image."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, InputTypeError, check_choice

Law = Literal["log", "linear"]
MAX_PIXELS = 2**26
"""Largest number of pixels of images that are read and of polar images."""
_REAL = (float, int, np.floating, np.integer)


@dataclass(frozen=True)
class PolarGrid:
    """The sampling points of an `angles` × `radii` polar image around an origin.

    Convention (H = `angles` rows, W = `radii` columns, input image h × w):

    - row y lies at angle 2πy/H, endpoint excluded, measured from +x towards +y (y points down);
    - column x lies at radius r_min·(r_max/r_min)^(x/W) pixels (`law="log"`; the paper has r_min = 1),
      or at r_max·x/W pixels (`law="linear"`, which starts at the origin itself);
    - `r_max_px=None` is half the diagonal of the input image, ½√(h²+w²).

    A rotation about the origin by 2πk/H rolls the rows by k. With the log law, a dilation by s about the origin
    shifts the columns by W·ln s / ln(r_max/r_min).
    """

    angles: int
    radii: int
    _: KW_ONLY
    r_min_px: float = 1.0
    r_max_px: float | None = None
    law: Law = "log"

    def __post_init__(self) -> None:
        for name in ("angles", "radii"):
            if not isinstance(count := getattr(self, name), int):
                raise InputTypeError(f"{name} must be an integer; got {count!r}")
        for name in ("angles", "radii"):
            if (count := getattr(self, name)) < 1 or self.angles * self.radii > MAX_PIXELS:
                raise InputError(
                    f"{name} must be at least 1, and angles × radii at most {MAX_PIXELS:,}; got {count}"
                )
        check_choice("radial law", self.law, ("log", "linear"))
        for name in ("r_min_px", "r_max_px"):
            radius = getattr(self, name)
            if radius is not None and not isinstance(radius, int | float):
                raise InputTypeError(f"{name} must be a number of pixels; got {radius!r}")
            if radius is not None and not 0 < radius < 2**63:
                raise InputError(f"{name} must be a positive number of pixels; got {radius!r}")
        if self.law == "linear" and self.r_min_px != 1.0:
            raise InputError("r_min_px is an option of law='log'; the linear law starts at radius 0")
        if self.r_max_px is not None:
            self.outer_radius((1, 1))

    def outer_radius(self, size: tuple[int, int]) -> float:
        """Return r_max in pixels for an input image of `size` (h, w)."""
        r_max = 0.5 * math.hypot(*size) if self.r_max_px is None else self.r_max_px
        if self.law == "log" and r_max <= self.r_min_px:
            raise InputError(
                f"r_max ({r_max:g} px) must exceed r_min ({self.r_min_px:g} px): "
                "use a larger image or a smaller r_min_px"
            )
        return r_max

    def radius_at(self, columns: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the radius in pixels at (fractional) columns."""
        r_max = self.outer_radius(size)
        if self.law == "linear":
            return columns * (r_max / self.radii)
        return self.r_min_px * torch.exp(columns * (math.log(r_max / self.r_min_px) / self.radii))

    def column_at(self, radius_px: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the (fractional) column of a radius in pixels; the inverse of `radius_at`."""
        r_max = self.outer_radius(size)
        if self.law == "linear":
            return radius_px * (self.radii / r_max)
        return torch.log(radius_px / self.r_min_px) * (self.radii / math.log(r_max / self.r_min_px))

    def offsets_px(
        self,
        size: tuple[int, int],
        *,
        phase: Tensor | float = 0.0,
        dilation: Tensor | float = 1.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the points of the grid relative to its origin, in pixels.

        Args:
            size: (h, w) of the input image.
            phase: angle of the first row in radians; a number or (N,).
            dilation: factor on every radius; a number or (N,).

        Returns:
            x and y, each (angles, radii), or (N, angles, radii) if phase or dilation is (N,).
        """
        for name, value in (("phase", phase), ("dilation", dilation)):
            check_number(name, value)
            if not isinstance(value, Tensor) and not abs(value) < math.inf:
                raise InputError(f"{name} must be finite; got {value}")
        radius = self.radius_at(torch.arange(self.radii, dtype=dtype, device=device), size)
        radius = radius * (dilation[..., None] if isinstance(dilation, Tensor) else dilation)
        angle = torch.arange(self.angles, dtype=dtype, device=device) * (2 * math.pi / self.angles)
        phase = reduce_angle(phase, to_add=True)
        angle = angle + (phase[..., None] if isinstance(phase, Tensor) else phase)
        radius = radius[..., None, :]
        return torch.cos(angle)[..., None] * radius, torch.sin(angle)[..., None] * radius


def check_number(name: str, value: object) -> None:
    """Raise InputError unless `value` is a real tensor or a real number, integers of at most 64 bits."""
    real = not value.is_complex() if isinstance(value, Tensor) else isinstance(value, _REAL)
    if not real:
        raise InputTypeError(f"{name} must be a real number or a tensor (N,); got {value!r}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError(f"{name} must be a number of at most 64 bits")


def check_grid(grid: object) -> None:
    """Raise InputError unless `grid` is a `PolarGrid`."""
    if not isinstance(grid, PolarGrid):
        raise InputTypeError(f"grid must be a PolarGrid(angles, radii); got {grid!r}")


def reduce_angle(angle: Tensor | float, *, to_add: bool = False) -> Tensor | float:
    """Return `angle` modulo 2π, computed in float64: large angles lose precision in float32.

    Angles of less than a turn are returned as they are. On a GPU, tensors of lower precision than float64 are
    reduced only if something is added to them: their cos and sin are exact without, and a warp is one kernel.
    """
    if not isinstance(angle, Tensor):
        return math.remainder(angle, 2 * math.pi) if math.pi < abs(angle) < math.inf else angle
    if angle.dtype != torch.float64 and not angle.is_cpu and not to_add:
        return angle
    exact = angle.double()
    turns = torch.where(exact.abs() > 7, (exact.detach() / (2 * math.pi)).round(), 0.0)
    # at least float32: a remainder does not fit into the dtype of integers and of half precision
    return (exact - 2 * math.pi * turns).to(torch.promote_types(angle.dtype, torch.float32))


def relative_points(
    grid: PolarGrid,
    size: tuple[int, int],
    phase: Tensor | float,
    dilation: Tensor | float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return points relative to the origin, in units of [-1, 1]: (angles, radii, 2) or (N, angles, radii, 2)."""
    height, width = size
    x, y = grid.offsets_px(size, phase=phase, dilation=dilation, dtype=dtype, device=device)
    # x and y each contiguous: a CPU adds origins to them several times as fast as to pairs
    return torch.stack((x * (2 / width), y * (2 / height)), dim=-3).movedim(-3, -1)


@lru_cache(maxsize=16)
def cached_points(
    grid: PolarGrid,
    size: tuple[int, int],
    phase: float,
    dilation: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """`relative_points` computed once, on the CPU, and kept on `device`."""
    with torch.inference_mode(False):
        points = relative_points(grid, size, phase, dilation, dtype, torch.device("cpu"))
        return points if device.type == "cpu" else points.contiguous().to(device)


def disc_frame(origin: Tensor, grid: PolarGrid, size: tuple[int, int]) -> Tensor:
    """Return where the points of each polar image lie in the image: (N, 2) -> (N, 1, angles, radii).

    The value is sigmoid(½·min(h, w) - |p|) with p the point in pixels from the middle of the image: about 1 inside
    the largest disc in the image and 0 outside. It rotates with the image about its middle.

    Args:
        origin: (x, y) in [-1, 1], as in `polar_sample`.
        size: (h, w) of the image.
    """
    height, width = size
    x, y = grid.offsets_px(size, dtype=origin.dtype, device=origin.device)
    x = x + origin[:, 0, None, None] * (width / 2)
    y = y + origin[:, 1, None, None] * (height / 2)
    # the gradient of the root at 0 would be NaN
    distance = (x.square() + y.square()).clamp(min=1e-12).sqrt()
    return torch.sigmoid(min(size) / 2 - distance)[:, None]


def origin_px(origin: Tensor, size: tuple[int, int]) -> Tensor:
    """Convert origins in [-1, 1] to (x, y) in pixels, with pixel centres at integers: (N, 2) -> (N, 2)."""
    height, width = size
    x, y = origin.unbind(dim=-1)
    return torch.stack(((x + 1) * (width / 2) - 0.5, (y + 1) * (height / 2) - 0.5), dim=-1)
