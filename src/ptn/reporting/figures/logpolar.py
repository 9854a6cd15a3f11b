"""The paper's Figure 1: turns and dilations of a digit, and the shifts they become in its log-polar image."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...geometry import PolarGrid, Similarity, measure_shift, polar_sample, similarity_warp
from .style import GREEN, YELLOW, explain_shift_lines, save

CANVAS = 96
ROTATIONS = (0.0, 40.0, 90.0, 130.0, 200.0, 290.0)
DILATIONS = (1.0, 1.2, 1.5, 1.8, 2.1, 2.4)


@dataclass(frozen=True)
class Shift:
    """What a turn (degrees) or a dilation (factor) did to the log-polar image, beside what theory says.

    Shifts in rows for turns, in columns for dilations.
    """

    kind: str
    amount: float
    measured: float
    theory: float

    @property
    def error(self) -> float:
        return self.measured - self.theory


@dataclass(frozen=True)
class Transformed:
    """A digit under a sequence of transforms: its images and polar images (K, H, W), and the shifts."""

    images: Tensor
    polar: Tensor
    shifts: list[Shift]


def turn(digit: Tensor, degrees: Sequence[float] = ROTATIONS) -> Transformed:
    """`digit` (H, W) in [0, 1] turned by each angle."""
    rotation = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return _transform(digit, rotation, torch.full_like(rotation, 2.0), "rotation", degrees)


def dilate(digit: Tensor, factors: Sequence[float] = DILATIONS) -> Transformed:
    """`digit` (H, W) in [0, 1] enlarged by each factor."""
    scale = torch.tensor(factors, dtype=torch.float64)
    return _transform(digit, torch.zeros_like(scale), scale, "dilation", factors)


def _transform(digit: Tensor, rotation: Tensor, scale: Tensor, kind: str, amounts: Sequence[float]) -> Transformed:
    grid = PolarGrid(CANVAS, CANVAS)
    copies = digit.double().expand(len(amounts), 1, *digit.shape)
    images = similarity_warp(copies, Similarity(rotation, scale), size=(CANVAS, CANVAS), mode="bicubic").clamp(
        0, 1
    )
    polar = polar_sample(images, torch.zeros(len(amounts), 2, dtype=torch.float64), grid)
    found = measure_shift(polar[:1].expand_as(polar), polar)
    per_log_scale = CANVAS / math.log(grid.outer_radius((CANVAS, CANVAS)) / grid.r_min_px)
    shifts = []
    for amount, (rows, columns) in zip(amounts, found.tolist(), strict=True):
        if kind == "rotation":
            theory = amount / 360 * CANVAS
            # rows are known modulo the whole turn: take the copy nearest to theory
            measured = rows + CANVAS * round((theory - rows) / CANVAS)
        else:
            theory = math.log(amount / amounts[0]) * per_log_scale
            measured = columns
        shifts.append(Shift(kind, amount, measured, theory))
    return Transformed(images[:, 0], polar[:, 0], shifts)


def summarise(shifts: Sequence[Shift]) -> list[tuple[str, ...]]:
    """A row per transform over all digits: name, unit, theory, mean measured, and the largest error."""
    rows: list[tuple[str, ...]] = []
    for kind, amount in dict.fromkeys((shift.kind, shift.amount) for shift in shifts if shift.theory):
        same = [shift for shift in shifts if (shift.kind, shift.amount) == (kind, amount)]
        name = f"turned {amount:g}°" if kind == "rotation" else f"enlarged {amount:g}×"
        mean = sum(shift.measured for shift in same) / len(same)
        worst = max((shift.error for shift in same), key=abs)
        unit = "rows" if kind == "rotation" else "columns"
        rows.append((name, unit, f"{same[0].theory:.2f}", f"{mean:.2f}", f"{worst:+.2f}"))
    return rows


def draw(digit: Tensor, path: Path) -> list[Shift]:
    """Write the figure for `digit` (H, W) in [0, 1] and return the shifts it shows."""
    from matplotlib.figure import Figure

    turned, dilated = turn(digit), dilate(digit)
    columns = len(ROTATIONS)
    figure = Figure(figsize=(1.55 * columns, 7.9), layout="constrained")
    axes = figure.subplots(4, columns, gridspec_kw={"hspace": 0.06})
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for row, sequence in ((0, turned), (2, dilated)):
        for column, shift in enumerate(sequence.shifts):
            image, polar = axes[row, column], axes[row + 1, column]
            image.imshow(sequence.images[column].numpy(), cmap="gray", vmin=0, vmax=1)
            polar.imshow(sequence.polar[column].numpy(), cmap="gray", vmin=0, vmax=1)
            _mark(polar, sequence, column)
            name = f"turned {shift.amount:g}°" if shift.kind == "rotation" else f"enlarged {shift.amount:g}×"
            image.set_title(name, fontsize=9)
            unit = "rows" if shift.kind == "rotation" else "columns"
            polar.set_title(f"{shift.measured:z.2f} {unit}\ntheory {shift.theory:.2f}", fontsize=8)
    for row, label in enumerate(("image", "log-polar", "image", "log-polar")):
        axes[row, 0].set_ylabel(f"{label}\n← angle" if row % 2 else label, fontsize=9)
        axes[row, 0].set_xlabel("radius →" if row % 2 else "", fontsize=9)
    explain_shift_lines(figure)
    figure.suptitle("Turning is a vertical shift of the log-polar image, enlarging a horizontal one", fontsize=11)
    save(figure, path)
    return turned.shifts + dilated.shifts


def _mark(axis: Any, sequence: Transformed, index: int) -> None:
    """A yellow line on a landmark of the reference, and a green one where the measured shift carries it."""
    shift = sequence.shifts[index]
    if shift.kind == "rotation":
        start = int(sequence.polar[0].sum(dim=1).argmax())  # the ray with most ink
        line, end = axis.axhline, (start + shift.measured) % CANVAS
    else:
        start = int((sequence.polar[0].amax(dim=0) > 0.5).nonzero().max())  # where the ink ends
        line, end = axis.axvline, start + shift.measured
    line(start, color=YELLOW, linewidth=1.6)
    line(end, color=GREEN, linewidth=1.6)
