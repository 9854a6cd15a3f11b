"""How cost grows with the batch, the image and the angles: curves on logarithmic axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .style import GREEN, PURPLE, SKY, VERMILION, faint_grid, save

# ours, and the others in their order
_COLOURS = (GREEN, VERMILION, SKY, PURPLE)
_MARKS = "os^D"


@dataclass(frozen=True)
class Curve:
    """Milliseconds of each contender where `axis` has the values `at`; `what` is measured."""

    what: str
    axis: str
    at: Sequence[int]
    ms: dict[str, Sequence[float]]
    fixed: str


def draw(curves: Sequence[Curve], path: Path, *, title: str) -> None:
    """Write the curves: a row for each thing measured, a column for each axis."""
    from matplotlib.figure import Figure

    whats = list(dict.fromkeys(curve.what for curve in curves))
    axes = list(dict.fromkeys(curve.axis for curve in curves))
    figure = Figure(figsize=(3.6 * len(axes), 2.9 * len(whats) + 0.4), layout="constrained")
    grid = figure.subplots(len(whats), len(axes), squeeze=False)
    for curve in curves:
        _plot(grid[whats.index(curve.what)][axes.index(curve.axis)], curve)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _plot(axis: Any, curve: Curve) -> None:
    for index, (name, milliseconds) in enumerate(curve.ms.items()):
        axis.plot(
            curve.at,
            milliseconds,
            marker=_MARKS[index],
            markersize=4,
            linewidth=2 if index == 0 else 1.2,
            color=_COLOURS[index],
            label=name,
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(curve.at, [str(value) for value in curve.at], fontsize=8)
    axis.minorticks_off()
    axis.tick_params(labelsize=8)
    axis.set_xlabel(f"{curve.axis}  ({curve.fixed})", fontsize=8)
    axis.set_ylabel("ms", fontsize=8)
    axis.set_title(curve.what, fontsize=9)
    faint_grid(axis)
    axis.legend(fontsize=7, frameon=False)
