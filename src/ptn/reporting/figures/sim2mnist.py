"""What a network learned on SIM2MNIST: origins among clutter, and feature maps that shift as theory says.

The paper's visualisation. Above, test images with heatmap and origin, and their log-polar images. Below, a digit that
is turned, moved and enlarged, and what becomes of its log-polar image and of the last feature maps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...data import Dataset
from ...errors import InputError
from ...files import atomic_path
from ...geometry import measure_shift, origin_px, similarity_warp
from ...layers import PolarTransformer
from ...models.networks import PolarNetwork

CHANNELS = 7
"""Feature maps that are shown."""

_YELLOW, _GREEN, _BLUE = "#f0e442", "#00c08b", "#56b4e9"


@dataclass(frozen=True)
class Move:
    """A similarity of a digit against the reference, and the shift (rows, columns) that it should be, as shares of
    the height and the width of a polar image."""

    title: str
    rotation_deg: float = 0.0
    scale: float = 1.0
    shift_px: tuple[float, float] = (0.0, 0.0)

    def theory(self, log_span: float) -> tuple[float, float]:
        """`log_span` is ln(r_max / r_min)."""
        return self.rotation_deg / 360, math.log(self.scale) / log_span


# where the reference stands, in pixels from the middle of an image of 96: wherever all that follows stays in view
_START = (-12.0, 8.0)
MOVES = (
    Move("reference"),
    Move("turned 180°", rotation_deg=180),
    Move("moved (28, −22) px", shift_px=(28.0, -22.0)),
    Move("enlarged 2.4×", scale=2.4),
)


@dataclass(frozen=True)
class Moved:
    """Digits under each of `MOVES`, M of them, as a network sees them.

    `images` (N, M, H, W), `origins_px` (N, M, 2), `polar` (N, M, angles, radii), `features` (N, M, C, h, w).
    `polar_shifts` and `feature_shifts` (N, M, 2) are rows and columns against the reference; `polar_theory` and
    `feature_theory` (M, 2) what they should be.
    """

    images: Tensor
    origins_px: Tensor
    polar: Tensor
    features: Tensor
    polar_shifts: Tensor
    feature_shifts: Tensor
    polar_theory: Tensor
    feature_theory: Tensor


def move(model: PolarNetwork, digits: Tensor) -> Moved:
    """Digits (N, 28, 28) in [0, 1], each put into an empty image in the ways of `MOVES`, as `model` sees them."""
    height, width = model.input_shape[1:]
    unit = width / 96
    rotation = torch.tensor([math.radians(m.rotation_deg) for m in MOVES])
    shift = torch.tensor([[unit * (a + b) for a, b in zip(_START, m.shift_px, strict=True)] for m in MOVES])
    scale = torch.tensor([unit * m.scale for m in MOVES])
    count, ways = len(digits), len(MOVES)
    images = similarity_warp(
        digits.repeat_interleave(ways, dim=0)[:, None],
        rotation=rotation.repeat(count),
        scale=scale.repeat(count),
        shift_px=shift.repeat(count, 1),
        size=(height, width),
    )
    seen = model.explain(images)
    assert seen.origins is not None
    assert seen.polar_images is not None
    assert seen.feature_maps is not None
    assert isinstance(model.transformer, PolarTransformer)
    grid = model.transformer.grid
    span = math.log(grid.outer_radius((height, width)) / grid.r_min_px)
    shares = torch.tensor([m.theory(span) for m in MOVES], dtype=torch.float64)

    def shifts(maps: Tensor) -> tuple[Tensor, Tensor]:
        """Measured (N, M, 2), and theory (M, 2), of polar maps (N·M, C, h, w)."""
        rows, columns = maps.shape[-2:]
        theory = shares * torch.tensor([rows, columns])
        each = maps.unflatten(0, (count, ways))
        found = measure_shift(each[:, :1].expand_as(each).flatten(0, 1), maps).unflatten(0, (count, ways))
        # rows are known modulo the whole turn: take the copy nearest to theory
        found[..., 0] += rows * ((theory[:, 0] - found[..., 0]) / rows).round()
        return found, theory

    (polar_shifts, polar_theory), (feature_shifts, feature_theory) = map(
        shifts, (seen.polar_images, seen.feature_maps)
    )
    apart = (count, ways)
    return Moved(
        images.unflatten(0, apart)[:, :, 0],
        origin_px(seen.origins, (height, width)).unflatten(0, apart),
        seen.polar_images.unflatten(0, apart)[:, :, 0],
        seen.feature_maps.unflatten(0, apart),
        polar_shifts,
        feature_shifts,
        polar_theory,
        feature_theory,
    )


def draw(model: PolarNetwork, test: Dataset, digits: Tensor, path: Path, *, title: str) -> Moved:
    """Write the figure as a PNG, and return what was measured.

    Args:
        test: images with `meta["center"]`; the first of each class is shown.
        digits: (N, 28, 28) in [0, 1]; the first is shown, and all are measured.
    """
    from matplotlib.figure import Figure

    if not isinstance(model.transformer, PolarTransformer) or model.transformer.predictor is None:
        raise InputError("this figure is of networks that learn an origin: take weights of ptn_s, ptn_b or ptn_l")
    moved = move(model, digits)
    figure = Figure(figsize=(12, 9.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.0, 6.2))
    _draw_samples(parts[0], model, test, title)
    _draw_moves(parts[1], moved)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return moved


def _draw_samples(figure: Any, model: PolarNetwork, test: Dataset, title: str) -> None:
    chosen = [int((test.labels == label).nonzero()[0]) for label in test.labels.unique()]
    images = test.images[chosen].float() / 255
    height, width = images.shape[-2:]
    seen = model.explain(images)
    assert seen.origins is not None
    assert seen.heatmaps is not None
    assert seen.polar_images is not None
    origins = origin_px(seen.origins, (height, width)).tolist()
    centers = origin_px(test.meta["center"][chosen], (height, width)).tolist()
    axes = figure.subplots(2, len(chosen), squeeze=False)
    _bare(axes)
    for column, (origin, center) in enumerate(zip(origins, centers, strict=True)):
        image, log_polar = axes[:, column]
        _show_heat(image, images[column, 0], seen.heatmaps[column])
        image.plot(*center, "o", markersize=9, markerfacecolor="none", markeredgewidth=1.4, color=_BLUE)
        _cross(image, origin)
        log_polar.imshow(seen.polar_images[column, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        answer, label = int(seen.logits[column].argmax()), int(test.labels[chosen[column]])
        mark = "" if answer == label else f" ✗ ({test.classes[label]})"
        image.set_title(f"{test.classes[answer]}{mark}", fontsize=10)
    axes[0, 0].set_ylabel("test image", fontsize=10)
    axes[1, 0].set_ylabel("log-polar\n← angle", fontsize=10)
    axes[1, 0].set_xlabel("radius →", fontsize=10)
    figure.suptitle(
        f"{title}: heatmap (red), origin + and true centre ○ among clutter, and the answer above", fontsize=12
    )


def _show_heat(axis: Any, image: Tensor, heatmap: Tensor) -> None:
    """`image` in grey, and over it the heatmap, clear where it is lowest and red where it is highest."""
    height, width = image.shape
    axis.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    raised = heatmap - heatmap.min()
    heat = (raised / raised.max().clamp(min=1e-12)).numpy()
    axis.imshow(
        heat,
        cmap="autumn_r",
        vmin=0,
        vmax=1,
        alpha=0.75 * heat,
        interpolation="bilinear",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )


def _draw_moves(figure: Any, moved: Moved) -> None:
    axes = figure.subplots(len(MOVES), 2 + CHANNELS, width_ratios=(1, 1) + (0.85,) * CHANNELS)
    _bare(axes)
    channels = _telling(moved.features[0, 0], CHANNELS)
    maps = moved.features[0, :, channels]
    tops = maps.amax(dim=(0, 2, 3)).clamp(min=1e-12)
    for row, each in enumerate(MOVES):
        image, log_polar, *others = axes[row]
        image.imshow(moved.images[0, row].numpy(), cmap="gray", vmin=0, vmax=1)
        _cross(image, moved.origins_px[0, row].tolist())
        image.set_ylabel(each.title, fontsize=10)
        log_polar.imshow(moved.polar[0, row].numpy(), cmap="gray", vmin=0, vmax=1)
        _mark_polar(log_polar, moved, row)
        for index, axis in enumerate(others):
            axis.imshow(maps[row, index].numpy(), cmap="magma", vmin=0, vmax=float(tops[index]))
            _mark_cell(axis, maps[0, index], moved.feature_shifts[0, row])
        if row:
            _say(log_polar, moved.polar_shifts[0, row], moved.polar_theory[row])
            _say_features(others[len(others) // 2], moved, row)
    axes[0, 0].set_title("image", fontsize=10)
    axes[0, 1].set_title("log-polar", fontsize=10)
    rows, columns = moved.features.shape[-2:]
    axes[0, 2 + CHANNELS // 2].set_title(
        f"{CHANNELS} of {moved.features.shape[2]} feature maps of the last layer, {rows} × {columns}", fontsize=10
    )
    figure.suptitle(
        "A half turn shifts the last feature maps by half their height, a dilation to the right, a translation not "
        "at all\n"
        "yellow: where the reference has its mark; green: where the measured shift carries it",
        fontsize=12,
    )


def _say(axis: Any, shift: Tensor, theory: Tensor) -> None:
    rows, columns = shift.tolist()
    axis.set_xlabel(f"{rows:.1f} rows, {columns:.1f} columns\ntheory {theory[0]:.1f}, {theory[1]:.1f}", fontsize=8)


def _say_features(axis: Any, moved: Moved, row: int) -> None:
    """The shift of all maps of the digit shown, theory, and the spread over all digits."""
    rows, columns = moved.feature_shifts[0, row].tolist()
    theory = moved.feature_theory[row].tolist()
    low, middle, high = moved.feature_shifts[:, row].quantile(
        torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=0
    )
    axis.set_xlabel(
        f"shift of all maps: {rows:.2f} rows, {columns:.2f} columns; theory {theory[0]:.2f}, {theory[1]:.2f}\n"
        f"median of {len(moved.images)} digits (10 to 90%): {middle[0]:.2f} ({low[0]:.2f} to {high[0]:.2f}) rows, "
        f"{middle[1]:.2f} ({low[1]:.2f} to {high[1]:.2f}) columns",
        fontsize=8,
    )


def _telling(maps: Tensor, count: int) -> list[int]:
    """The channels of maps (C, h, w) whose activity is most in one place, each unlike those before it."""
    spread = maps.flatten(1) - maps.flatten(1).mean(dim=1, keepdim=True)
    energy = spread.square().sum(dim=1)
    unit = spread / energy.sqrt().clamp(min=1e-12)[:, None]
    chosen: list[int] = []
    for _ in range(min(count, len(maps))):
        alike = (unit @ unit[chosen].T).abs().amax(dim=1) if chosen else torch.zeros(len(maps))
        rating = energy * (1 - alike.square())
        rating[chosen] = -1
        chosen.append(int(rating.argmax()))
    return chosen


def _mark_polar(axis: Any, moved: Moved, row: int) -> None:
    """Lines through the centroid of the reference's ink along radius, and through its strongest ray."""
    polar = moved.polar[0, 0]
    ray = int(polar.sum(dim=1).argmax())
    edge = int((polar.amax(dim=0) > 0.5).nonzero().max())
    rows, columns = moved.polar_shifts[0, row].tolist()
    for colour, y, x in ((_YELLOW, ray, edge), (_GREEN, (ray + rows) % len(polar), edge + columns)):
        axis.axhline(y, color=colour, linewidth=1.3)
        axis.axvline(x, color=colour, linewidth=1.3)


def _mark_cell(axis: Any, reference: Tensor, shift: Tensor) -> None:
    """The cell where the reference is strongest, and the place where the measured shift carries it."""
    from matplotlib.patches import Rectangle

    height, width = reference.shape
    peak = int(reference.argmax())
    y, x = peak // width, peak % width
    rows, columns = shift.tolist()
    for colour, top, left in ((_YELLOW, float(y), float(x)), (_GREEN, (y + rows) % height, x + columns)):
        axis.add_patch(Rectangle((left - 0.5, top - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=1.6))
    axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def _cross(axis: Any, place: Sequence[float]) -> None:
    x, y = place
    axis.plot(x, y, "+", markersize=13, markeredgewidth=4, color="black")  # seen on white strokes too
    axis.plot(x, y, "+", markersize=12, markeredgewidth=2, color=_GREEN)


def _bare(axes: Any) -> None:
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
