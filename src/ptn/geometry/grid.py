"""PolarGrid: the sampling points of a polar image."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise, starmap
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, InputTypeError, check_choice

Law = Literal["log", "linear"]
MAX_PIXELS = 2**26
"""Largest number of pixels of images that are read and of polar images."""
_MAX_ANTIALIASED = 2**16  # radii, whose areas are computed one by one
_MAX_BAND = 2**21  # samples of adjacent columns that are read at once
_REAL = (float, int, np.floating, np.integer)


class GridPose(NamedTuple):
    """Parameters of the points of a grid that may differ from image to image; None is the value of the grid.

    Tensors are (N,), and `outer_px` (N, 2), or have one value for all. `phase` is added to `start`.
    """

    phase: Tensor | float = 0.0
    dilation: Tensor | float = 1.0
    aspect: Tensor | None = None
    tilt: Tensor | None = None
    outer_px: Tensor | None = None


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
        sweep: angle that the rows cover in radians, at most 2π, a full circle. A smaller angle is a sector, whose
            rows do not wrap.
        aspect: ratio of the semi-axes of an ellipse, that across the direction `tilt` to that along it, which is
            the radius.
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
            if not isinstance(count := getattr(self, name), int | np.integer) or isinstance(count, bool):
                raise InputTypeError(f"{name} must be an integer; got {count!r}")
            object.__setattr__(self, name, int(count))
        for name in ("angles", "radii"):
            if (count := getattr(self, name)) < 1 or self.angles * self.radii > MAX_PIXELS:
                raise InputError(
                    f"{name} must be at least 1, and angles × radii at most {MAX_PIXELS:,}; got {count}"
                )
        check_choice("radial law", self.law, ("log", "linear"))
        if not isinstance(self.outer_px, tuple | list) or len(self.outer_px) != 2:
            raise InputTypeError(f"outer_px must be a pair (x, y) of numbers; got {self.outer_px!r}")
        object.__setattr__(self, "outer_px", tuple(_as_float("outer_px", number) for number in self.outer_px))
        for name in ("r_min_px", "r_max_px", "start", "sweep", "aspect", "tilt"):
            number = getattr(self, name)
            if number is not None or name not in ("r_min_px", "r_max_px"):
                object.__setattr__(self, name, _as_float(name, number))
        for name, radius in (("r_min_px", self.r_min_px), ("r_max_px", self.r_max_px)):
            from_zero = name == "r_min_px" and self.law == "linear"
            if radius is not None and not (2**-63 < radius < 2**63 or (from_zero and radius == 0)):
                raise InputError(f"{name} must be a positive number of pixels; got {radius!r}")
        if math.isclose(self.sweep, 2 * math.pi, rel_tol=1e-7):  # also 2π in float32, which is larger
            object.__setattr__(self, "sweep", 2 * math.pi)
        if not 1e-6 <= self.sweep <= 2 * math.pi:
            raise InputError(f"sweep must be an angle in radians, above 0 and at most 2π; got {self.sweep!r}")
        if not 1e-6 <= self.aspect <= 1e6:
            raise InputError(f"aspect must be a positive number, from 1e-6 to 1e6; got {self.aspect!r}")
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
        pose: GridPose = GridPose(),  # noqa: B008
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return x and y of the points relative to the origin, in pixels, for an input image of `size` (h, w).

        Args:
            size: (h, w) of the input image.
            pose: phase, dilation and shape, see `polar_sample`.

        Returns:
            x and y, each (angles, radii), or (N, angles, radii) if the pose has tensors with N values.
        """
        radius = self.radius_at(torch.arange(self.radii, dtype=dtype, device=device), size)
        angle = torch.arange(self.angles, dtype=dtype, device=device) * (self.sweep / self.angles)
        if not self.is_circular(pose):
            frame = self.frame(size, pose, dtype, angle.device)
            direction = frame @ torch.stack((angle.cos(), angle.sin(), torch.ones_like(angle)))
            offsets = direction[..., None] * radius - self.inner_radius * frame[..., 2, None, None]
            x, y = offsets.unbind(dim=-3)
            return x, y
        phase, dilation, *_ = pose
        radius = radius * (dilation[..., None] if isinstance(dilation, Tensor) else dilation)
        phase = self.first_angle(phase)
        angle = angle + (phase[..., None] if isinstance(phase, Tensor) else phase)
        radius = radius[..., None, :]
        return torch.cos(angle)[..., None] * radius, torch.sin(angle)[..., None] * radius

    def first_angle(self, phase: Tensor | float) -> Tensor | float:
        """Return start + phase, reduced by multiples of 2π."""
        if self.start == 0:
            return reduce_angle(phase, to_add=True)
        return reduce_angle(phase, to_add=True) + reduce_angle(self.start)

    def frame(self, size: tuple[int, int], pose: GridPose, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the matrix M of a grid of ellipses or of circles with different centres: (2, 3) or (N, 2, 3).

        The point of row y and column x is radius(x)·M·(cos t, sin t, 1) - r_min·M·(0, 0, 1) from the origin, with
        t = sweep·y/H. M is dilation·E·[R(start + phase) | outer_px / (r_max - r_min)], R a rotation and E the
        stretch by `aspect` across `tilt`.
        """
        turn = self.first_angle(pose.phase)
        aspect = self.aspect if pose.aspect is None else pose.aspect
        tilt = reduce_angle(self.tilt if pose.tilt is None else pose.tilt)
        outer = self.outer_px if pose.outer_px is None else pose.outer_px.unbind(dim=-1)
        # `torch.full` because CUDA graphs do not allow copies from the CPU
        turn, scale, aspect, tilt, x, y = (
            n.to(device, dtype) if isinstance(n, Tensor) else torch.full((), n, dtype=dtype, device=device)
            for n in (turn, pose.dilation, aspect, tilt, *outer)
        )
        extent = self.outer_radius(size) - self.inner_radius
        cos, sin = tilt.cos(), tilt.sin()
        along, mixed, across = cos**2 + aspect * sin**2, (1 - aspect) * sin * cos, sin**2 + aspect * cos**2
        columns = ((turn.cos(), turn.sin()), (-turn.sin(), turn.cos()), (x / extent, y / extent))
        entries = [scale * (along * x + mixed * y) for x, y in columns]
        entries += [scale * (mixed * x + across * y) for x, y in columns]
        return torch.stack(torch.broadcast_tensors(*entries), dim=-1).unflatten(-1, (2, 3))


def _as_float(name: str, number: object) -> float:
    if isinstance(number, Tensor):
        raise InputTypeError(f"{name} of a PolarGrid must be a number: give tensors to polar_sample")
    check_number(name, number, tensors=False)
    return float(number)  # type: ignore[arg-type]


def check_number(name: str, value: object, *, tensors: bool = True) -> None:
    """Raise InputError unless `value` is a real tensor, an integer of 64 bits or a float of at most float32."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError(f"{name} must be a number of at most 64 bits")
    if isinstance(value, Tensor) and tensors:
        real = not value.is_complex()
    else:
        real = isinstance(value, _REAL) and not isinstance(value, bool)
        real = real and (tensors or abs(value) < math.inf)  # type: ignore[arg-type]
    if not real:
        allowed = "a real number or a tensor (N,)" if tensors else "a finite number"
        raise InputTypeError(f"{name} must be {allowed}; got {value!r}")
    fits = isinstance(value, Tensor) or not 2.0**128 <= abs(float(value)) < math.inf  # type: ignore[arg-type]
    if not fits:
        raise InputError(f"{name} must be a number that fits into float32")


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


def shift_origin(origin: Tensor, shift_px: Tensor, size: tuple[int, int]) -> Tensor:
    """Return origins in [-1, 1] shifted by (x, y) in pixels of images of `size` (h, w)."""
    x, y = shift_px.unbind(dim=-1)
    return origin + torch.stack((x * (2 / size[1]), y * (2 / size[0])), dim=-1)


def relative_points(
    grid: PolarGrid, size: tuple[int, int], pose: GridPose, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return points relative to the origin, in units of [-1, 1]: (angles, radii, 2) or (N, angles, radii, 2)."""
    height, width = size
    x, y = grid.offsets_px(size, pose, dtype=dtype, device=device)
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


def finer_grids(grid: PolarGrid, size: tuple[int, int], dilation: float) -> list[tuple[PolarGrid, int, int]]:
    """Return grids of samples at most one pixel apart that together cover the areas of the pixels of `grid`.

    Each comes with its samples per pixel along angle and radius, powers of two. Adjacent columns that need equal
    numbers share a grid, unless it would be large.
    """
    if grid.radii > _MAX_ANTIALIASED:
        raise InputError(f"antialias takes at most {_MAX_ANTIALIASED:,} radii; got {grid.radii:,}")
    r_max, r_min, log = grid.outer_radius(size), grid.inner_radius, grid.law == "log"
    stretch = abs(dilation) * max(1.0, grid.aspect) * (1 + math.hypot(*grid.outer_px) / (r_max - r_min))
    shares = [(column - 0.5) / grid.radii for column in range(grid.radii + 1)]
    edges = [r_min * (r_max / r_min) ** u if log else max(0.0, r_min + (r_max - r_min) * u) for u in shares]

    def samples(low: float, high: float) -> tuple[int, int, bool]:
        lengths = (high * (grid.sweep / grid.angles), high - low)
        along, across = (2 ** math.ceil(math.log2(max(1.0, stretch * length))) for length in lengths)
        return along, across, low > 0  # a column that begins at the origin is narrower than its neighbours

    bands: list[tuple[int, int, int]] = []
    for (along, across, _), cells in groupby(starmap(samples, pairwise(edges))):
        number, most = len(list(cells)), max(1, _MAX_BAND // (grid.angles * along * across))
        bands += [(along, across, min(most, number - first)) for first in range(0, number, most)]
    grids, column = [], 0
    for along, across, number in bands:
        low, high = edges[column], edges[column + number]
        column += number
        rows, columns = grid.angles * along, number * across
        if rows * columns > MAX_PIXELS:
            raise InputError(
                f"antialias needs {rows:,}×{columns:,} samples, more than {MAX_PIXELS:,}: "
                "use more angles and radii, or a smaller r_max_px"
            )
        ratio, half = ((high / low) ** (0.5 / columns), 0.0) if log else (1.0, (high - low) / (2 * columns))
        share = (high - low) * ratio / (r_max - r_min)
        fine = replace(
            grid,
            angles=rows,
            radii=columns,
            r_min_px=low * ratio + half,
            r_max_px=high * ratio + half,
            start=grid.start + grid.sweep / grid.angles * (0.5 / along - 0.5),
            outer_px=(grid.outer_px[0] * share, grid.outer_px[1] * share),
        )
        grids.append((fine, along, across))
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
