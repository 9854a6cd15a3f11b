"""The paper's Figure 3: a Polar Transformer Network at work on an image, every size read off the network itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...geometry import origin_px
from ...layers import PolarTransformer, WrapConv2d
from ...layers import ConvBlock, ResidualBlock
from ...models import Model
from ...models.networks import Explanation, PolarNetwork
from ...models.zoo import count_parameters
from .style import BLUE, GREEN, ORANGE, YELLOW, ink, save

_SIDE = 17.0  # of the image in the picture, in its own units; feature maps are drawn to the same scale
_GAP = 1.5
_SLANT = 0.3  # how much of a map's width goes up and to the right
_TILT = (0.62, 0.78)
_LEGEND = """A block is a convolution, batch norm and ReLU.
Boxes are as high and deep as their maps (sizes
below), and the thicker the more channels they
have (numbers above)."""


@dataclass(frozen=True)
class Stage:
    """A block of a network and the shape (C, h, w) of the map that came out of it."""

    kind: str
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Reading:
    """What happened to one image (C, H, W) on its way through a network; `wraps`: around the angle, too."""

    image: Tensor
    predictor: tuple[Stage, ...]
    classifier: tuple[Stage, ...]
    wraps: bool
    seen: Explanation
    parameters: int


def read(model: Model, image: Tensor) -> Reading:
    """Send `image` (C, H, W) in [0, 1] through a network that learns its origin, and note what comes out where."""
    predictor = (
        model.transformer.predictor
        if isinstance(model, PolarNetwork) and isinstance(model.transformer, PolarTransformer)
        else None
    )
    if not isinstance(model, PolarNetwork) or predictor is None:
        raise InputError("the architecture is drawn of a network with a learned origin: take ptn_s, ptn_b or ptn_l")
    stages: dict[str, list[Stage]] = {"predictor": [], "classifier": []}
    hooks = []
    for place, part in (("predictor", predictor), ("classifier", model.classifier)):
        for block in part.modules():
            if isinstance(block, ConvBlock | ResidualBlock):
                hooks.append(block.register_forward_hook(_noting(stages[place])))
    try:
        seen = model.explain(image[None])
    finally:
        for hook in hooks:
            hook.remove()
    wraps = any(isinstance(module, WrapConv2d) for module in model.classifier.modules())
    return Reading(
        image, tuple(stages["predictor"]), tuple(stages["classifier"]), wraps, seen, count_parameters(model)
    )


def _noting(stages: list[Stage]) -> Any:
    def note(block: nn.Module, _: object, out: Tensor) -> None:
        _, channels, height, width = out.shape
        kind = "residual block" if isinstance(block, ResidualBlock) else "block"
        stages.append(Stage(kind, (channels, height, width)))

    return note


def draw(model: Model, image: Tensor, path: Path, *, title: str, classes: Sequence[str]) -> Reading:
    """Write the figure of `model` at work on `image` (C, H, W) in [0, 1], and return what it shows."""
    from matplotlib.figure import Figure

    reading = read(model, image)
    figure = Figure(figsize=(13, 5.1), layout="constrained")
    axis = figure.subplots()
    axis.set_axis_off()
    axis.set_aspect("equal")
    right = _draw_flow(axis, reading, classes)
    axis.set(xlim=(-2, right), ylim=(-23, 25))
    figure.suptitle(f"{title}: {reading.parameters:,} parameters", fontsize=12)
    save(figure, path)
    return reading


def _draw_flow(axis: Any, reading: Reading, classes: Sequence[str]) -> float:
    """Everything from left to right; returns where it ends."""
    seen = reading.seen
    assert seen.origins is not None
    assert seen.heatmaps is not None
    assert seen.polar_images is not None
    height, width = reading.image.shape[-2:]
    unit = _SIDE / max(height, width)
    upper, lower = 13.0, -10.0  # the heights of the two ways

    _picture(axis, reading.image, (0, lower), unit)
    _label(axis, width * unit / 2, lower - height * unit / 2, f"image\n{width} × {height}")

    x = 22.0
    _arrow(axis, (width * unit / 2, lower + height * unit / 2 + 0.5), (width * unit / 2, upper), (x - 1, upper))
    told = f"origin predictor, {_count(reading.predictor)}"
    _label(axis, x, max(9.4, _above(reading.predictor, unit)) + upper, told, above=True, start=True)
    x = _blocks(axis, reading.predictor, x, upper, unit, ORANGE)
    heat = seen.heatmaps[0]
    scale = _SIDE * 0.62 / max(heat.shape)
    _arrow(axis, (x, upper), (x + 3.2, upper))
    x += 3.7
    _picture(axis, heat[None] / heat.amax().clamp(min=1e-12), (x, upper), scale, colours="magma")
    _label(axis, x + heat.shape[1] * scale / 2, upper - heat.shape[0] * scale / 2, "heatmap")
    origin = origin_px(seen.origins[0], (heat.shape[0], heat.shape[1]))
    _cross(axis, x + (float(origin[0]) + 0.5) * scale, upper + (heat.shape[0] / 2 - float(origin[1]) - 0.5) * scale)

    middle = 46.0
    end = x + heat.shape[1] * scale
    _arrow(axis, (end + 0.5, upper), (max(end + 3, middle), upper), (max(end + 3, middle), lower + 6.2))
    middle = max(end + 3, middle)
    place = ", ".join(f"{value:+.2f}" for value in seen.origins[0].tolist())
    axis.text(middle + 0.8, upper - 4, f"its centroid,\nthe origin\n({place})", fontsize=9, va="center")
    _arrow(axis, (width * unit + 0.5, lower), (middle - 6.2, lower))
    _rays(axis, middle, lower)
    _label(axis, middle, lower - 5.6, "polar transformer")

    polar = seen.polar_images[0]
    angles, radii = polar.shape[-2:]
    x = middle + 10
    _arrow(axis, (middle + 6, lower), (x - 0.5, lower))
    scale = _SIDE / max(angles, radii)
    _picture(axis, polar, (x, lower), scale)
    _label(
        axis, x + radii * scale / 2, lower - angles * scale / 2, f"log-polar image\n{angles} angles × {radii} radii"
    )
    x += radii * scale
    _arrow(axis, (x + 0.5, lower), (x + 4, lower))
    x += 4.8
    told = f"classifier, {_count(reading.classifier)}{' that go around the angle' if reading.wraps else ''}"
    _label(axis, x, max(12.6, _above(reading.classifier, unit)) + lower, told, above=True, start=True)
    axis.text(x, upper + 9.6, _LEGEND, fontsize=9, va="top")
    x = _blocks(axis, reading.classifier, x, lower, unit, BLUE)
    _arrow(axis, (x, lower), (x + 4, lower))
    return _scores(axis, seen.logits[0].softmax(dim=0), classes, x + 5, lower)


def _above(stages: Sequence[Stage], unit: float) -> float:
    """How far above the middle of their boxes there is room for a heading: above the numbers of channels."""
    return (
        max(height * unit / 2 + width * unit * _SLANT * _TILT[1] for _, height, width in (s.shape for s in stages))
        + 2.6
    )


def _count(stages: Sequence[Stage]) -> str:
    kind = stages[-1].kind
    return f"{len(stages)} {kind}s" if len({stage.kind for stage in stages}) == 1 else f"{len(stages)} blocks"


def _blocks(axis: Any, stages: Sequence[Stage], x: float, y: float, unit: float, colour: str) -> float:
    """Boxes as high and deep as the maps, thicker with more channels; labels where something changes."""
    before: tuple[int, int, int] | None = None
    for stage in stages:
        channels, height, width = stage.shape
        thick = 0.28 * math.sqrt(channels)
        slant = width * unit * _SLANT
        if before is not None and before[1:] != stage.shape[1:]:
            x += before[2] * unit * _SLANT * _TILT[0]  # clear of the larger one, and of what is written below it
        _box(axis, (x, y), (thick, height * unit, slant), colour)
        if before is None or before[0] != channels:
            top = y + height * unit / 2 + slant * _TILT[1] + 0.5
            axis.text(x + thick / 2 + slant * _TILT[0], top, str(channels), fontsize=8, ha="center")
        if before is None or before[1:] != stage.shape[1:]:
            below = y - height * unit / 2 - 0.7
            axis.text(x + thick / 2, below, f"{height}×{width}", fontsize=8, ha="center", va="top")
        before = stage.shape
        x += thick + _GAP
    return x + (before[2] * unit * _SLANT * _TILT[0] if before else 0.0)


def _box(axis: Any, middle_left: tuple[float, float], size: tuple[float, float, float], colour: str) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Polygon

    x, y = middle_left
    thick, height, slant = size
    dx, dy = slant * _TILT[0], slant * _TILT[1]
    low, high = y - height / 2, y + height / 2
    faces = {
        1.0: [(x, low), (x + thick, low), (x + thick, high), (x, high)],
        1.35: [(x, high), (x + thick, high), (x + thick + dx, high + dy), (x + dx, high + dy)],
        0.7: [(x + thick, low), (x + thick + dx, low + dy), (x + thick + dx, high + dy), (x + thick, high)],
    }
    base = torch.tensor(to_rgb(colour))
    for light, corners in faces.items():
        shade = (base * light).clamp(max=1).tolist()
        axis.add_patch(Polygon(corners, facecolor=shade, edgecolor=ink(), linewidth=0.5))


def _picture(axis: Any, image: Tensor, place: tuple[float, float], unit: float, colours: str = "gray") -> None:
    """`image` (C, h, w) in [0, 1] with the middle of its left edge at `place`."""
    _, height, width = image.shape
    x, y = place
    shown = image.permute(1, 2, 0) if len(image) == 3 else image[0]
    extent = (x, x + width * unit, y - height * unit / 2, y + height * unit / 2)
    axis.imshow(shown.clamp(0, 1).numpy(), cmap=colours, vmin=0, vmax=1, extent=extent)
    left, right, low, high = extent
    axis.plot([left, right, right, left, left], [low, low, high, high, low], color=ink(), linewidth=0.8)


def _rays(axis: Any, x: float, y: float) -> None:
    """The polar grid: rays, and circles at radii that grow by the same factor."""
    from matplotlib.patches import Circle

    for radius in (0.9, 1.6, 2.8, 5.0):
        axis.add_patch(Circle((x, y), radius, fill=False, edgecolor=GREEN, linewidth=1.2))
    for ray in range(12):
        angle = ray * math.pi / 6
        axis.plot([x, x + 5 * math.cos(angle)], [y, y + 5 * math.sin(angle)], color=GREEN, linewidth=0.9)


def _scores(axis: Any, probabilities: Tensor, classes: Sequence[str], x: float, y: float) -> float:
    """A bar for each class, at most a dozen of them, the likeliest in green; returns where they end."""
    count = min(len(classes), 12)
    step = min(2.1, 21 / count)
    best = int(probabilities.argmax())
    for place in range(count):
        top = y + step * (count / 2 - place)
        length = 9 * float(probabilities[place])
        colour = GREEN if place == best else BLUE
        axis.barh(top - step / 2, length, 0.72 * step, x + 2.6, color=colour)
        axis.text(x + 2.1, top - step / 2, classes[place], fontsize=8, ha="right", va="center")
        if place == best:
            says = f"{100 * float(probabilities[place]):.1f}%"
            axis.text(x + 3 + length, top - step / 2, says, fontsize=8, va="center")
    axis.plot([x + 2.6] * 2, [y - step * count / 2, y + step * count / 2], color=ink(), linewidth=0.8)
    _label(axis, x + 5, y - step * count / 2, "scores")
    return x + 17


def _label(axis: Any, x: float, y: float, text: str, *, above: bool = False, start: bool = False) -> None:
    axis.text(
        x,
        y if above else y - 0.8,
        text,
        fontsize=10,
        ha="left" if start else "center",
        va="bottom" if above else "top",
    )


def _arrow(axis: Any, *points: tuple[float, float]) -> None:
    """A line through `points` with a head at the last."""
    axis.plot(*zip(*points[:-1], strict=True), color=ink(), linewidth=1.3, solid_capstyle="round")
    style = {"arrowstyle": "-|>", "color": ink(), "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", points[-1], points[-2], arrowprops=style)


def _cross(axis: Any, x: float, y: float) -> None:
    axis.plot(x, y, "+", markersize=13, markeredgewidth=4, color="black")
    axis.plot(x, y, "+", markersize=12, markeredgewidth=2, color=YELLOW)
