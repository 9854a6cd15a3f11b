"""What a network learned on SIM2MNIST: origins among clutter, and feature maps that shift as theory says.

The paper's visualisation. Above, test images with heatmap and origin, and their log-polar images. Below, a digit
that is turned, moved and enlarged, and what becomes of its log-polar image and of the last feature maps.
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
from ...geometry import Similarity, measure_shift, origin_px, similarity_warp
from ...layers import PolarTransformer
from ...models.networks import PolarNetwork
from .style import SKY, YELLOW, save

CHANNELS = 5
"""Feature maps that are shown."""

_LIGHT_GREEN = "#00c08b"
"""Green that is seen on black and among the colours of a heatmap."""


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
    Move("moved", shift_px=(28.0, -22.0)),
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
        Similarity(rotation.repeat(count), scale.repeat(count), shift.repeat(count, 1)),
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

    polar_shifts, polar_theory = shifts(_edges(seen.polar_images))
    feature_shifts, feature_theory = shifts(seen.feature_maps)
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


def _edges(polar: Tensor) -> Tensor:
    """The slopes of polar images (N, C, H, W) along angle and radius: (N, 2C, H, W).

    Near the origin a stroke fills the image, and white fits on white wherever it is: it is edges that tell a shift.
    """
    along_radius = torch.nn.functional.pad(polar.diff(dim=-1), (0, 1))
    return torch.cat((polar.roll(-1, dims=-2) - polar, along_radius), dim=1)


def draw(model: PolarNetwork, test: Dataset, digits: Tensor, path: Path, *, title: str) -> Moved:
    """Write the figure, and return what was measured.

    Args:
        test: images with `meta["center"]`; the first of each class is shown.
        digits: (N, 28, 28) in [0, 1]; the first is shown, and all are measured.
        title: what the network is called.
    """
    from matplotlib.figure import Figure

    if not isinstance(model.transformer, PolarTransformer) or model.transformer.predictor is None:
        raise InputError("this figure is of networks that learn an origin: take weights of ptn_s, ptn_b or ptn_l")
    moved = move(model, digits)
    figure = Figure(figsize=(11, 9.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.9, 5.5))
    _draw_samples(parts[0], model, test, title)
    _draw_moves(parts[1], moved)
    save(figure, path)
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
    axes = figure.subplots(3, len(chosen), squeeze=False)
    _bare(axes)
    for column, (origin, center) in enumerate(zip(origins, centers, strict=True)):
        image, heat, log_polar = axes[:, column]
        image.imshow(images[column, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        image.plot(*center, "o", markersize=9, markerfacecolor="none", markeredgewidth=1.3, color=SKY)
        _cross(image, origin)
        _show_heat(heat, images[column, 0], seen.heatmaps[column])
        heat.plot(*origin, "+", markersize=9, markeredgewidth=1.2, color=_LIGHT_GREEN)
        log_polar.imshow(seen.polar_images[column, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        answer, label = int(seen.logits[column].argmax()), int(test.labels[chosen[column]])
        mark = "" if answer == label else f" ✗ (a {test.classes[label]})"
        image.set_title(f"{test.classes[answer]}{mark}", fontsize=10)
    for axis, name in zip(axes[:, 0], ("test image", "heatmap", "log-polar\n← angle"), strict=True):
        axis.set_ylabel(name, fontsize=9)
    axes[-1, 0].set_xlabel("radius →", fontsize=9)
    figure.suptitle(
        f"{title} on SIM2MNIST: its answers, its origins (green +) and the true centres (blue ○) of test digits",
        fontsize=11,
    )


def _show_heat(axis: Any, image: Tensor, heatmap: Tensor) -> None:
    """A heatmap, black at its lowest and yellow at its highest, with a shade of its image."""
    from matplotlib import colormaps

    height, width = image.shape
    raised = heatmap - heatmap.min()
    share = raised / raised.max().clamp(min=1e-12)
    fine = torch.nn.functional.interpolate(share[None, None], size=(height, width))[0, 0]
    shade = 0.3 * image[..., None].numpy()
    axis.imshow(shade + (1 - shade) * colormaps["inferno"](fine.numpy())[..., :3])


def _draw_moves(figure: Any, moved: Moved) -> None:
    axes = figure.subplots(len(MOVES), 3 + CHANNELS, width_ratios=(1,) * (2 + CHANNELS) + (2.4,))
    _bare(axes)
    channels = _telling(moved.features[0, 0], CHANNELS)
    maps = moved.features[0, :, channels]
    tops = maps.amax(dim=(0, 2, 3)).clamp(min=1e-12)
    for row, each in enumerate(MOVES):
        image, log_polar, *others, words = axes[row]
        image.imshow(moved.images[0, row].numpy(), cmap="gray", vmin=0, vmax=1)
        _cross(image, moved.origins_px[0, row].tolist())
        image.set_ylabel(each.title, fontsize=10)
        log_polar.imshow(moved.polar[0, row].numpy(), cmap="gray", vmin=0, vmax=1)
        _mark_polar(log_polar, moved.polar[0, 0], moved.polar_theory[row] if row else None)
        for index, axis in enumerate(others):
            axis.imshow(maps[row, index].numpy(), cmap="magma", vmin=0, vmax=float(tops[index]))
            _mark_cell(axis, maps[0, index], moved.feature_theory[row] if row else None)
        words.set_axis_off()
        if row:
            _say_shifts(words, moved, row)
        else:
            legend = (
                "yellow: where the reference is strongest\n"
                "green: where that should be, by theory\n"
                f"medians: of {len(moved.images)} test digits"
            )
            words.text(0, 0.5, legend, fontsize=9, va="center")
    height, width = moved.features.shape[-2:]
    axes[0, 0].set_title("image, its origin", fontsize=9)
    axes[0, 1].set_title("log-polar image", fontsize=9)
    axes[0, 2 + CHANNELS // 2].set_title(
        f"{CHANNELS} of the {moved.features.shape[2]} feature maps of the last layer, {height} × {width}",
        fontsize=9,
    )
    axes[-1, 1].set_ylabel("← angle", fontsize=9)
    axes[-1, 1].set_xlabel("radius →", fontsize=9)
    figure.suptitle(
        "Half a turn shifts the last feature maps by half their height, a dilation to the right, a move not at all",
        fontsize=11,
    )


def _say_shifts(axis: Any, moved: Moved, row: int) -> None:
    """Rows and columns measured, and in brackets those of theory, of the digit shown and in the middle of all.

    And how many of all follow theory, since a median does not say how far the others are off.
    """
    kinds = (
        ("last layer", moved.feature_shifts[:, row], moved.feature_theory[row], 2),
        ("log-polar", moved.polar_shifts[:, row], moved.polar_theory[row], 1),
    )
    lines = [["measured (theory)", "rows", "columns"]]
    for name, shifts, theory, places in kinds:
        for title, pair in ((name, shifts[0]), ("    median", shifts.median(dim=0).values)):
            found = [f"{_number(m, places)} ({t:.{places}f})" for m, t in zip(pair.tolist(), theory, strict=True)]
            lines.append([title, *found])
    near = [f"{100 * float(share):.0f}%" for share in follow_theory(moved)[:, row]]
    lines.append([f"within ½ cell: {near[0]} of digits, log-polar {near[1]}", "", ""])
    for index, (what, rows, columns) in enumerate(lines):
        y = 0.95 - 0.185 * index
        axis.text(0, y, what, fontsize=8.5, va="center")
        axis.text(0.73, y, rows, fontsize=8.5, va="center", ha="right")
        axis.text(1.1, y, columns, fontsize=8.5, va="center", ha="right")


def follow_theory(moved: Moved) -> Tensor:
    """The share of digits whose shift is within half a cell of the last layer of theory, rows and columns: (2, M).

    First of the feature maps, then of the log-polar images, by the same angle and the same dilation.
    """
    shares = []
    for maps, shifts, theory in (
        (moved.features, moved.feature_shifts, moved.feature_theory),
        (moved.polar, moved.polar_shifts, moved.polar_theory),
    ):
        cell = torch.tensor(maps.shape[-2:], dtype=torch.float64) / torch.tensor(moved.features.shape[-2:])
        shares.append(((shifts - theory).abs() <= cell / 2).all(dim=2).double().mean(dim=0))
    return torch.stack(shares)


def _number(value: float, places: int) -> str:
    """`value` with a true minus sign, and none before zero."""
    return f"{round(value, places) + 0.0:.{places}f}".replace("-", "−")


def _telling(maps: Tensor, count: int) -> list[int]:
    """The channels of maps (C, h, w) that vary most from place to place, each unlike those before it."""
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


def _mark_polar(axis: Any, reference: Tensor, shift: Tensor | None) -> None:
    """Lines along the reference's ray with most ink and where its ink ends, and where a shift carries them."""
    ray = int(reference.sum(dim=1).argmax())
    edge = int((reference.amax(dim=0) > 0.5).nonzero().max())
    marks = [(YELLOW, float(ray), float(edge))]
    if shift is not None:
        rows, columns = shift.tolist()
        marks.append((_LIGHT_GREEN, (ray + rows) % len(reference), edge + columns))
    for colour, y, x in marks:
        axis.axhline(y, color=colour, linewidth=1.4)
        axis.axvline(x, color=colour, linewidth=1.4)


def _mark_cell(axis: Any, reference: Tensor, shift: Tensor | None) -> None:
    """The cell where the reference is strongest, and the place where a shift (rows, columns) carries it."""
    from matplotlib.patches import Rectangle

    height, width = reference.shape
    row, column = divmod(int(reference.argmax()), width)
    marks = [(YELLOW, float(row), float(column))]
    if shift is not None:
        rows, columns = shift.tolist()
        marks.append((_LIGHT_GREEN, (row + rows) % height, column + columns))
    for colour, y, x in marks:
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=1.8))
    axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def _cross(axis: Any, place: Sequence[float]) -> None:
    x, y = place
    axis.plot(x, y, "+", markersize=10, markeredgewidth=3.2, color="black")  # seen on white strokes too
    axis.plot(x, y, "+", markersize=9, markeredgewidth=1.6, color=_LIGHT_GREEN)


def _bare(axes: Any) -> None:
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
