"""Accuracy against how far test images or shapes are turned: curves from records, and panels of them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...training.records import Record
from ..tables import newest
from .style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, faint_grid, save

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Curve:
    """The accuracy in % at each angle, the mean over `n` seeds of a row; `turned`: trained on turned samples."""

    title: str
    turned: bool
    degrees: tuple[float, ...]
    accuracy: tuple[float, ...]
    n: int


@dataclass(frozen=True)
class Panel:
    """Curves under a heading."""

    heading: str
    curves: Sequence[Curve]


def mean_curve(title: str, records: Sequence[Record], *, turned: bool, metric: str) -> Curve:
    """The mean over the newest run of each seed of what records have as `metric`_accuracy at `metric`_deg."""
    runs = newest(records)
    degrees = tuple(runs[0].metrics[f"{metric}_deg"])
    if any(tuple(run.metrics[f"{metric}_deg"]) != degrees for run in runs):
        raise InputError(f"the runs of {title} were measured at different angles: they have no common curve")
    accuracy = zip(*(run.metrics[f"{metric}_accuracy"] for run in runs), strict=True)
    return Curve(title, turned, degrees, tuple(statistics.fmean(values) for values in accuracy), len(runs))


def draw_panels(rows: Sequence[Sequence[Panel]], path: Path, *, xlabel: str, ylabel: str) -> None:
    """Write rows of panels, all with the same axes."""
    from matplotlib.figure import Figure

    width = max(map(len, rows))
    figure = Figure(figsize=(5.6 * width, 4.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), width, squeeze=False, sharey=True)
    everything = [curve for row in rows for panel in row for curve in panel.curves]
    titles = list(dict.fromkeys(curve.title for curve in everything))
    lowest = min(min(curve.accuracy) for curve in everything)
    for row, line in zip(rows, axes, strict=True):
        for axis in line[len(row) :]:
            axis.set_visible(False)
        for panel, axis in zip(row, line, strict=False):
            _plot(axis, panel, titles)
            axis.set_xlabel(xlabel)
            axis.set_ylim(10 * math.floor((lowest - 3) / 10), 100.5)
        line[0].set_ylabel(ylabel)
    save(figure, path)


def _plot(axis: Any, panel: Panel, titles: Sequence[str]) -> None:
    for curve in panel.curves:
        place = titles.index(curve.title)
        around = (*curve.degrees, curve.degrees[0] + 360), (*curve.accuracy, curve.accuracy[0])
        label = f"{curve.title} ({statistics.fmean(curve.accuracy):.1f}% in the mean, {_seeds(curve.n)})"
        axis.plot(*around, markersize=4, label=label, color=_COLOURS[place % 6], marker=_MARKERS[place % 6])
    axis.set_title(panel.heading, fontsize=10)
    axis.set_xlim(-4, 364)
    axis.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)])
    faint_grid(axis)
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
