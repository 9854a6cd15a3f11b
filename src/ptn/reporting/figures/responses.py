"""The paper's Figure 2: group convolutions answer a transformed image with a shifted response."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...geometry import PolarGrid, Similarity, measure_shift, polar_sample, similarity_warp, wrap_pad
from .style import BLUE, GREEN, VERMILION, YELLOW, faint_grid, save

SIZE = 96
TURN = math.pi / 4
SCALE = 1.2
FILTERS = 2

_RADIUS_PX = 20.0  # where a filter sits in the image, to begin with
_SPREAD = (0.32, 0.42)  # of a filter, in logarithms of the radius and in radians
_REACH = 3  # spreads beyond which a filter is taken to be nothing
_SHOWN = 8  # members of the orbit in the picture


@dataclass(frozen=True)
class OrbitResponse:
    """What an image answers to a filter turned by each of `degrees`, and what the image turned by 90° answers.

    `orbit` (K, H, W) has the filters; `shift` is how far the second answer lies behind the first, in degrees.
    """

    images: Tensor
    orbit: Tensor
    degrees: Tensor
    upright: Tensor
    turned: Tensor
    shift: float


@dataclass(frozen=True)
class MapResponse:
    """Two images apart by a turn and a scale, and what each answers to a filter at every turn and scale.

    `images` (2, H, W), `polar` (2, angles, radii), `kernel` (h, w) the filter in log-polar coordinates, `pattern`
    (H, W) the same in the image, `maps` (2, angles, radii less half the filter's). Shifts of the maps in (rows,
    columns).
    """

    images: Tensor
    polar: Tensor
    kernel: Tensor
    pattern: Tensor
    maps: Tensor
    measured: tuple[float, float]
    theory: tuple[float, float]


def arbitrary_filter(seed: int) -> "Filter":
    """A filter out of the hat: three waves of random direction, length and phase under a window."""
    generator = torch.Generator().manual_seed(seed)
    waves = 1.2 * torch.randn(3, 2, generator=generator, dtype=torch.float64)
    phases = torch.rand(3, generator=generator, dtype=torch.float64) * 2 * math.pi
    return Filter(waves, phases)


@dataclass(frozen=True)
class Filter:
    """A function of log-radius and angle about where it is put: `waves` (K, 2) with `phases` (K,), windowed."""

    waves: Tensor
    phases: Tensor

    def __call__(self, log_radius: Tensor, angle: Tensor) -> Tensor:
        """Its values; `angle` in radians, any number of turns away."""
        angle = (angle + math.pi) % (2 * math.pi) - math.pi
        u, v = log_radius / _SPREAD[0], angle / _SPREAD[1]
        window = torch.exp(-0.5 * (u.square() + v.square()))
        total = torch.zeros_like(window)
        for (along, across), phase in zip(self.waves, self.phases, strict=True):
            # the mean under the window is taken off: to what is alike everywhere a filter answers nothing
            mean = torch.cos(phase) * torch.exp(-0.5 * (along.square() + across.square()))
            total += torch.cos(along * u + across * v + phase) - mean
        return window * total

    def in_image(self, size: int, *, turned: Tensor | float = 0.0) -> Tensor:
        """Its picture (…, size, size), turned about the middle by radians (…)."""
        steps = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
        y, x = torch.meshgrid(steps, steps, indexing="ij")
        by = torch.as_tensor(turned, dtype=torch.float64)[..., None, None]
        log_radius = (torch.hypot(x, y) / _RADIUS_PX).log()
        return self(*torch.broadcast_tensors(log_radius, torch.atan2(y, x) - by))

    def in_polar_image(self, grid: PolarGrid, size: tuple[int, int]) -> Tensor:
        """Its picture (h, w), odd numbers, at the resolution of `grid` for images of `size`."""
        per_column = math.log(grid.outer_radius(size) / grid.r_min_px) / grid.radii
        rows = math.ceil(_REACH * _SPREAD[1] * grid.angles / (2 * math.pi))
        columns = math.ceil(_REACH * _SPREAD[0] / per_column)
        angle = torch.arange(-rows, rows + 1, dtype=torch.float64) * (2 * math.pi / grid.angles)
        log_radius = torch.arange(-columns, columns + 1, dtype=torch.float64) * per_column
        angle, log_radius = torch.meshgrid(angle, log_radius, indexing="ij")
        return self(log_radius, angle)


def respond_to_orbit(digit: Tensor, kernel: Filter, *, steps: int = 360) -> OrbitResponse:
    """The inner products of `digit` (H, W), and of the same turned by 90°, with `kernel` turned all around."""
    upright = _on_canvas(digit)
    images = torch.stack((upright, upright.rot90(-1)))  # +x towards +y, as everywhere
    degrees = torch.arange(steps, dtype=torch.float64) * (360 / steps)
    orbit = kernel.in_image(SIZE, turned=degrees.deg2rad())
    answers = torch.einsum("khw,nhw->nk", orbit, images)
    # a measure of shifts wants polar images: the answers as the rows of one, alike at every radius
    rows = answers[:, None, :, None].expand(-1, -1, -1, 2)
    shift = float(measure_shift(rows[:1], rows[1:])[0, 0]) * 360 / steps
    return OrbitResponse(images, orbit, degrees, answers[0], answers[1], shift % 360)


def respond_everywhere(digit: Tensor, kernel: Filter, *, turn: float = TURN, scale: float = SCALE) -> MapResponse:
    """What `digit` (H, W), and the same turned and scaled, answer to `kernel` at every turn and scale."""
    images = torch.stack((_on_canvas(digit), _on_canvas(digit, turn=turn, scale=scale)))[:, None]
    grid = PolarGrid(SIZE, SIZE)
    polar = polar_sample(images, torch.zeros(2, 2, dtype=torch.float64), grid, mode="bicubic")
    weights = kernel.in_polar_image(grid, (SIZE, SIZE))
    rows, columns = (side // 2 for side in weights.shape)
    # beyond the outermost circle all is black; within the innermost it is not, and nothing is made up there
    maps = F.conv2d(wrap_pad(polar, (rows, (0, columns))), weights[None, None])
    found = measure_shift(maps[:1], maps[1:])[0].tolist()
    theory = (
        turn / (2 * math.pi) * grid.angles,
        math.log(scale) / math.log(grid.outer_radius((SIZE, SIZE)) / grid.r_min_px) * grid.radii,
    )
    return MapResponse(
        images[:, 0], polar[:, 0], weights, kernel.in_image(SIZE), maps[:, 0], (found[0], found[1]), theory
    )


def _on_canvas(digit: Tensor, *, turn: float = 0.0, scale: float = 1.0) -> Tensor:
    """`digit` (h, w) 2.4 times as large on the canvas, and turned and scaled beyond that."""
    return similarity_warp(
        digit.double()[None, None], Similarity(turn, 2.4 * scale), size=(SIZE, SIZE), mode="bicubic"
    ).clamp(0, 1)[0, 0]


def draw(digit: Tensor, path: Path) -> tuple[OrbitResponse, list[MapResponse]]:
    """Write the figure for `digit` (H, W) in [0, 1], and return what it shows."""
    from matplotlib.figure import Figure

    kernels = [arbitrary_filter(seed) for seed in range(FILTERS)]
    orbit = respond_to_orbit(digit, kernels[0])
    maps = [respond_everywhere(digit, kernel) for kernel in kernels]
    figure = Figure(figsize=(9.6, 10), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.42))
    _draw_orbit(parts[0], orbit)
    _draw_maps(parts[1], maps)
    save(figure, path)
    return orbit, maps


def _draw_orbit(figure: Any, response: OrbitResponse) -> None:
    """A filter all around above; the two images, and what they answer, below."""
    axes = figure.subplot_mosaic(
        [[".", *range(_SHOWN)], ["upright", *["curves"] * _SHOWN], ["turned", *["curves"] * _SHOWN]],
        width_ratios=(1.6, *[1] * _SHOWN),
        height_ratios=(1, 1.35, 1.35),
    )
    every = len(response.degrees) // _SHOWN
    for place in range(_SHOWN):
        _show_filter(axes[place], response.orbit[place * every])
        axes[place].set_title(f"{response.degrees[place * every]:.0f}°", fontsize=9)
    axes[0].set_ylabel("a filter,\nturned by", fontsize=9)
    for name, image, colour in zip(("upright", "turned"), response.images, (BLUE, VERMILION), strict=True):
        _show_image(axes[name], image)
        axes[name].spines[:].set(color=colour, linewidth=2.5)
    axes["upright"].set_ylabel("image", fontsize=9)
    axes["turned"].set_ylabel("turned 90°", fontsize=9)
    curves = axes["curves"]
    scale = float(response.upright.abs().max())
    for name, values, colour in (("image", response.upright, BLUE), ("turned 90°", response.turned, VERMILION)):
        curves.plot([*response.degrees, 360], [*(values / scale), values[0] / scale], color=colour, label=name)
    start = float(response.degrees[int(response.upright[: len(response.degrees) * 5 // 8].argmax())])
    end = start + response.shift  # the landmark is early enough for this to be in view
    curves.annotate("", (end, 1.14), (start, 1.14), arrowprops={"arrowstyle": "->", "color": GREEN, "linewidth": 2})
    says = f"{response.shift:.2f}° measured, 90° in theory"
    curves.text(start + 3, 1.2, says, fontsize=9, color=GREEN)
    curves.set(xlim=(0, 360), ylim=(-1.25, 1.42))
    curves.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)], fontsize=8)
    curves.set_xlabel("filter turned by", fontsize=9)
    curves.set_ylabel("inner product with the image", fontsize=9)
    curves.tick_params(axis="y", labelsize=8)
    curves.legend(frameon=False, fontsize=9, loc="lower left", ncols=2)
    faint_grid(curves)
    figure.suptitle("Turn the image, and its answers to a filter's turns shift by the same angle", fontsize=11)


def _draw_maps(figure: Any, responses: list[MapResponse]) -> None:
    """The two images, their log-polar images, and a map of answers for each filter."""
    axes = figure.subplots(3, 2 + len(responses), height_ratios=(0.8, 1, 1))
    for axis in axes[0, :2]:
        axis.set_axis_off()
    axes[0, 0].text(
        0,
        0.5,
        "Each point of a map is the inner product of\nthe image with the filter at one turn (down)\n"
        "and one scale (right), red where it is positive:\na plain convolution of the log-polar image. "
        "Yellow\nis a peak of the upper map, green where the\nmeasured shift carries it.",
        transform=axes[0, 0].transAxes,
        va="center",
        fontsize=9,
        in_layout=False,  # it reaches over two columns
    )
    first = responses[0]
    for row in (0, 1):
        _show_image(axes[row + 1, 0], first.images[row])
        _show_image(axes[row + 1, 1], first.polar[row])
    for column, response in enumerate(responses, start=2):
        _show_filter(axes[0, column], response.pattern)
        axes[0, column].set_title(f"filter {column - 1}", fontsize=9)
        limit = float(response.maps.abs().max())
        peak = _landmark(response.maps[0])
        moved = (peak[0] + response.measured[0], peak[1] + response.measured[1])
        for row in (0, 1):
            axis = axes[row + 1, column]
            axis.imshow(response.maps[row].numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.set(xticks=[], yticks=[])
            _cross(axis, peak, YELLOW)
        _cross(axes[2, column], moved, GREEN)
        rows, columns = response.measured
        axes[2, column].set_xlabel(
            f"down {rows:.2f}, right {columns:.2f}\ntheory {response.theory[0]:.2f}, {response.theory[1]:.2f}",
            fontsize=9,
        )
    axes[1, 0].set_ylabel("image", fontsize=9)
    axes[2, 0].set_ylabel(f"turned {math.degrees(TURN):g}°, enlarged {SCALE:g}×", fontsize=9)
    axes[1, 1].set_title("log-polar", fontsize=9)
    axes[2, 1].set_ylabel("← angle", fontsize=9)
    axes[2, 1].set_xlabel("radius →", fontsize=9)
    for column in range(2, 2 + len(responses)):
        axes[1, column].set_title(f"its answers to filter {column - 1}", fontsize=9)
    figure.suptitle(
        "Turn and enlarge it, and the map of its answers shifts along angle and radius (rows and columns of 96)",
        fontsize=11,
    )


def _landmark(answers: Tensor) -> tuple[int, int]:
    """Row and column of the greatest answer that is not near the edge of the map, where a shift would lose it."""
    rows, columns = (side // 6 for side in answers.shape)
    inner = answers[rows:-rows, columns:-columns]
    row, column = divmod(int(inner.argmax()), inner.shape[1])
    return row + rows, column + columns


def _show_image(axis: Any, image: Tensor) -> None:
    axis.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])


def _show_filter(axis: Any, values: Tensor) -> None:
    limit = float(values.abs().max())
    axis.imshow(values.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set(xticks=[], yticks=[])


def _cross(axis: Any, place: tuple[float, float], colour: str) -> None:
    """A mark that is seen on every ground."""
    y, x = place
    axis.plot(x, y, "+", markersize=15, markeredgewidth=4, color="black")
    axis.plot(x, y, "+", markersize=14, markeredgewidth=2, color=colour)
