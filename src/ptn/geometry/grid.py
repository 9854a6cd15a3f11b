"""PolarGrid: which points of an image a polar image consists of."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, check_choice

Law = Literal["log", "linear"]


@dataclass(frozen=True)
class PolarGrid:
    """The sampling points of an `angles` × `radii` polar image around an origin.

    Convention (H = `angles` rows, W = `radii` columns, input image h × w):

    - row y lies at angle 2πy/H, endpoint excluded, measured from +x towards +y (y points down);
    - column x lies at radius r_min·(r_max/r_min)^(x/W) pixels (`law="log"`, the paper's with r_min = 1),
      or at r_max·x/W pixels (`law="linear"`, which starts at the origin itself);
    - `r_max_px=None` is half the diagonal of the input image, ½√(h²+w²).

    A rotation about the origin by 2πk/H rolls the rows by k; with the log law a dilation by s about the
    origin shifts the columns by W·ln s / ln(r_max/r_min).
    """

    angles: int
    radii: int
    _: KW_ONLY
    r_min_px: float = 1.0
    r_max_px: float | None = None
    law: Law = "log"

    def __post_init__(self) -> None:
        for name in ("angles", "radii"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InputError(f"{name} must be a whole number of at least 1; got {count!r}")
        check_choice("radial law", self.law, ("log", "linear"))
        for name in ("r_min_px", "r_max_px"):
            radius = getattr(self, name)
            if radius is not None and not (math.isfinite(radius) and radius > 0):
                raise InputError(f"{name} must be a positive number of pixels; got {radius!r}")
        if self.law == "linear" and self.r_min_px != 1.0:
            raise InputError("r_min_px belongs to law='log'; the linear law starts at radius 0")
        if self.r_max_px is not None:
            self._check_span(self.r_max_px)

    def outer_radius(self, size: tuple[int, int]) -> float:
        """r_max in pixels for an input image of `size` (h, w)."""
        if self.r_max_px is not None:
            return self.r_max_px
        radius = 0.5 * math.hypot(*size)
        self._check_span(radius)
        return radius

    def radius_at(self, columns: Tensor, size: tuple[int, int]) -> Tensor:
        """Radius in pixels at (fractional) columns."""
        r_max = self.outer_radius(size)
        if self.law == "linear":
            return columns * (r_max / self.radii)
        return self.r_min_px * torch.exp(columns * (math.log(r_max / self.r_min_px) / self.radii))

    def column_at(self, radius_px: Tensor, size: tuple[int, int]) -> Tensor:
        """The inverse of `radius_at`: the fractional column of a radius in pixels."""
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
        """The grid's points relative to its origin, in pixels.

        Args:
            size: (h, w) of the input image.
            phase: angle of the first row in radians; a number, or one per sample (N,).
            dilation: factor on every radius; a number, or one per sample (N,).

        Returns:
            x and y, each (angles, radii), or (N, angles, radii) for a phase or a dilation per sample.
        """
        columns = torch.arange(self.radii, dtype=dtype, device=device)
        radius = self.radius_at(columns, size)
        radius = radius * (dilation[..., None] if isinstance(dilation, Tensor) else dilation)
        angle = torch.arange(self.angles, dtype=dtype, device=device) * (2 * math.pi / self.angles)
        angle = angle + phase[..., None] if isinstance(phase, Tensor) else angle + phase
        radius = radius[..., None, :]
        return torch.cos(angle)[..., None] * radius, torch.sin(angle)[..., None] * radius

    def _check_span(self, r_max: float) -> None:
        if self.law == "log" and r_max <= self.r_min_px:
            raise InputError(
                f"r_max ({r_max:g} px) must exceed r_min ({self.r_min_px:g} px): "
                "use a larger image or a smaller r_min_px"
            )
