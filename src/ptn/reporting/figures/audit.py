"""A classifier under turns, scales and shifts: how many answers stay, and how equivariant its layers are."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...evaluation import Audit, LayerError, Point
from ...evaluation.consistency import Kind
from .style import BLUE, GREEN, PURPLE, VERMILION, faint_grid, save

_GREY = "0.5"
_TITLES: dict[Kind, str] = {"rotation": "turned by", "scale": "scaled by", "shift": "shifted by (pixels)"}
_LAYER_STYLES = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"))
_INCHES_PER_LAYER = 0.24


def draw(audit: Audit, path: Path) -> None:
    """Write the figure: curves above, layers below where there are any."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(error.layer for error in audit.layers))
    curves = [kind for kind in _TITLES if audit.curve(kind)]
    heights = [3.4] * bool(curves) + [1.1 + _INCHES_PER_LAYER * len(names)] * bool(names)
    figure = Figure(figsize=(11, 0.9 + sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    if curves:
        _draw_curves(parts[0], audit, curves)
    if names:
        _draw_layers(parts[-1], audit.layers, names)
    labels = "" if audit.accuracy is None else f", {audit.accuracy:.1f}% right as they are"
    if audit.accuracy_in_disc is not None:
        labels += f", {audit.accuracy_in_disc:.1f}% through a disc"
    on = f"{audit.data}, " if audit.data else ""
    figure.suptitle(f"{_shortened(audit.model)}\non {on}{audit.images:,} images{labels}", fontsize=12)
    save(figure, path)


def _draw_curves(figure: Any, audit: Audit, kinds: Sequence[Kind]) -> None:
    """A panel for each kind, with one axis of percent for all."""
    widths = [2.2 if kind == "rotation" else 1.0 for kind in kinds]
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False, width_ratios=widths)[0]
    lowest = 100.0
    for axis, kind in zip(axes, kinds, strict=True):
        points = audit.curve(kind)
        amounts = [point.amount for point in points]
        if kind == "rotation" and amounts[0] == 0 and amounts[-1] < 360:
            points, amounts = (*points, points[0]), [*amounts, 360.0]
        for label, values, style in _lines(points):
            axis.plot(amounts, values, label=label, **style)
            lowest = min(lowest, *values)
        _dress(axis, kind, amounts, disc=audit.settings["mask"] == "circle")
    axes[0].set_ylim(_floor(lowest), 100.8)
    axes[0].yaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("% of the images")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=10, ncols=len(labels), loc="outside upper center")


def _lines(points: Sequence[Point]) -> list[tuple[str, list[float], dict[str, Any]]]:
    """Label, values and style of each line in a panel."""
    lines: list[tuple[str, list[float], dict[str, Any]]] = [
        (
            "same answer, only resampled",
            [point.resampling.consistency for point in points],
            {"color": _GREY, "linestyle": "--", "linewidth": 1.3},
        ),
        (
            "same answer as before",
            [point.transformed.consistency for point in points],
            {"color": BLUE, "marker": "o", "markersize": 5.5, "linewidth": 2.6},
        ),
    ]
    right = [point.transformed.accuracy for point in points if point.transformed.accuracy is not None]
    if right:
        # thinner, so that it does not hide the other where they are equal
        lines.append(
            ("right answer", right, {"color": VERMILION, "marker": "s", "markersize": 3, "linewidth": 1.2})
        )
    return lines


def _dress(axis: Any, kind: Kind, amounts: Sequence[float], *, disc: bool) -> None:
    """Label a panel; `disc`: turned images are seen through one, even at 0°."""
    axis.set_xlabel(f"{_TITLES[kind]}, all seen through a disc" if disc and kind == "rotation" else _TITLES[kind])
    faint_grid(axis)
    if kind == "rotation" and amounts[-1] - amounts[0] > 180:
        axis.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)])
        axis.set_xlim(min(-4, amounts[0] - 4), max(364, amounts[-1] + 4))
    elif kind == "scale":
        axis.set_xscale("log")
        axis.set_xticks([], minor=True)
        axis.set_xticks(amounts, [f"{amount:g}" for amount in amounts], fontsize=8)


def _floor(lowest: float) -> float:
    """Where the axis starts: a multiple of ten below everything that is shown."""
    return max(0.0, 10 * math.floor((lowest - 1) / 10))


def _draw_layers(figure: Any, layers: Sequence[LayerError], names: Sequence[str]) -> None:
    """A line for each layer, from the image above to the scores below; hollow marks are resampling alone."""
    axis = figure.subplots()
    largest = 0.0
    transforms = list(dict.fromkeys((error.kind, error.amount) for error in layers))
    for index, ((kind, amount), (color, marker)) in enumerate(zip(transforms, _LAYER_STYLES, strict=False)):
        name = f"turned {amount:g}°" if kind == "rotation" else f"scaled ×{amount:g}"
        found = [error for error in layers if (error.kind, error.amount) == (kind, amount)]
        # a little apart, so that equal numbers do not hide each other
        rows = [names.index(error.layer) + 0.2 * (index - (len(transforms) - 1) / 2) for error in found]
        for attribute, face, label in (("error", color, name), ("resampling", "none", f"{name}, only resampled")):
            values = [getattr(error, attribute) for error in found]
            shown = [math.nan if value is None else value for value in values]
            axis.plot(shown, rows, marker, color=color, markerfacecolor=face, markersize=5, label=label)
            largest = max(largest, *(value for value in values if value is not None), 0.0)
    first = {error.layer: error.relation for error in reversed(layers)}
    marks = {"image": "", "polar": "  (polar)", "same": ""}
    axis.set_yticks(range(len(names)), [f"{name}{marks[first[name]]}" for name in names], fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(-0.02 * max(largest, 0.1), 1.05 * max(largest, 0.1))
    axis.set_xlabel("equivariance error: distance of the map from the transformed map, relative")
    faint_grid(axis)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=3, loc="outside upper center")


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"
