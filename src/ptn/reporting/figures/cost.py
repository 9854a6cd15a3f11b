"""How cost grows with the batch, the image and the angles: curves on logarithmic axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .style import GREEN, PURPLE, SKY, VERMILION, faint_grid, save

# ours, and the others in their order
_COLOURS = (GREEN, VERMILION, SKY, PURPLE)
_MARKS = "os^D"
# from this ratio on, powers of ten are enough to read values by
_WIDE = 300


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
    axis.set_xticks(curve.at, [str(value) for value in curve.at])
    ticks = _round_numbers([value for values in curve.ms.values() for value in values])
    axis.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axis.minorticks_off()
    axis.tick_params(labelsize=9)
    axis.set_xlabel(f"{curve.axis}  ({curve.fixed})", fontsize=9)
    axis.set_ylabel("ms", fontsize=9)
    axis.set_title(curve.what, fontsize=10)
    faint_grid(axis)
    axis.legend(fontsize=8, frameon=False)


def _round_numbers(values: Sequence[float]) -> list[float]:
    """Numbers to read `values` by on a logarithmic axis, the outermost beyond them: 1, 10, 100, or 1, 2, 5, 10."""
    lowest, highest = min(values), max(values)
    decades = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    steps = (1, 2, 5) if highest / lowest < _WIDE else (1,)
    rounds = [float(f"{step}e{decade}") for decade in decades for step in steps]
    first = max(number for number in rounds if number <= lowest)
    last = min(number for number in rounds if number >= highest)
    return [number for number in rounds if first <= number <= last]
