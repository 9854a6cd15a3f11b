"""Figures of the pages on unwrapping, registration and segmentation."""

import math
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptn.figures import CNN_COLOR, GREEN, ORIGIN_COLOR, PTN_COLOR, PURPLE, save, show
from ptn.geometry import PolarGrid, origin_px, polar_sample, register
from ptn.models import PolarSegmenter

from .. import segmentation
from ..registration import make_pairs, photograph


def _outline(axes: Any, grid: PolarGrid, size: tuple[int, int], origin: Tensor) -> None:
    """Draws the innermost and the outermost line of a grid, and the first row."""
    (x0, y0) = origin_px(origin, size)[0].tolist()
    x, y = grid.offsets_px(size, dtype=torch.float64)
    x, y = x + x0, y + y0
    for column, color in ((0, GREEN), (-1, PURPLE)):
        line_x, line_y = x[:, column].tolist(), y[:, column].tolist()
        if grid.wraps:
            line_x, line_y = [*line_x, line_x[0]], [*line_y, line_y[0]]
        axes.plot(line_x, line_y, color=color, linewidth=2.2)
    axes.plot(x[0].tolist(), y[0].tolist(), color=ORIGIN_COLOR, linewidth=1.6)
    axes.set(xlim=(-0.5, size[1] - 0.5), ylim=(size[0] - 0.5, -0.5))


def draw_grids(path: Path) -> None:
    """Draws four grids on photographs, and their polar images."""
    from matplotlib.figure import Figure

    linear = partial(PolarGrid, law="linear")
    sector = linear(90, 120, start=math.radians(50), sweep=math.radians(80), r_min_px=20, r_max_px=190)
    retina = torch.nn.functional.avg_pool2d(photograph("retina"), 4)
    # the ellipse of the rim of a cup, found by gradient ascent on the brightness along it
    ellipse = linear(180, 90, r_max_px=122, aspect=0.81, tilt=0.1)
    eye, circles = photograph("chelsea")[:, :, 76:148, 134:206], (-6.0, 1.0)  # the left eye of a cat
    cases = (
        ("sector", photograph("camera")[..., 60:260, 120:320], (0.0, -1.0), sector),
        ("annulus", retina, (0.0, 0.0), linear(180, 90, r_min_px=60, r_max_px=160)),
        ("ellipse", photograph("coffee")[..., :310, 100:500], (-0.0435, -0.281), ellipse),
        ("two circles", eye, (0.0, 0.0), linear(180, 60, r_min_px=10, r_max_px=26, outer_px=circles)),
    )
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    axes = figure.subplots(2, len(cases))
    for (title, image, origin, grid), (above, below) in zip(cases, axes.T, strict=True):
        center = torch.tensor([origin])
        show(above, image[0], title)
        _outline(above, grid, (image.shape[2], image.shape[3]), center)
        show(below, polar_sample(image, center, grid, antialias=True)[0])
        below.set_aspect("auto")
    axes[1, 0].set_ylabel("← angle")
    axes[1, 0].set_xlabel("radius →")
    save(figure, path)


def draw_registration(path: Path) -> None:
    """Draws three pairs of photographs, and the overlay of each after registration."""
    from matplotlib.figure import Figure

    moving, fixed, _ = make_pairs(5)
    chosen = [0, 2, 4]
    moving, fixed = moving[chosen], fixed[chosen]
    result = register(moving, fixed)
    figure = Figure(figsize=(7, 7), layout="constrained")
    axes = figure.subplots(3, 3)
    for index, row in enumerate(axes):
        show(row[0], moving[index], "moving" if index == 0 else "")
        show(row[1], fixed[index], "fixed" if index == 0 else "")
        ours, other = result.warped[index], fixed[index]
        show(row[2], torch.cat((ours, other, ours)), "overlay" if index == 0 else "")
        rotation, scale = math.degrees(result.pose.rotation[index]), float(result.pose.scale[index])  # type: ignore[index]
        row[2].set_xlabel(f"{rotation:.1f}°, ×{scale:.2f}, confidence {float(result.confidence[index]):.2f}")
    save(figure, path)


@cache  # light and dark pages show the same networks
def _segmenter(kind: str) -> nn.Module:
    return segmentation.train(kind, 0, rotate=False)


def draw_segmentation(path: Path) -> None:
    """Trains both networks of the example on upright coins, and draws their outlines on rotated test coins."""
    from matplotlib.figure import Figure

    networks = {kind: _segmenter(kind) for kind in ("polar", "plain")}
    colors = {"polar": PTN_COLOR, "plain": CNN_COLOR}
    degrees = (0, 75, 150, 225, 300)
    coins, rotations = [2 * k + 1 for k in range(5)], torch.tensor(degrees).deg2rad()
    shifts = torch.tensor([[4.0, -6.0], [-8.0, 3.0], [6.0, 6.0], [-5.0, -7.0], [0.0, 8.0]])
    images, masks = segmentation.views(coins, rotations, shifts)
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots(2, len(degrees))
    for (kind, model), row in zip(networks.items(), axes, strict=True):
        with torch.inference_mode():
            logits = model(images)
        for index, panel in enumerate(row):
            show(panel, images[index], f"{degrees[index]}°" if kind == "polar" else "")
            panel.contour(masks[index, 0].numpy(), [0.5], colors=["white"], linewidths=1.2)
            panel.contour(logits[index, 0].numpy(), [0.0], colors=[colors[kind]], linewidths=1.8)
            if isinstance(model, PolarSegmenter):
                origins = model.explain(images[index : index + 1]).origins
                assert origins is not None
                x, y = origin_px(origins, (segmentation.SIZE, segmentation.SIZE))[0].tolist()
                panel.plot([x], [y], "+", color=ORIGIN_COLOR, markersize=9, markeredgewidth=2)
        row[0].set_ylabel(kind)
    save(figure, path)
