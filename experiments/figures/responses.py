"""Group convolutions: a transformed image gives a shifted response (the paper's Figure 2)."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ptn.figures import GREEN, INK, PURPLE, angle_axis, mark_origin, save, show
from ptn.geometry import PolarGrid, Similarity, measure_shift, polar_sample, similarity_warp, wrap_pad

from .panels import label_rows, show_signed

SIZE = 96
POSE = Similarity(rotation=math.pi / 4, scale=1.2)
FILTERS = 2

_RADIUS_PX = 20.0  # distance of a filter from the center of the image
_SPREAD = (0.32, 0.42)  # of a filter, in log radius and in radians
_REACH = 3  # a filter is cut off at this multiple of its spread
_SHOWN = 8  # rotations of the filter in the figure


class OrbitResponse(NamedTuple):
    """Responses of an image and of the image rotated by 90° to a filter rotated by each of `degrees`."""

    images: Tensor  # (2, H, W)
    orbit: Tensor  # the rotated filters, (K, H, W)
    degrees: Tensor  # (K,)
    responses: Tensor  # (2, K)
    shift: float  # of the second response against the first, in degrees


class MapResponse(NamedTuple):
    """Responses of two images, related by a rotation and a scaling, to a filter at every rotation and scale."""

    images: Tensor  # (2, H, W)
    polar: Tensor  # (2, angles, radii)
    pattern: Tensor  # the filter in the image, (H, W)
    maps: Tensor  # (2, angles, columns)
    measured: tuple[float, float]  # shift of the second map against the first, rows and columns
    theory: tuple[float, float]


Filter = Callable[[Tensor, Tensor], Tensor]
"""Values at (log radius from the middle of the filter, angle in radians)."""


def random_filter(seed: int) -> Filter:
    """Returns a windowed sum of three random waves."""
    generator = torch.Generator().manual_seed(seed)
    waves = 1.2 * torch.randn(3, 2, generator=generator, dtype=torch.float64)
    phases = torch.rand(3, generator=generator, dtype=torch.float64) * 2 * math.pi

    def evaluate(log_radius: Tensor, angle: Tensor) -> Tensor:
        angle = (angle + math.pi) % (2 * math.pi) - math.pi
        u, v = log_radius / _SPREAD[0], angle / _SPREAD[1]
        window = torch.exp(-0.5 * (u.square() + v.square()))
        total = torch.zeros_like(window)
        for (along, across), phase in zip(waves, phases, strict=True):
            # Subtract the mean under the window: the response to a constant image is 0.
            mean = torch.cos(phase) * torch.exp(-0.5 * (along.square() + across.square()))
            total += torch.cos(along * u + across * v + phase) - mean
        return window * total

    return evaluate


def _in_image(kernel: Filter, rotation: Tensor) -> Tensor:
    """Returns a filter in an image, rotated about the center by radians (K,): (K, SIZE, SIZE)."""
    steps = torch.arange(SIZE, dtype=torch.float64) - (SIZE - 1) / 2
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    angle = torch.atan2(y, x) - rotation[:, None, None]
    return kernel(*torch.broadcast_tensors((torch.hypot(x, y) / _RADIUS_PX).log(), angle))


def _in_polar_image(kernel: Filter, log_range: float) -> Tensor:
    """Returns a filter at the resolution of a polar image with SIZE angles and radii: (h, w), both odd."""
    rows = math.ceil(_REACH * _SPREAD[1] * SIZE / (2 * math.pi))
    columns = math.ceil(_REACH * _SPREAD[0] * SIZE / log_range)
    angle = torch.arange(-rows, rows + 1, dtype=torch.float64) * (2 * math.pi / SIZE)
    log_radius = torch.arange(-columns, columns + 1, dtype=torch.float64) * (log_range / SIZE)
    angle, log_radius = torch.meshgrid(angle, log_radius, indexing="ij")
    return kernel(log_radius, angle)


def respond_to_orbit(digit: Tensor, kernel: Filter, *, steps: int = 360) -> OrbitResponse:
    """Returns the inner products of `digit` (H, W), upright and rotated by 90°, with all rotations of `kernel`."""
    upright = _on_canvas(digit)
    images = torch.stack((upright, upright.rot90(-1)))  # +x towards +y
    degrees = torch.arange(steps, dtype=torch.float64) * (360 / steps)
    orbit = _in_image(kernel, degrees.deg2rad())
    responses = torch.einsum("khw,nhw->nk", orbit, images)
    rows = responses[:, None, :, None].expand(-1, -1, -1, 2)  # measure_shift takes polar images
    shift = float(measure_shift(rows[:1], rows[1:])[0, 0]) * 360 / steps
    return OrbitResponse(images, orbit, degrees, responses, shift % 360)


def respond_everywhere(digit: Tensor, kernel: Filter, pose: Similarity = POSE) -> MapResponse:
    """Returns the responses of `digit` (H, W), original and transformed by `pose`, at all rotations and scales."""
    images = torch.stack((_on_canvas(digit), _on_canvas(digit, pose)))[:, None]
    grid = PolarGrid(SIZE, SIZE)
    polar = polar_sample(images, torch.zeros(2, 2, dtype=torch.float64), grid, mode="bicubic")
    log_range = math.log(grid.outer_radius((SIZE, SIZE)) / grid.inner_radius)
    weights = _in_polar_image(kernel, log_range)
    rows, columns = (side // 2 for side in weights.shape)
    # The image is black beyond the outermost circle, so zero padding is exact there, but not at the innermost one.
    maps = F.conv2d(wrap_pad(polar, (rows, (0, columns))), weights[None, None])
    down, right = measure_shift(maps[:1], maps[1:])[0].tolist()
    theory = (float(pose.rotation) / (2 * math.pi) * SIZE, math.log(float(pose.scale)) / log_range * SIZE)
    pattern = _in_image(kernel, torch.zeros(1, dtype=torch.float64))[0]
    return MapResponse(images[:, 0], polar[:, 0], pattern, maps[:, 0], (down, right), theory)


def _on_canvas(digit: Tensor, pose: Similarity = Similarity()) -> Tensor:  # noqa: B008
    """Returns `digit` (h, w) enlarged 2.4 times on the canvas, transformed by `pose`."""
    placed = pose.compose(Similarity(scale=2.4))
    return similarity_warp(digit.double()[None, None], placed, size=(SIZE, SIZE), mode="bicubic").clamp(0, 1)[0, 0]


def draw_orbit(digit: Tensor, path: Path) -> None:
    """Draws rotations of a filter above, `digit` (H, W) in [0, 1] upright and rotated and their responses below."""
    from matplotlib.figure import Figure

    response = respond_to_orbit(digit, random_filter(0))
    figure: Any = Figure(figsize=(9.6, 4.4), layout="constrained")
    names = ("image", "rotated 90°")
    axes = figure.subplot_mosaic(
        [[".", *range(_SHOWN)], *([name, *["curves"] * _SHOWN] for name in names)],
        width_ratios=(1.6, *[1] * _SHOWN),
        height_ratios=(1, 1.35, 1.35),
    )
    every = len(response.degrees) // _SHOWN
    for place in range(_SHOWN):
        show_signed(axes[place], response.orbit[place * every], f"{response.degrees[place * every]:.0f}°")
    axes[0].set_ylabel("a filter,\nrotated by", fontsize=9)
    curves = axes["curves"]
    scale = response.responses[0].abs().max()
    for index, (name, color) in enumerate(zip(names, (INK, PURPLE), strict=True)):
        show(axes[name], response.images[index])
        axes[name].spines[:].set(color=color, linewidth=2.5)
        axes[name].set_ylabel(name, fontsize=9)
        values = response.responses[index] / scale
        curves.plot([*response.degrees, 360], [*values, values[0]], color=color, label=name)
    # The maximum of the first 225° leaves room for the arrow.
    start = float(response.degrees[int(response.responses[0, : len(response.degrees) * 5 // 8].argmax())])
    arrow = {"arrowstyle": "->", "color": GREEN, "linewidth": 2}
    curves.annotate("", (start + response.shift, 1.14), (start, 1.14), arrowprops=arrow)
    curves.text(start + 3, 1.2, f"measured {response.shift:.2f}°, theory 90°", fontsize=9, color=GREEN)
    angle_axis(curves)
    curves.set(xlim=(0, 360), ylim=(-1.25, 1.42))
    curves.set_xlabel("rotation of the filter", fontsize=9)
    curves.set_ylabel("inner product with the image", fontsize=9)
    curves.tick_params(labelsize=8)
    curves.legend(frameon=False, fontsize=9, loc="lower left", ncols=2)
    figure.suptitle("Rotating the image shifts its responses to a rotated filter by the same angle", fontsize=11)
    save(figure, path)


def draw_maps(digit: Tensor, path: Path) -> None:
    """Draws `digit` (H, W) in [0, 1], the same transformed, log-polar images, and responses to the filters."""
    from matplotlib.figure import Figure

    responses = [respond_everywhere(digit, random_filter(seed)) for seed in range(FILTERS)]
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplots(3, 2 + len(responses), height_ratios=(0.8, 1, 1))
    for each in axes[0, :2]:
        each.set_axis_off()
    explanation = (
        "Each point of a map is the inner product of\nthe image with the filter at one rotation (down)\n"
        "and one scale (right), red where it is positive:\na convolution of the log-polar image. Yellow\n"
        "is a peak of the upper map, green the peak\nmoved by the measured shift."
    )
    where = {"transform": axes[0, 0].transAxes, "va": "center", "in_layout": False}
    axes[0, 0].text(0, 0.5, explanation, fontsize=9, **where)
    for row in (0, 1):
        show(axes[row + 1, 0], responses[0].images[row])
        show(axes[row + 1, 1], responses[0].polar[row], "" if row else "log-polar")
    for column, response in enumerate(responses, start=2):
        show_signed(axes[0, column], response.pattern, f"filter {column - 1}")
        limit = float(response.maps.abs().max())
        y, x = _peak(response.maps[0])
        for row in (0, 1):
            title = "" if row else f"responses to filter {column - 1}"
            show_signed(axes[row + 1, column], response.maps[row], title, limit)
            mark_origin(axes[row + 1, column], x, y)
        rows, columns = response.measured
        mark_origin(axes[2, column], x + columns, y + rows, color=GREEN)
        caption = f"down {rows:.2f}, right {columns:.2f}\ntheory {response.theory[0]:.2f}, {response.theory[1]:.2f}"
        axes[2, column].set_xlabel(caption, fontsize=9)
    label_rows(axes[1:], ("image", f"rotated {math.degrees(POSE.rotation):g}°, scaled {POSE.scale:g}×"))
    axes[2, 1].set_ylabel("← angle", fontsize=9)
    axes[2, 1].set_xlabel("radius →", fontsize=9)
    title = "Rotating and scaling the image shifts the map of its responses along angle and radius"
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _peak(responses: Tensor) -> tuple[int, int]:
    """Returns row and column of the maximum, away from the border, where a shift would move it out of view."""
    rows, columns = (side // 6 for side in responses.shape)
    inner = responses[rows:-rows, columns:-columns]
    row, column = divmod(int(inner.argmax()), inner.shape[1])
    return row + rows, column + columns
