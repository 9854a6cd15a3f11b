"""The layers of a Polar Transformer Network with their sizes, applied to an image (the paper's Figure 3)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptn.figures import BLUE, GREEN, HEATMAP_CMAP, INK, PURPLE, mark_origin, save
from ptn.geometry import origin_px
from ptn.layers import ConvBlock, normalize_heatmap
from ptn.models import PolarNetwork, count_parameters

_SIDE = 17.0  # of the image, in units of the figure; feature maps have the same scale
_UPPER, _LOWER = 13.0, -10.0  # y of the origin predictor and of the classifier
_DEPTH = (0.186, 0.234)  # direction in which the width of a map is drawn
_LEGEND = """A block is a convolution, batch norm and ReLU.
Height and depth of a box are those of its feature
map (sizes below); its thickness grows with the
number of channels (above)."""

Shape = tuple[int, int, int]
Point = tuple[float, float]


def trace(model: PolarNetwork, image: Tensor) -> tuple[list[Shape], list[Shape], Any]:
    """Returns the output shapes (C, h, w) of the blocks of predictor and classifier, and the explanation."""
    predictor: Any = model.transformer.predictor
    shapes: tuple[list[Shape], list[Shape]] = ([], [])
    hooks = [
        block.register_forward_hook(lambda _, __, out, into=into: into.append(tuple(out.shape[1:])))
        for part, into in zip((predictor, model.classifier), shapes, strict=True)
        for block in part.modules()
        if isinstance(block, ConvBlock)
    ]
    explanation = model.explain(image[None])
    for hook in hooks:
        hook.remove()
    return *shapes, explanation


def draw(model: PolarNetwork, image: Tensor, path: Path, *, title: str) -> None:
    """Draws `model`, which has a learned origin, applied to `image` (1, H, W) in [0, 1]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_aspect("equal")
    right = _draw_flow(axes, model, image)
    axes.set(xlim=(-2, right), ylim=(-23, 25))
    figure.suptitle(f"{title}: {count_parameters(model):,} parameters", fontsize=12)
    save(figure, path)


def _draw_flow(axes: Any, model: PolarNetwork, image: Tensor) -> float:
    """Draws everything from left to right and returns the right edge."""
    predictor, classifier, explanation = trace(model, image)
    height, width = image.shape[-2:]
    unit = _SIDE / max(height, width)
    _picture(axes, image, (0, _LOWER), unit, f"image\n{width} × {height}")
    center = width * unit / 2
    _arrow(axes, (center, _LOWER + height * unit / 2 + 0.5), (center, _UPPER), (21, _UPPER))
    heading = f"origin predictor, {len(predictor)} blocks"
    x = _blocks(axes, predictor, (22, _UPPER), unit, PURPLE, heading, 9.4)
    _arrow(axes, (x, _UPPER), (x + 3.2, _UPPER))

    heatmap = normalize_heatmap(explanation.heatmaps[0])
    rows, columns = heatmap.shape
    scale = _SIDE * 0.62 / max(rows, columns)
    x += 3.7
    _picture(axes, heatmap[None], (x, _UPPER), scale, "heatmap", HEATMAP_CMAP)
    column, row = origin_px(explanation.origins[0], (rows, columns)).tolist()
    mark_origin(axes, x + (column + 0.5) * scale, _UPPER + (rows / 2 - row - 0.5) * scale, size=12)
    x += columns * scale

    middle = max(x + 3, 46.0)
    _arrow(axes, (x + 0.5, _UPPER), (middle, _UPPER), (middle, _LOWER + 6.2))
    origin = ", ".join(f"{value:+.2f}" for value in explanation.origins[0].tolist())
    axes.text(middle + 0.8, _UPPER - 4, f"centroid = origin\n({origin})", fontsize=9, va="center")
    _arrow(axes, (width * unit + 0.5, _LOWER), (middle - 6.2, _LOWER))
    _polar_grid(axes, middle)
    x = middle + 10
    _arrow(axes, (middle + 6, _LOWER), (x - 0.5, _LOWER))

    polar = explanation.polar_images[0]
    angles, radii = polar.shape[-2:]
    scale = _SIDE / max(angles, radii)
    _picture(axes, polar, (x, _LOWER), scale, f"log-polar image\n{angles} angles × {radii} radii")
    x += radii * scale
    _arrow(axes, (x + 0.5, _LOWER), (x + 4, _LOWER))
    x += 4.8
    axes.text(x, _UPPER + 9.6, _LEGEND, fontsize=9, va="top")
    heading = f"classifier, {len(classifier)} blocks, periodic in the angle"
    x = _blocks(axes, classifier, (x, _LOWER), unit, BLUE, heading, 12.6)
    _arrow(axes, (x, _LOWER), (x + 4, _LOWER))
    return _probabilities(axes, explanation.logits[0].softmax(dim=0).tolist(), x + 5)


def _blocks(
    axes: Any, shapes: Sequence[Shape], place: Point, unit: float, color: str, heading: str, above: float
) -> float:
    """Draws a box per feature map, a heading `above` their middle, and returns the right edge."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Polygon

    x, y = place
    axes.text(x, y + above, heading, fontsize=10, va="bottom")
    previous: Shape | None = None
    for shape in shapes:
        channels, height, width = shape
        resized = previous is None or previous[1:] != shape[1:]
        if previous is not None and resized:
            x += previous[2] * unit * _DEPTH[0]  # clear of the larger box before it
        thick, (dx, dy) = 0.28 * math.sqrt(channels), (width * unit * _DEPTH[0], width * unit * _DEPTH[1])
        low, high, right = y - height * unit / 2, y + height * unit / 2, x + thick
        faces = {
            1.0: [(x, low), (right, low), (right, high), (x, high)],
            1.35: [(x, high), (right, high), (right + dx, high + dy), (x + dx, high + dy)],
            0.7: [(right, low), (right + dx, low + dy), (right + dx, high + dy), (right, high)],
        }
        for light, corners in faces.items():
            shade = (torch.tensor(to_rgb(color)) * light).clamp(max=1).tolist()
            axes.add_patch(Polygon(corners, facecolor=shade, edgecolor=INK, linewidth=0.5))
        if previous is None or previous[0] != channels:
            axes.text(x + thick / 2 + dx, high + dy + 0.5, str(channels), fontsize=8, ha="center")
        if resized:
            axes.text(x + thick / 2, low - 0.7, f"{height}×{width}", fontsize=8, ha="center", va="top")
        previous = shape
        x += thick + 1.5
    return x + shapes[-1][2] * unit * _DEPTH[0]


def _picture(axes: Any, image: Tensor, place: Point, unit: float, caption: str, cmap: str = "gray") -> None:
    """Draws `image` (1, h, w) in [0, 1] with the middle of its left edge at `place`, and a caption below."""
    from matplotlib.patches import Rectangle

    (x, y), (height, width) = place, (side * unit for side in image.shape[1:])
    axes.imshow(image[0].numpy(), cmap=cmap, vmin=0, vmax=1, extent=(x, x + width, y - height / 2, y + height / 2))
    axes.add_patch(Rectangle((x, y - height / 2), width, height, fill=False, edgecolor=INK, linewidth=0.8))
    axes.text(x + width / 2, y - height / 2 - 0.8, caption, fontsize=10, ha="center", va="top")


def _polar_grid(axes: Any, x: float) -> None:
    """Draws rays, and circles whose radii grow by a constant factor."""
    from matplotlib.patches import Circle

    for radius in (0.9, 1.6, 2.8, 5.0):
        axes.add_patch(Circle((x, _LOWER), radius, fill=False, edgecolor=GREEN, linewidth=1.2))
    for ray in range(12):
        angle = ray * math.pi / 6
        end = (x + 5 * math.cos(angle), _LOWER + 5 * math.sin(angle))
        axes.plot([x, end[0]], [_LOWER, end[1]], color=GREEN, linewidth=0.9)
    axes.text(x, _LOWER - 6.4, "polar transformer", fontsize=10, ha="center", va="top")


def _probabilities(axes: Any, probabilities: Sequence[float], x: float) -> float:
    """Draws the probabilities of the digits as bars and returns the right edge."""
    step, count = 2.1, len(probabilities)
    for index, value in enumerate(probabilities):
        best = value == max(probabilities)
        y = _LOWER + step * (count / 2 - index - 0.5)
        axes.barh(y, 9 * value, 0.72 * step, x + 2.6, color=GREEN if best else BLUE)
        axes.text(x + 2.1, y, str(index), fontsize=8, ha="right", va="center")
        if best:
            axes.text(x + 3 + 9 * value, y, f"{100 * value:.1f}%", fontsize=8, va="center")
    low, high = _LOWER - step * count / 2, _LOWER + step * count / 2
    axes.plot([x + 2.6] * 2, [low, high], color=INK, linewidth=0.8)
    axes.text(x + 5, low - 0.8, "probabilities", fontsize=10, ha="center", va="top")
    return x + 17


def _arrow(axes: Any, *points: Point) -> None:
    """Draws a line through `points` with a head at the last."""
    axes.plot(*zip(*points[:-1], strict=True), color=INK, linewidth=1.3, solid_capstyle="round")
    arrow = axes.annotate("", points[-1], points[-2], arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0})
    arrow.arrow_patch.set(color=axes.yaxis.label.get_color(), linewidth=1.3)
