"""The paper's picture of ROTSVHN: house numbers turned by any angle, cut from larger photographs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...data import Dataset
from ...errors import InputError
from .style import save

_SHARPEST = 200
"""Digits are shown from so many with the most contrast: among all, many are a blur to the eye."""


def sharpest(dataset: Dataset, wanted: Tensor, count: int) -> Tensor:
    """`count` digits of those that are `wanted`, bool (N,): with contrast, inside their photographs if possible."""
    members = wanted.nonzero()[:, 0]
    if len(members) < count:
        raise InputError(f"{dataset.name} {dataset.split} has too few digits of a kind to show {count}")
    contrast = dataset.images[members].float().std(dim=(1, 2, 3))
    if "frac_outside" in dataset.meta:
        contrast = torch.where(dataset.meta["frac_outside"][members] > 0, 0, contrast)
    sharp = members[contrast.argsort(descending=True)[:_SHARPEST]].sort().values
    # evenly spread over those, which are in the order of the data set
    return sharp[torch.linspace(0, len(sharp) - 1, 2 * count + 1)[1::2].round().long()]


def pick(dataset: Dataset, count: int) -> Tensor:
    """`count` digits of each class, rows (count, classes) of indices."""
    columns = [sharpest(dataset, dataset.labels == label, count) for label in range(len(dataset.classes))]
    return torch.stack(columns, dim=1)


def draw(upright: Dataset, turned: Dataset, wide: Dataset, shrunk: Dataset, path: Path) -> None:
    """Write the figure as a PNG, a column for each class.

    The same digits upright and turned, more turned ones, then some in the wider field, and some shrunk. All four
    are the same digits in the same order.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    chosen = pick(upright, 5)
    same, *others, in_wide, in_small = chosen
    angles = [f"{math.degrees(angle):.0f}°" for angle in turned.meta["rotation"][same].tolist()]
    factors = [f"×{factor:.2f}" for factor in shrunk.meta["scale"][in_small].tolist()]
    blank = [""] * len(same)
    lines: list[tuple[str, Dataset, Tensor, Sequence[str]]] = [
        ("SVHN", upright, same, list(upright.classes)),
        ("ROTSVHN,\nthe same digits", turned, same, angles),
        *((title, turned, rows, blank) for title, rows in zip(("ROTSVHN,\nothers", ""), others, strict=True)),
        ("48 pixels wide", wide, in_wide, blank),
        ("scale 0.6–1", shrunk, in_small, factors),
    ]
    close = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, hspace=0, wspace=0)
    figure = Figure(figsize=(1.06 * len(same) + 0.9, 1.15 * len(lines) + 0.4), layout=close)
    axes = figure.subplots(len(lines), len(same), squeeze=False)
    for line, (title, dataset, rows, captions) in zip(axes, lines, strict=True):
        for axis, index, caption in zip(line, rows.tolist(), captions, strict=True):
            _show(axis, dataset.images[index], caption)
        line[0].set_ylabel(title, fontsize=9)
    figure.suptitle(
        "House numbers turned by any angle: cut from a larger tile, so that no border shows", fontsize=11
    )
    save(figure, path)


def _show(axis: Any, image: Tensor, caption: str) -> None:
    axis.imshow(image.permute(1, 2, 0).numpy())
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    if caption:
        axis.set_title(caption, fontsize=8, pad=2)
