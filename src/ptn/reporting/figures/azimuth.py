"""Accuracy against azimuth: how networks fare on test shapes turned about z, from the records of their runs."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...training.recipes import is_outdated
from ...training.records import Record
from ..tables import newest
from .style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, faint_grid, save

UNTURNED = ", no rotation aug."
"""How the rows end of networks that were trained without turning the shapes."""

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Curve:
    """The accuracy in % at each angle, the mean over `n` seeds of a row; `turned`: trained on turned shapes."""

    title: str
    turned: bool
    degrees: tuple[float, ...]
    accuracy: tuple[float, ...]
    n: int


def curves(records: Iterable[Record]) -> list[Curve]:
    """A curve for each row whose records have accuracies by azimuth, in the order in which they come.

    Of runs that were trained again the newest counts, of runs that were trained otherwise than their recipe says
    now none does.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.row is not None and "azimuth_accuracy" in record.metrics and not is_outdated(record.config):
            groups.setdefault(record.row, []).append(record)
    made = []
    for row, group in groups.items():
        runs = newest(group)
        degrees = tuple(runs[0].metrics["azimuth_deg"])
        if any(tuple(run.metrics["azimuth_deg"]) != degrees for run in runs):
            raise InputError(f"the runs of {row} were measured at different angles: they have no common curve")
        accuracy = zip(*(run.metrics["azimuth_accuracy"] for run in runs), strict=True)
        means = tuple(statistics.fmean(values) for values in accuracy)
        made.append(Curve(row.removesuffix(UNTURNED), not row.endswith(UNTURNED), degrees, means, len(runs)))
    return made


def draw(records: Iterable[Record], path: Path) -> list[Curve]:
    """Write the figure and return its curves: those trained on turned shapes to the left, others right."""
    from matplotlib.figure import Figure

    made = curves(records)
    if not made:
        raise InputError("no record has accuracies by azimuth: train the recipes of modelnet40 first")
    panels = [("trained on shapes turned at random", True), ("trained on shapes as they come", False)]
    panels = [panel for panel in panels if any(curve.turned == panel[1] for curve in made)]
    figure = Figure(figsize=(5.6 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    titles = list(dict.fromkeys(curve.title for curve in made))
    lowest = min(min(curve.accuracy) for curve in made)
    for axis, (heading, turned) in zip(axes, panels, strict=True):
        for curve in made:
            if curve.turned == turned:
                place = titles.index(curve.title)
                around = (*curve.degrees, curve.degrees[0] + 360), (*curve.accuracy, curve.accuracy[0])
                label = f"{curve.title} ({statistics.fmean(curve.accuracy):.1f}% in the mean, {_seeds(curve.n)})"
                style = {"color": _COLOURS[place % 6], "marker": _MARKERS[place % 6]}
                axis.plot(*around, markersize=4, label=label, **style)
        axis.set_title(heading, fontsize=10)
        axis.set_xlim(-4, 364)
        axis.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)])
        axis.set_xlabel("test shapes turned about z by")
        axis.set_ylim(10 * math.floor((lowest - 3) / 10), 100.5)
        faint_grid(axis)
        axis.legend(frameon=False, fontsize=8, loc="lower center")
    axes[0].set_ylabel("instance accuracy (%)")
    save(figure, path)
    return made


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
