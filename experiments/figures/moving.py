"""Animation: a digit moves, rotates and grows, and its log-polar image stays, shifts down, shifts right."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptn.figures import GREEN, mark_origin
from ptn.files import atomic_path
from ptn.geometry import Similarity, origin_px, similarity_warp
from ptn.models import PolarNetwork

from .panels import label_rows, polar_landmarks, show

SIZE = 42
STEPS = {"move": 11, "rotate": 12, "grow": 10}
"""Number of frames of each part."""

_TITLES = {
    "move": "Translation: the origin follows, the log-polar image stays",
    "rotate": "Rotation: the log-polar image shifts along the angle",
    "grow": "Scaling: the log-polar image shifts along the radius",
}
_SMALL, _LARGE = 0.85, 1.2
_MILLISECONDS = 150


def poses() -> tuple[list[str], Tensor, Tensor, Tensor]:
    """Returns the part, rotation, scale and shift in pixels of each frame. Every part ends where it begins."""
    kinds, rotation, scale, shift = [], [], [], []
    for kind, count in STEPS.items():
        for step in range(count):
            phase = 2 * math.pi * step / count
            swing = 0.5 - 0.5 * math.cos(phase)
            kinds.append(kind)
            rotation.append(phase if kind == "rotate" else 0.0)
            scale.append(_SMALL * (_LARGE / _SMALL) ** swing if kind == "grow" else _SMALL)
            shift.append((7 * math.sin(phase), 6 * math.sin(2 * phase)) if kind == "move" else (0.0, 0.0))
    rotations, scales, shifts = (torch.tensor(values, dtype=torch.float64) for values in (rotation, scale, shift))
    return kinds, rotations, scales, shifts


def draw(digit: Tensor, model: PolarNetwork, path: Path) -> None:
    """Writes the animation of `digit` (28, 28) in [0, 1] as a looping WebP; `model` takes 42×42 gray images."""
    first, *others = _render(digit, model)
    options = {"duration": _MILLISECONDS, "loop": 0, "quality": 45, "method": 6, "minimize_size": True}
    with atomic_path(path) as temporary:
        first.save(temporary, "WEBP", save_all=True, append_images=others, **options)


def _render(digit: Tensor, model: PolarNetwork) -> Iterator[Any]:
    """Yields each frame as a PIL image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    size = (SIZE, SIZE)
    kinds, rotation, scale, shift = poses()
    copies = digit.double().expand(len(kinds), 1, *digit.shape)
    images = similarity_warp(copies, Similarity(rotation, scale, shift), size=size, mode="bicubic")
    images = images.clamp(0, 1).float()
    explanation: Any = model.explain(images)
    # Rows and columns where theory puts the landmarks of the first frame.
    grid: Any = model.transformer.grid
    row, edge = polar_landmarks(explanation.polar_images[0, 0])
    rows = (row + rotation / (2 * math.pi) * grid.angles) % grid.angles
    radius = grid.radius_at(torch.tensor(edge, dtype=torch.float64), size)
    columns = grid.column_at(radius * scale / scale[0], size)

    figure = Figure(figsize=(5.6, 3.3), layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    show(left, images[0])
    show(right, explanation.polar_images[0])
    for axes in (left, right):
        axes.images[0].set_interpolation("bilinear")
    marks = mark_origin(left, 0, 0, size=16)
    label_rows([[right]], ["log-polar"])
    row_line, column_line = (line(0, color=GREEN, linewidth=2) for line in (right.axhline, right.axvline))
    title = figure.suptitle(_TITLES["move"], fontsize=12)
    left.set_xlabel("prediction", fontsize=9)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout of the first frame is kept
    for index, kind in enumerate(kinds):
        left.images[0].set_data(images[index, 0].numpy())
        right.images[0].set_data(explanation.polar_images[index, 0].numpy())
        x, y = origin_px(explanation.origins[index], size).tolist()
        for mark in marks:
            mark.set_data([x], [y])
        row_line.set(ydata=[rows[index]] * 2, visible=kind == "rotate")
        column_line.set(xdata=[columns[index]] * 2, visible=kind == "grow")
        title.set_text(_TITLES[kind])
        probability, digit_class = explanation.logits[index].softmax(dim=0).max(dim=0)
        left.set_xlabel(f"prediction: {int(digit_class)} ({float(probability):.0%})", fontsize=9)
        canvas.draw()
        yield Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
