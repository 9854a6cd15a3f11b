"""Images of ROTSVHN, and the origins that a network predicts in them."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ptn.data import Dataset
from ptn.data.dataset import subset
from ptn.evaluation.classify import origin_offsets_px
from ptn.figures import GREEN, INK, PURPLE, faint_grid, save, show
from ptn.models import PolarNetwork

from .panels import draw_explanations

_SHARPEST = 200  # images are chosen among those with the highest contrast
_COLUMNS = 10
_MEASURED = 4000


def sharpest(dataset: Dataset, candidates: Tensor, count: int) -> Tensor:
    """Returns the indices of `count` images with high contrast, inside their photograph, of `candidates` (N,)."""
    members = candidates.nonzero()[:, 0]
    contrast = dataset.images[members].float().std(dim=(1, 2, 3))
    contrast[dataset.meta["frac_outside"][members] > 0] = 0
    sharp = members[contrast.argsort(descending=True)[:_SHARPEST]].sort().values
    return sharp[torch.linspace(0, len(sharp) - 1, 2 * count + 1)[1::2].round().long()]


def draw_rotsvhn(upright: Dataset, rotated: Dataset, wide: Dataset, shrunk: Dataset, path: Path) -> None:
    """Draws digits of every class: upright, rotated, in a wider field, and shrunk.

    All four sets contain the same digits in the same order.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    classes = range(len(upright.classes))
    columns = [sharpest(upright, upright.labels == label, 5) for label in classes]
    same, more, still_more, in_wide, in_shrunk = torch.stack(columns, dim=1)
    angles = [f"{math.degrees(angle):.0f}°" for angle in rotated.meta["rotation"][same].tolist()]
    factors = [f"×{factor:.2f}" for factor in shrunk.meta["scale"][in_shrunk].tolist()]
    blank = [""] * len(same)
    rows: list[tuple[str, Dataset, Tensor, list[str]]] = [
        ("SVHN", upright, same, list(upright.classes)),
        ("ROTSVHN,\nthe same digits", rotated, same, angles),
        ("ROTSVHN,\nothers", rotated, more, blank),
        ("", rotated, still_more, blank),
        ("48 pixels wide", wide, in_wide, blank),
        ("scale 0.6–1", shrunk, in_shrunk, factors),
    ]
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, hspace=0, wspace=0)
    figure = Figure(figsize=(1.06 * len(same) + 0.9, 1.15 * len(rows) + 0.4), layout=layout)
    grid = figure.subplots(len(rows), len(same), squeeze=False)
    for line, (title, dataset, indices, captions) in zip(grid, rows, strict=True):
        for axes, index, caption in zip(line, indices.tolist(), captions, strict=True):
            show(axes, dataset.images[index])
            axes.set_title(caption, fontsize=8, pad=2)
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(title, fontsize=9)
    figure.suptitle("House numbers rotated by any angle, cut from larger photographs, without borders", fontsize=11)
    save(figure, path)


def neighbors(dataset: Dataset) -> Tensor:
    """Returns how many digits, 0 to 2, are next to each one in its photograph: int64 (N,)."""
    same = (dataset.meta["image_id"][1:] == dataset.meta["image_id"][:-1]).long()
    return F.pad(same, (1, 0)) + F.pad(same, (0, 1))


def draw_origins(model: PolarNetwork, title: str, digits: Dataset, path: Path) -> None:
    """Draws predicted origins in test images with several digits, and their distance from the center."""
    from matplotlib.figure import Figure

    count = neighbors(digits)
    chosen = sharpest(digits, count > 0, _COLUMNS)
    images = digits.images[chosen].float() / 255
    explanation = model.explain(images)
    figure = Figure(figsize=(11.5, 6.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    draw_explanations(parts[0], images, explanation, digits.labels[chosen], digits.classes)
    some = torch.linspace(0, len(digits) - 1, min(_MEASURED, len(digits))).long()
    distance = origin_offsets_px(model, subset(digits, some)).norm(dim=1)
    _draw_distances(parts[1], distance, count[some])
    figure.suptitle(f"Origins of {title} in images with neighboring digits", fontsize=12)
    save(figure, path)


def _draw_distances(figure: Any, distance: Tensor, neighbor_count: Tensor) -> None:
    """Draws the cumulative distribution of distances by the number of neighbors."""
    axes = figure.subplots()
    names = ("alone in its photograph", "one neighbor", "two neighbors")
    for value, (name, color) in enumerate(zip(names, (INK, GREEN, PURPLE), strict=True)):
        ordered = distance[neighbor_count == value].sort().values
        if not len(ordered):
            continue
        share = 100 * torch.arange(1, len(ordered) + 1) / len(ordered)
        label = f"{name}: median {ordered.median():.1f} px ({len(ordered):,} digits)"
        axes.plot(ordered.numpy(), share.numpy(), color=color, label=label)
    axes.set(xlim=(0, max(float(distance.quantile(0.995)), 0.1)), ylim=(0, 100), ylabel="digits within it (%)")
    axes.set_xlabel("distance of the origin from the center of the digit's box (pixels)")
    faint_grid(axes)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
