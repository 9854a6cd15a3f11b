"""Figures of the library and the style that all figures share: colors and origin marks."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .files import atomic_path
from .geometry import PolarGrid, Similarity, measure_shift, origin_px, polar_sample, similarity_warp
from .layers import normalize_heatmap

if TYPE_CHECKING:
    from PIL.Image import Image

    from .evaluation import Audit, LayerError
    from .models import Explanation

# The palette of Okabe and Ito: distinguishable with color vision deficiency, readable on white and on black.
BLUE, VERMILION, GREEN, YELLOW = "#0072b2", "#d55e00", "#009e73", "#f0e442"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"
PTN_COLOR, CNN_COLOR, ORIGIN_COLOR = BLUE, VERMILION, YELLOW
INK = "#1f2328"
HEATMAP_CMAP = "inferno"

_HEAT_RGB, _HEAT_OPACITY = (255, 70, 0), 0.65
_CAPTION_COLOR, _CAPTION_BACKGROUND = "#e6edf3", "#0d1117"
_DOTS_PER_INCH = 160  # twice the width at which figures are shown
_DARK_PAGE, _DARK_INK = "#0f1318", "#e8ecf1"
# Colors of lines and text on a dark page; those of a light page would be too dark there.
_ON_DARK = {BLUE: SKY, VERMILION: "#f0a030", INK: _DARK_INK}
_SAVE_OPTIONS: dict[str, Any] = {
    "webp": {"pil_kwargs": {"quality": 65, "method": 6}},
    "svg": {"metadata": {"Date": None}},
}


@contextmanager
def paper(*, dark: bool = False) -> Iterator[None]:
    """Context manager that sets the colors of text, lines and background. Text stays text in SVG files."""
    from matplotlib import rc_context

    inked = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "legend.labelcolor")
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "ptn"} | dict.fromkeys(
        inked, _DARK_INK if dark else INK
    )
    if dark:
        settings |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _DARK_PAGE)
    with rc_context(settings):
        yield


def recolor(figure: Any) -> None:
    """Replaces the dark colors of lines, texts and patches by light ones if the style is that of a dark page."""
    from matplotlib import rcParams
    from matplotlib.colors import to_hex

    if rcParams["text.color"] != _DARK_INK:
        return
    for artist in figure.findobj():
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            read = getattr(artist, f"get_{name}", None)
            value = read() if read else None
            if isinstance(value, str | tuple):
                try:
                    light = _ON_DARK.get(to_hex(value))
                except ValueError:  # "none", or a name that depends on another artist
                    continue
                if light is not None:
                    getattr(artist, f"set_{name}")(light)


def faint_grid(axes: Any) -> None:
    """Adds faint grid lines and removes the upper and right spines."""
    axes.grid(color="0.5", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark_origin(axes: Any, x: float, y: float, *, color: str = ORIGIN_COLOR, size: float = 14) -> list[Any]:
    """Draws a cross with a black outline at (x, y) in data coordinates and returns its two lines."""
    outline = axes.plot([x], [y], "+", markersize=size + 1, markeredgewidth=4, color="black")
    return [*outline, *axes.plot([x], [y], "+", markersize=size, markeredgewidth=2, color=color)]


def show(
    axes: Any, image: Tensor, title: str = "", *, cmap: str = "gray", limits: tuple[float, float] = (0, 1)
) -> None:
    """Shows an image (H, W), (1, H, W) or (3, H, W), uint8 or floats in [0, 1], without ticks."""
    values = image.float() / 255 if image.dtype == torch.uint8 else image
    values = values.permute(1, 2, 0).clamp(0, 1) if values.dim() == 3 else values
    axes.imshow(values.numpy(), cmap=cmap, vmin=limits[0], vmax=limits[1])
    axes.set_title(title, fontsize=9)
    axes.set(xticks=[], yticks=[])


def explain_shift_lines(figure: Any) -> None:
    """Adds a legend below the figure for yellow reference lines and green shifted lines."""
    from matplotlib.lines import Line2D

    meanings = {YELLOW: "a landmark of the first image", GREEN: "the landmark moved by the measured shift"}
    lines = [Line2D([], [], color=color, linewidth=1.6, label=label) for color, label in meanings.items()]
    legend = figure.legend(
        handles=lines, loc="outside lower center", ncols=2, fontsize=9, facecolor="black", labelcolor="white"
    )
    legend.get_frame().set(alpha=1, edgecolor="black")


def save(figure: Any, path: Path) -> None:
    """Writes `figure` as .png, .webp or .svg; equal figures give equal files."""
    kind = path.suffix.removeprefix(".")
    recolor(figure)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=_DOTS_PER_INCH, **_SAVE_OPTIONS.get(kind, {}))


def overlay(
    image: Tensor,
    origin: tuple[float, float] | None = None,
    heatmap: Tensor | None = None,
    *,
    caption: str = "",
    side_px: int = 384,
) -> "Image":
    """Returns a PIL image: the image enlarged, its heatmap in red, a cross at its origin, a caption below.

    Args:
        image: uint8 (C, H, W), gray or color.
        origin: (x, y) in [-1, 1].
        heatmap: (h, w) of any size.
        side_px: approximate length of the longer side.
    """
    from PIL import Image, ImageDraw, ImageFont

    factor = max(1, round(side_px / max(image.shape[1:])))
    pixels = image.expand(3, -1, -1).float().repeat_interleave(factor, dim=1).repeat_interleave(factor, dim=2)
    height, width = pixels.shape[1:]
    if heatmap is not None:
        heat = normalize_heatmap(heatmap)[None, None]
        opacity = _HEAT_OPACITY * F.interpolate(heat, (height, width), mode="bilinear", align_corners=False)[0]
        pixels = pixels * (1 - opacity) + pixels.new_tensor(_HEAT_RGB)[:, None, None] * opacity
    picture = Image.new("RGB", (width, height + 26), _CAPTION_BACKGROUND)
    picture.paste(Image.fromarray(pixels.round().byte().permute(1, 2, 0).contiguous().numpy()), (0, 0))
    draw = ImageDraw.Draw(picture)
    if origin is not None:
        x, y = (origin[0] + 1) / 2 * width, (origin[1] + 1) / 2 * height
        for color, thickness in (("black", 5), (ORIGIN_COLOR, 2)):
            draw.line((x - 12, y, x + 12, y), fill=color, width=thickness)
            draw.line((x, y - 12, x, y + 12), fill=color, width=thickness)
    font = ImageFont.load_default(16)
    while caption and font.getlength(caption) > width - 8:
        caption = caption[:-1]
    draw.text((4, height + 3), caption, fill=_CAPTION_COLOR, font=font)
    return picture


@dataclass(frozen=True)
class QuickstartResult:
    """A network of the quickstart figure: its test error in %, its predictions, its accuracy in % at each angle."""

    title: str
    error: float
    predictions: Sequence[int]
    accuracies: Sequence[float]


def draw_quickstart(
    path: Path,
    images: Tensor,
    labels: Sequence[int],
    explanation: "Explanation",
    networks: tuple[QuickstartResult, QuickstartResult],
    *,
    angles: Sequence[float],
    note: str = "",
) -> None:
    """Writes the quickstart figure: images with their origins and log-polar images; accuracy against rotation.

    Args:
        images: (K, 1, H, W) in [0, 1], with their labels and the polar network's explanation.
        networks: the polar and the plain network.
        angles: of `QuickstartResult.accuracies`, in degrees from 0 to less than 360.
        note: added to the title of the accuracies.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1)
    above, below = parts
    assert explanation.origins is not None
    assert explanation.polar_images is not None
    origins = origin_px(explanation.origins, (images.shape[-2], images.shape[-1])).tolist()
    axes = above.subplots(2, len(images), squeeze=False)
    for column, (x, y) in enumerate(origins):
        image = axes[0, column]
        show(image, images[column, 0])
        show(axes[1, column], explanation.polar_images[column, 0])
        mark_origin(image, x, y)
        for line, (network, color) in enumerate(zip(networks, (PTN_COLOR, CNN_COLOR), strict=True)):
            wrong = "" if network.predictions[column] == labels[column] else " ✗"
            text = f"{network.title}: {network.predictions[column]}{wrong}"
            position = {"xycoords": "axes fraction", "xytext": (0, 16 - 12 * line), "textcoords": "offset points"}
            image.annotate(text, (0.5, 1), **position, ha="center", fontsize=9, color=color)
    axes[0, 0].set_ylabel("test digit,\n+ origin", fontsize=9)
    _label_log_polar(axes[1, 0])
    above.suptitle(f"Input of {networks[0].title}, and predictions of both networks (✗ wrong)\n", fontsize=11)

    axis = below.subplots()
    for network, color, marker in zip(networks, (PTN_COLOR, CNN_COLOR), "os", strict=True):
        label = f"{network.title}: {network.error:.1f}% test error"
        accuracies = (*network.accuracies, network.accuracies[0])
        axis.plot((*angles, 360), accuracies, color=color, marker=marker, markersize=4, label=label)
    lowest = min(value for network in networks for value in network.accuracies)
    angle_axis(axis)
    axis.set(ylim=(10 * math.floor((lowest - 3) / 10), 100.5), xlabel="rotation about the center of the image")
    axis.set_ylabel("accuracy (%)")
    axis.legend(frameon=False, fontsize=10, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    below.suptitle(f"Accuracy against rotation{note}", fontsize=11)
    save(figure, path)


def _label_log_polar(axes: Any) -> None:
    axes.set_ylabel("log-polar\n← angle", fontsize=9)  # the label is rotated: the arrow points down
    axes.set_xlabel("radius →", fontsize=9)


def angle_axis(axes: Any) -> None:
    """Makes the x axis one of angles from 0° to 360°, with faint grid lines."""
    faint_grid(axes)
    axes.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)])
    axes.set_xlim(-4, 364)


def shifts_from_first(maps: Tensor, theory: Tensor) -> Tensor:
    """Returns the shifts (rows, columns) of polar maps (K, C, h, w) against the first of them: (K, 2).

    Rows are known modulo h; the values nearest to `theory` (K, 2) are returned.
    """
    rows = maps.shape[-2]
    measured = measure_shift(maps[:1].expand_as(maps), maps)
    measured[:, 0] += rows * ((theory[:, 0] - measured[:, 0]) / rows).round()
    return measured


def log_polar_shifts(
    digit: Tensor, kind: str, amounts: Sequence[float]
) -> tuple[Tensor, Tensor, list[tuple[float, float]]]:
    """Returns a digit (H, W) in [0, 1] transformed by each amount, its log-polar images, and their shifts.

    Args:
        kind: "rotation" by degrees, which shifts rows, or "dilation" by factors, which shifts columns.

    Returns:
        Both kinds of images, (K, 96, 96), and the measured and the expected shift of each relative to the first.
    """
    size = 96
    values = torch.tensor(amounts, dtype=torch.float64)
    pose = Similarity(values.deg2rad(), 2.0) if kind == "rotation" else Similarity(scale=values)
    copies = digit.double().expand(len(amounts), 1, *digit.shape)
    images = similarity_warp(copies, pose, size=(size, size), mode="bicubic").clamp(0, 1)
    grid = PolarGrid(size, size)
    polar = polar_sample(images, torch.zeros(len(amounts), 2, dtype=torch.float64), grid)
    if kind == "rotation":
        axis, expected = 0, (values - values[0]) / 360 * size
    else:
        columns_per_log = size / math.log(grid.outer_radius((size, size)) / grid.inner_radius)
        axis, expected = 1, (values / values[0]).log() * columns_per_log
    measured = shifts_from_first(polar, expected[:, None].expand(-1, 2))[:, axis]
    return images[:, 0], polar[:, 0], list(zip(measured.tolist(), expected.tolist(), strict=True))


def draw_log_polar(digit: Tensor, path: Path) -> None:
    """Writes the paper's Figure 1 for a digit (H, W) in [0, 1], with measured shifts."""
    from matplotlib.figure import Figure

    rotations, dilations = (0.0, 40.0, 90.0, 130.0, 200.0, 290.0), (1.0, 1.2, 1.5, 1.8, 2.1, 2.4)
    figure = Figure(figsize=(9.3, 7.9), layout="constrained")
    axes = figure.subplots(4, 6, gridspec_kw={"hspace": 0.06})
    for row, kind, amounts in ((0, "rotation", rotations), (2, "dilation", dilations)):
        images, polar, shifts = log_polar_shifts(digit, kind, amounts)
        axes[row, 0].set_ylabel("image", fontsize=9)
        _label_log_polar(axes[row + 1, 0])
        for column, (measured, theory) in enumerate(shifts):
            upper, lower = axes[row, column], axes[row + 1, column]
            show(upper, images[column])
            show(lower, polar[column])
            if kind == "rotation":
                start = int(polar[0].sum(dim=1).argmax())  # the brightest row
                line, end = lower.axhline, (start + measured) % len(polar[0])
                title, unit = f"rotated {amounts[column]:g}°", "rows"
            else:
                start = int((polar[0].amax(dim=0) > 0.5).nonzero().max())  # the last bright column
                line, end = lower.axvline, start + measured
                title, unit = f"enlarged {amounts[column]:g}×", "columns"
            line(start, color=YELLOW, linewidth=1.6)
            line(end, color=GREEN, linewidth=1.6)
            upper.set_title(title, fontsize=9)
            lower.set_title(f"{measured:z.2f} {unit}\ntheory {theory:.2f}", fontsize=8)
    explain_shift_lines(figure)
    figure.suptitle("Rotation shifts the log-polar image vertically, dilation horizontally", fontsize=11)
    save(figure, path)


_AUDIT_LABELS = {"rotation": "rotation (°), inside a disc", "scale": "scale", "shift": "shift (pixels)"}
# Attribute of a point, line style, color and width by label; "correct" is thinner where lines coincide.
_AUDIT_LINES = {
    "consistent, resampled only": ("resampling.consistency", "--", "0.5", 1.3),
    "consistent": ("transformed.consistency", "o-", BLUE, 2.6),
    "correct": ("transformed.accuracy", "s-", VERMILION, 1.2),
}
_LAYER_MARKERS = {
    ("rotation", 45.0): (BLUE, "o"),
    ("rotation", 90.0): (VERMILION, "s"),
    ("scale", 1.25): (GREEN, "^"),
}


def draw_audit(audit: "Audit", path: Path, title: str) -> None:
    """Writes the figure of an audit: consistency and accuracy above, errors of the layers below."""
    from matplotlib.figure import Figure

    layers = list(dict.fromkeys(error.layer for error in audit.layers))
    heights = [3.4] + [1.1 + 0.24 * len(layers)] * bool(layers)
    figure = Figure(figsize=(11, 0.9 + sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_audit_curves(parts[0], audit)
    if layers:
        _draw_layer_errors(parts[1], audit.layers, layers)
    figure.suptitle(title, fontsize=12, parse_math=False)
    save(figure, path)


def _draw_audit_curves(figure: Any, audit: "Audit") -> None:
    kinds = list(dict.fromkeys(point.kind for point in audit.points))
    widths = [2.2 if kind == "rotation" else 1.0 for kind in kinds]
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False, width_ratios=widths)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        points = audit.curve(kind)
        amounts = [point.amount for point in points]
        axes.set_xlabel(_AUDIT_LABELS[kind])
        if kind == "rotation" and amounts[0] >= 0:
            angle_axis(axes)
        else:
            faint_grid(axes)
            axes.set_xticks(amounts, [f"{amount:g}" for amount in amounts], fontsize=8)
        for label, (name, style, color, width) in _AUDIT_LINES.items():
            values = [attrgetter(name)(point) for point in points]
            if None not in values:
                markersize = 1 + 2 * width
                axes.plot(amounts, values, style, color=color, linewidth=width, markersize=markersize, label=label)
    panels[0].set_ylim(bottom=max(0.0, panels[0].get_ylim()[0] - 1), top=100.8)
    panels[0].set_ylabel("% of the images")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=10, ncols=len(labels), loc="outside upper center")


def _draw_layer_errors(figure: Any, layers: "Sequence[LayerError]", names: Sequence[str]) -> None:
    """Draws a row for each layer in the order in which they run."""
    axes = figure.subplots()
    for (kind, amount), (color, marker) in _LAYER_MARKERS.items():
        label = f"rotated {amount:g}°" if kind == "rotation" else f"scaled ×{amount:g}"
        errors = [e for e in layers if (e.kind, e.amount) == (kind, amount) and e.error is not None]
        rows = [names.index(error.layer) for error in errors]
        axes.plot([error.error for error in errors], rows, marker, color=color, markersize=5, label=label)
    polar = {error.layer for error in layers if error.relation == "polar"}
    labels = [f"{name}  (polar)" if name in polar else name for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("relative equivariance error")
    faint_grid(axes)
    figure.legend(frameon=False, fontsize=9, ncols=3, loc="outside upper center")
