"""PolarGrid: the sampling points of a polar image."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, InputTypeError, check_choice

Law = Literal["log", "linear"]
MAX_PIXELS = 2**26
"""Largest number of pixels of images that are read and of polar images."""
_REAL = (float, int, np.floating, np.integer)


class GridPose(NamedTuple):
    """Parameters of a grid that may differ from image to image; None is the value of the grid."""

    phase: Tensor | float = 0.0
    dilation: Tensor | float = 1.0
    aspect: Tensor | float | None = None
    tilt: Tensor | float | None = None
    outer_px: Tensor | tuple[float, float] | None = None


@dataclass(frozen=True)
class PolarGrid:
    """The sampling points of an `angles` × `radii` polar image around an origin.

    Convention (H = `angles` rows, W = `radii` columns, input image h × w):

    - row y lies at angle start + sweep·y/H, endpoint excluded, measured from +x towards +y (y points down);
    - column x lies at radius r_min·(r_max/r_min)^(x/W) pixels (`law="log"`; the paper has r_min = 1),
      or at r_min + (r_max - r_min)·x/W pixels (`law="linear"`);
    - `r_min_px=None` is 1 with the log law and 0, the origin itself, with the linear one;
    - `r_max_px=None` is half the diagonal of the input image, ½√(h²+w²).

    A rotation about the origin by 2πk/H rolls the rows by k. With the log law, a dilation by s about the origin
    shifts the columns by W·ln s / ln(r_max/r_min). Both hold for full circles, the default.

    Args:
        angles: number of rows.
        radii: number of columns.
        r_min_px: innermost radius in pixels.
        r_max_px: outermost radius in pixels; see above for the defaults.
        law: "log" or "linear".
        start: angle of the first row in radians.
        sweep: angle that the rows cover in radians, at most 2π, a full circle. Less is a sector: its rows do not
            wrap.
        aspect: semi-axis of an ellipse across the direction `tilt`, relative to that along it, the radius. The
            points of the circles are stretched by `aspect` in that direction.
        tilt: direction of the axis with semi-axis r, in radians.
        outer_px: centre (x, y) of the circle of radius r_max, in pixels from the origin. The origin is the centre
            of the circle of radius r_min; centres in between are interpolated linearly in the radius. With the
            linear law this is the "rubber sheet" of iris recognition.
    """

    angles: int
    radii: int
    _: KW_ONLY
    r_min_px: float | None = None
    r_max_px: float | None = None
    law: Law = "log"
    start: float = 0.0
    sweep: float = 2 * math.pi
    aspect: float = 1.0
    tilt: float = 0.0
    outer_px: tuple[float, float] = (0.0, 0.0)

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
            from_zero = name == "r_min_px" and self.law == "linear"
            if radius is not None and not (0 < radius < 2**63 or (from_zero and radius == 0)):
                raise InputError(f"{name} must be a positive number of pixels; got {radius!r}")
        for name in ("start", "sweep", "aspect", "tilt"):
            check_number(name, getattr(self, name), tensors=False)
        if not 0 < self.sweep <= 2 * math.pi:
            raise InputError(f"sweep must be an angle in radians, above 0 and at most 2π; got {self.sweep!r}")
        if not 0 < self.aspect < math.inf:
            raise InputError(f"aspect must be a positive number; got {self.aspect!r}")
        check_pair("outer_px", self.outer_px)
        if self.r_max_px is not None:
            self.outer_radius((1, 1))

    @property
    def wraps(self) -> bool:
        """Whether the rows are a full circle, so that the last one is a neighbour of the first."""
        return self.sweep == 2 * math.pi

    @property
    def inner_radius(self) -> float:
        """r_min in pixels."""
        return self.r_min_px if self.r_min_px is not None else 1.0 if self.law == "log" else 0.0

    def outer_radius(self, size: tuple[int, int]) -> float:
        """Return r_max in pixels for an input image of `size` (h, w)."""
        r_max, r_min = 0.5 * math.hypot(*size) if self.r_max_px is None else self.r_max_px, self.inner_radius
        if r_max <= r_min:
            raise InputError(
                f"r_max ({r_max:g} px) must exceed r_min ({r_min:g} px): use a larger image or a smaller r_min_px"
            )
        if math.hypot(*self.outer_px) >= r_max - r_min:
            raise InputError(
                f"the circle of radius r_min ({r_min:g} px) must lie inside that of r_max ({r_max:g} px) "
                f"around outer_px {self.outer_px}"
            )
        return r_max

    def radius_at(self, columns: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the radius in pixels at (fractional) columns."""
        r_max, r_min = self.outer_radius(size), self.inner_radius
        if self.law == "linear":
            return columns * ((r_max - r_min) / self.radii) + r_min
        return r_min * torch.exp(columns * (math.log(r_max / r_min) / self.radii))

    def column_at(self, radius_px: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the (fractional) column of a radius in pixels; the inverse of `radius_at`."""
        r_max, r_min = self.outer_radius(size), self.inner_radius
        if self.law == "linear":
            return (radius_px - r_min) * (self.radii / (r_max - r_min))
        return torch.log(radius_px / r_min) * (self.radii / math.log(r_max / r_min))

    def is_circular(self, pose: GridPose) -> bool:
        """Return whether all columns are circles around the origin."""
        _, _, aspect, tilt, outer_px = pose
        return aspect is tilt is outer_px is None and self.aspect == 1 and self.outer_px == (0, 0)

    def offsets_px(
        self,
        size: tuple[int, int],
        *,
        phase: Tensor | float = 0.0,
        dilation: Tensor | float = 1.0,
        aspect: Tensor | float | None = None,
        tilt: Tensor | float | None = None,
        outer_px: Tensor | tuple[float, float] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the points of the grid relative to its origin, in pixels.

        Args:
            size: (h, w) of the input image.
            phase: angle that is added to `start`, in radians; a number or (N,).
            dilation: factor on every offset; a number or (N,).
            aspect: replaces that of the grid; a number or (N,).
            tilt: replaces that of the grid; a number or (N,).
            outer_px: replaces that of the grid; two numbers or (N, 2).

        Returns:
            x and y, each (angles, radii), or (N, angles, radii) if an argument is a tensor with N values.
        """
        pose = GridPose(phase, dilation, aspect, tilt, outer_px)
        for name, value in zip(("phase", "dilation"), pose, strict=False):
            check_number(name, value)
            if not isinstance(value, Tensor) and not abs(value) < math.inf:  # type: ignore[arg-type]
                raise InputError(f"{name} must be finite; got {value}")
        radius = self.radius_at(torch.arange(self.radii, dtype=dtype, device=device), size)
        angle = torch.arange(self.angles, dtype=dtype, device=device) * (self.sweep / self.angles)
        if not self.is_circular(pose):
            frame = self.frame(size, pose, dtype, angle.device)
            direction = frame @ torch.stack((angle.cos(), angle.sin(), torch.ones_like(angle)))
            offsets = direction[..., None] * radius - self.inner_radius * frame[..., 2, None, None]
            x, y = offsets.unbind(dim=-3)
            return x, y
        radius = radius * (dilation[..., None] if isinstance(dilation, Tensor) else dilation)
        phase = reduce_angle(phase if self.start == 0 else phase + self.start, to_add=True)
        angle = angle + (phase[..., None] if isinstance(phase, Tensor) else phase)
        radius = radius[..., None, :]
        return torch.cos(angle)[..., None] * radius, torch.sin(angle)[..., None] * radius

    def frame(self, size: tuple[int, int], pose: GridPose, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the matrix M of a grid of ellipses or of circles with different centres: (2, 3) or (N, 2, 3).

        The point of row y and column x is radius(x)·M·(cos t, sin t, 1) - r_min·M·(0, 0, 1) from the origin, with
        t = sweep·y/H. M is dilation·E·[R(start + phase) | outer_px / (r_max - r_min)], R a rotation and E the
        stretch by `aspect` across `tilt`.
        """
        aspect, tilt, outer = (
            own if value is None else value
            for own, value in zip((self.aspect, self.tilt, self.outer_px), pose[2:], strict=True)
        )
        numbers = (reduce_angle(pose.phase + self.start, to_add=True), pose.dilation, aspect, tilt)
        turn, dilation, aspect, tilt = (torch.as_tensor(n, dtype=dtype, device=device) for n in numbers)
        centre = torch.as_tensor(outer, dtype=dtype, device=device)
        centre = centre / (self.outer_radius(size) - self.inner_radius)
        cos, sin = tilt.cos(), tilt.sin()
        along, mixed, across = cos**2 + aspect * sin**2, (1 - aspect) * sin * cos, sin**2 + aspect * cos**2
        columns = ((turn.cos(), turn.sin()), (-turn.sin(), turn.cos()), centre.unbind(dim=-1))
        entries = [dilation * (along * x + mixed * y) for x, y in columns]
        entries += [dilation * (mixed * x + across * y) for x, y in columns]
        return torch.stack(torch.broadcast_tensors(*entries), dim=-1).unflatten(-1, (2, 3))


def check_number(name: str, value: object, *, tensors: bool = True) -> None:
    """Raise InputError unless `value` is a real tensor or a real number, integers of at most 64 bits."""
    if isinstance(value, Tensor) and tensors:
        real = not value.is_complex()
    else:
        real = isinstance(value, _REAL) and (tensors or math.isfinite(value))
    if not real:
        allowed = "a real number or a tensor (N,)" if tensors else "a finite number"
        raise InputTypeError(f"{name} must be {allowed}; got {value!r}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError(f"{name} must be a number of at most 64 bits")


def check_pair(name: str, value: object) -> None:
    """Raise InputError unless `value` is a pair of finite numbers."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise InputTypeError(f"{name} must be a pair (x, y) of numbers; got {value!r}")
    for number in value:
        check_number(name, number, tensors=False)


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
    grid: PolarGrid, size: tuple[int, int], pose: GridPose, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return points relative to the origin, in units of [-1, 1]: (angles, radii, 2) or (N, angles, radii, 2)."""
    height, width = size
    x, y = grid.offsets_px(size, **pose._asdict(), dtype=dtype, device=device)
    # x and y each contiguous: a CPU adds origins to them several times as fast as to pairs
    return torch.stack((x * (2 / width), y * (2 / height)), dim=-3).movedim(-3, -1)


@lru_cache(maxsize=16)
def cached_points(
    grid: PolarGrid, size: tuple[int, int], pose: GridPose, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """`relative_points` computed once, on the CPU, and kept on `device`."""
    with torch.inference_mode(False):
        points = relative_points(grid, size, pose, dtype, torch.device("cpu"))
        return points if device.type == "cpu" else points.contiguous().to(device)


def finer_grids(
    grid: PolarGrid, size: tuple[int, int], pose: GridPose
) -> list[tuple[PolarGrid, int, int, list[float]]]:
    """Return grids of samples at most one pixel apart that together cover the areas of the pixels of `grid`.

    Adjacent columns that need equal numbers of samples, powers of two, share a grid. `outer_px` is not set.
    A tensor in `pose` is taken to be the value of the grid, or 1.

    Returns:
        For each grid: itself, its samples per pixel of `grid` along angle and radius, and for each of its columns
        the share of the area of a pixel.
    """
    r_max, r_min, log = grid.outer_radius(size), grid.inner_radius, grid.law == "log"
    aspect, dilation = (1.0 if v is None or isinstance(v, Tensor) else v for v in (pose.aspect, pose.dilation))
    stretch = abs(dilation) * max(1.0, aspect, grid.aspect) * (1 + math.hypot(*grid.outer_px) / (r_max - r_min))

    def radius(column: float) -> float:
        share = column / grid.radii
        return r_min * (r_max / r_min) ** share if log else max(0.0, r_min + (r_max - r_min) * share)

    bands: list[tuple[int, int, int, float, float]] = []
    for column in range(grid.radii):
        low, high = radius(column - 0.5), radius(column + 0.5)
        lengths = (radius(column) * (grid.sweep / grid.angles), high - low)
        along, across = (2 ** max(0, math.ceil(math.log2(max(stretch * length, 1e-9)))) for length in lengths)
        number = 1
        # not with the innermost area of the linear law, which ends at the origin and is narrower
        if bands and bands[-1][1:3] == (along, across) and not (column == 1 and bands[0][3] == 0):
            number, _, _, low, _ = bands.pop()
            number += 1
        bands.append((number, along, across, low, high))

    grids = []
    for number, along, across, low, high in bands:
        columns, rows = number * across, grid.angles * along
        if rows * columns > MAX_PIXELS:
            raise InputError(
                f"antialias needs {rows:,}×{columns:,} samples, more than {MAX_PIXELS:,}: "
                "use more angles and radii, or a smaller r_max_px"
            )
        ratio, half = (high / low) ** (0.5 / columns) if log else 1.0, 0.0 if log else (high - low) / (2 * columns)
        areas = [(low * ratio ** (2 * k + 1)) ** 2 if log else low + (2 * k + 1) * half for k in range(columns)]
        totals = [sum(areas[k : k + across]) for k in range(0, columns, across)]
        fine = PolarGrid(
            rows,
            columns,
            r_min_px=low * ratio + half,
            r_max_px=high * ratio + half,
            law=grid.law,
            start=grid.start + grid.sweep / grid.angles * (0.5 / along - 0.5),
            sweep=grid.sweep,
            aspect=grid.aspect,
            tilt=grid.tilt,
        )
        grids.append((fine, along, across, [area / totals[k // across] for k, area in enumerate(areas)]))
    return grids


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
