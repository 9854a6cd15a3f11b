"""Accuracy by pose and error by training time, from the records of runs, and cost by size, from benchmarks."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ptn.demo.inspect import count_correct
from ptn.demo.models import Pair, Samples
from ptn.errors import InputError
from ptn.figures import (
    BLUE,
    CNN_COLOR,
    GREEN,
    ORANGE,
    PTN_COLOR,
    PURPLE,
    SKY,
    VERMILION,
    angle_axis,
    faint_grid,
    save,
)
from ptn.geometry import Similarity
from ptn.training.records import Record

from ..published import row_title
from ..recipes import is_outdated
from ..tables import Result, build_tables, load_records, newest

_COLORS, _MARKERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY), "osD^vP"


class Curve(NamedTuple):
    """Accuracy in % at each angle or other amount, the mean over `n` seeds."""

    amounts: tuple[float, ...]
    accuracy: tuple[float, ...]
    n: int


Panels = Mapping[str, Mapping[str, str]]
"""The recipe of each curve by its title, by the heading of the panel; two panels per row."""


def _svhn(dataset: str) -> dict[str, str]:
    return {"PTN-ResNet32": f"{dataset}/ptn_resnet32/paper", "ResNet32": f"{dataset}/resnet32/paper"}


ANGLE_PANELS: Panels = {
    "trained on upright digits: SVHN": _svhn("svhn"),
    "trained on rotated digits: ROTSVHN": _svhn("rotsvhn"),
    "trained on upright digits: SVHN− (without 6 and 9)": _svhn("svhn-minus"),
    "trained on rotated digits: ROTSVHN− (without 6 and 9)": _svhn("rotsvhn-minus"),
}
AZIMUTH_PANELS: Panels = {
    "trained on randomly rotated shapes": {
        "Cylindrical Transformer": "modelnet40/cylindrical/modern+",
        "Cartesian control": "modelnet40/ccnn_3d/modern+",
        "Fixed axis": "modelnet40/cylindrical/modern+/fixed-axis",
        "Cylindrical Transformer strong": "modelnet40/cylindrical_l/modern+",
    },
    "trained on shapes in their original pose": {
        "Cylindrical Transformer": "modelnet40/cylindrical/modern",
        "Cartesian control": "modelnet40/ccnn_3d/modern",
        "Fixed axis": "modelnet40/cylindrical/modern/fixed-axis",
    },
}


def mean_curve(records: Iterable[Record], recipe: str, metric: str, unit: str = "_deg") -> Curve:
    """Returns the mean of `metric`_accuracy over the newest run of each seed of `recipe`; amounts are in `unit`."""
    matching = (
        r for r in records if r.recipe == recipe and f"{metric}_accuracy" in r.metrics and not is_outdated(r)
    )
    runs = [record.metrics for record in newest(matching)]
    accuracy = zip(*(run[f"{metric}_accuracy"] for run in runs), strict=True)
    return Curve(tuple(runs[0][f"{metric}{unit}"]), tuple(map(statistics.fmean, accuracy)), len(runs))


def draw(panels: Panels, metric: str, path: Path, labels: tuple[str, str]) -> None:
    """Draws panels with common axes, labeled (x, y)."""
    from matplotlib.figure import Figure

    records = load_records()
    recipes = [recipe for panel in panels.values() for recipe in panel.values()]
    curves = {recipe: mean_curve(records, recipe, metric) for recipe in recipes}
    rows = len(panels) // 2
    figure = Figure(figsize=(11.2, 4.6 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
    lowest = min(min(curve.accuracy) for curve in curves.values())
    for axes, (heading, panel) in zip(grid.flat, panels.items(), strict=True):
        for index, (title, recipe) in enumerate(panel.items()):
            degrees, accuracy, n = curves[recipe]
            label = f"{title} (mean {statistics.fmean(accuracy):.1f}%, {n} seed{'s' * (n > 1)})"
            style = {"markersize": 4, "label": label, "color": _COLORS[index], "marker": _MARKERS[index]}
            axes.plot((*degrees, degrees[0] + 360), (*accuracy, accuracy[0]), **style)
        axes.set_title(heading, fontsize=10)
        axes.set_xlabel(labels[0])
        axes.set_ylim(10 * math.floor((lowest - 3) / 10), 100.5)
        angle_axis(axes)
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    for axes in grid[:, 0]:
        axes.set_ylabel(labels[1])
    save(figure, path)


def draw_poses(pair: Pair, samples: Samples, path: Path) -> None:
    """Draws the accuracy of a pair on sample images against their rotation, their size and their shift."""
    scale, width, total = pair.digit_scale, pair.size[1], len(samples.labels)
    panels: dict[str, tuple[list[float], Callable[[float], Similarity]]] = {
        "rotated by": ([*range(0, 361, 15)], lambda x: Similarity(math.radians(x), scale)),
        "scaled by": ([tenths / 10 for tenths in range(5, 16)], lambda x: Similarity(0.0, scale * x)),
        "shifted (px)": ([*range(0, width // 4 + 1)], lambda x: Similarity(0.0, scale, (x, -x))),
    }
    with _pose_axes(
        f"Trained on upright digits of one size only: {total:,} test digits", list(panels), path
    ) as grid:
        for axes, (amounts, pose) in zip(grid, panels.values(), strict=True):
            counts = [count_correct(pair, samples, pose(amount)) for amount in amounts]
            for key, name, color in (("polar", "Polar network", PTN_COLOR), ("plain", "Plain CNN", CNN_COLOR)):
                accuracy = [100 * (count[key] or 0) / total for count in counts]
                axes.plot(amounts, accuracy, color=color, linewidth=2.4, label=name)


@contextmanager
def _pose_axes(title: str, labels: Sequence[str], path: Path) -> Iterator[Any]:
    """Context manager: axes for the accuracy against rotation, size and shift; at the end the figure is saved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    grid = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1.1, 1.1))
    for axes, label in zip(grid, labels, strict=True):
        faint_grid(axes)
        axes.set_xlabel(label, fontsize=11)
    yield grid
    angle_axis(grid[0])
    grid[0].set_ylabel("correct (%)", fontsize=11)
    grid[0].set_ylim(0, 101)
    grid[0].legend(frameon=False, fontsize=11, loc="center", bbox_to_anchor=(0.5, 0.62))
    figure.suptitle(title, fontsize=12)
    save(figure, path)


UPRIGHT = "mnist-anywhere/{}/modern"
_OF_PAIR = ("ptn_b", "ccnn_b")
_OF_PEERS = ("p4cnn", "hnet", "ric_cnn", "e2cnn")


def upright_networks(records: Iterable[Record]) -> dict[str, str]:
    """Returns the recipes of PTN-B, CCNN-B and the best peer, trained upright, by title.

    Empty if records of the first two are missing. The best peer has the smallest error on rotated, shifted and
    scaled digits.
    """
    errors: dict[str, list[float]] = {}
    for record in records:
        if record.recipe == UPRIGHT.format(record.model) and record.test_error is not None:
            errors.setdefault(record.model, []).append(record.test_error)
    if not errors.keys() >= set(_OF_PAIR):
        return {}
    best = sorted(errors.keys() & set(_OF_PEERS), key=lambda name: statistics.fmean(errors[name]))[:1]
    return {str(row_title(f"upright.{name}")): UPRIGHT.format(name) for name in (*_OF_PAIR, *best)}


def draw_upright(networks: Mapping[str, str], path: Path) -> None:
    """Draws the accuracies of networks trained upright, from records, against rotation, size and shift."""
    records = load_records()
    metrics = {"rotated by": ("angle", "_deg"), "scaled by": ("scale", ""), "shifted (px)": ("shift", "_px")}
    title = "Trained on upright digits of one size in the middle: 2,000 test digits"
    with _pose_axes(title, list(metrics), path) as grid:
        for axes, (metric, unit) in zip(grid, metrics.values(), strict=True):
            for (name, recipe), color in zip(networks.items(), (PTN_COLOR, CNN_COLOR, GREEN), strict=False):
                amounts, accuracy, _ = mean_curve(records, recipe, metric, unit)
                if metric == "angle":
                    amounts, accuracy = (*amounts, amounts[0] + 360), (*accuracy, accuracy[0])
                axes.plot(amounts, accuracy, color=color, linewidth=2.4, label=name)


def draw_time(path: Path) -> None:
    """Draws error against seconds of training, from the records of the table `time`: one line for each network."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    (table,) = build_tables(load_records(), ["time"])
    points: dict[str, list[tuple[float, float, Result]]] = {}
    for id, forms in table.results.items():
        for result in forms.values():
            if result.mean is not None:
                seconds = result.metrics["train_seconds"][0]
                points.setdefault(id.split(".")[1], []).append((seconds, result.mean, result))
    if not points:
        raise InputError("no records of the table time")
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    faint_grid(axes)
    for (name, line), color, marker in zip(points.items(), _COLORS, _MARKERS, strict=False):
        times, errors, results = zip(*sorted(line, key=lambda point: point[0]), strict=True)
        title = str(row_title(f"time.{name}.1"))
        memory = results[-1].metrics.get("peak_memory_gb")
        label = f"{title}: {results[-1].params:,} parameters" + (f", {memory[0]:.1f} GB" if memory else "")
        axes.plot(times, errors, color=color, marker=marker, linewidth=2, label=label)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel(f"seconds of training on {', '.join(table.devices)}", fontsize=11)
    axes.set_ylabel("test error (%)", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    save(figure, path)


def draw_cost(curves: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> None:
    """Draws the curves of the benchmark suite `scaling`: milliseconds against batch, image size and angles."""
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(curve["what"] for curve in curves))
    columns = list(dict.fromkeys(curve["axis"] for curve in curves))
    figure = Figure(figsize=(3.6 * len(columns), 2.9 * len(rows) + 0.4), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for curve in curves:
        _plot_cost(grid[rows.index(curve["what"])][columns.index(curve["axis"])], curve)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _plot_cost(axes: Any, curve: Mapping[str, Any]) -> None:
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    start = curve["start"]
    for index, (name, milliseconds) in enumerate(curve["ms"].items()):
        style = {"marker": "os^D"[index], "color": (PTN_COLOR, PURPLE, GREEN, ORANGE)[index], "label": name}
        axes.plot(curve["at"], milliseconds, markersize=4, linewidth=1.2 if index else 2, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(curve["at"], [str(value) for value in curve["at"]])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=12))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.minorticks_off()
    axes.tick_params(labelsize=9)
    fixed = {"batch": f"{start['size']}² pixels", "image size": f"batch {start['batch']}"}
    both = f"batch {start['batch']}, {start['size']}² pixels"
    axes.set_xlabel(f"{curve['axis']}  ({fixed.get(curve['axis'], both)})", fontsize=9)
    axes.set_ylabel("ms", fontsize=9)
    axes.set_title(curve["what"], fontsize=10)
    faint_grid(axes)
    axes.legend(fontsize=8, frameon=False)
