"""Figures of the library and the style that all figures share: colors, origin marks, light and dark backgrounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .files import atomic_path

# The palette of Okabe and Ito: distinguishable with color vision deficiency, readable on white and on black.
BLUE, VERMILION, GREEN, YELLOW = "#0072b2", "#d55e00", "#009e73", "#f0e442"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"
PTN_COLOR, CNN_COLOR, ORIGIN_COLOR = BLUE, VERMILION, YELLOW
HEATMAP_CMAP = "inferno"
FORMATS = ("png", "webp", "svg", "pdf")

_LIGHT, _DARK = ("#1f2328", "#ffffff"), ("#e6edf3", "#0d1117")
_DOTS_PER_INCH = 80


@contextmanager
def paper(*, dark: bool = False) -> Iterator[None]:
    """Context manager that sets text and background colors for a light or a dark page."""
    from matplotlib import rc_context

    foreground, background = _DARK if dark else _LIGHT
    inked = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "legend.labelcolor")
    # Text stays text in SVG files, and identical figures are identical files.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "ptn"}
    settings |= dict.fromkeys(inked, foreground) | dict.fromkeys(("axes.facecolor", "figure.facecolor"), background)
    with rc_context(settings):  # type: ignore[arg-type]
        yield


def ink() -> str:
    """Returns the current color of lines and text."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


def faint_grid(axes: Any) -> None:
    """Adds faint grid lines and removes the upper and right spines."""
    axes.grid(color=ink(), alpha=0.12)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark_origin(axes: Any, x: float, y: float, *, color: str = ORIGIN_COLOR, size: float = 14) -> list[Any]:
    """Draws a cross with a black outline at (x, y) in data coordinates and returns its two lines."""
    outline = axes.plot([x], [y], "+", markersize=size + 1, markeredgewidth=4, color="black")
    return [*outline, *axes.plot([x], [y], "+", markersize=size, markeredgewidth=2, color=color)]


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
    """Writes `figure` in the format given by the suffix, one of `FORMATS`; equal figures give equal files."""
    kind = path.suffix.removeprefix(".")
    with atomic_path(path) as temporary:
        if kind == "png":
            _save_png(figure, temporary)
        elif kind == "webp":
            figure.savefig(temporary, format=kind, dpi=_DOTS_PER_INCH, pil_kwargs={"quality": 65, "method": 6})
        else:
            undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            figure.savefig(temporary, format=kind, metadata=undated[kind])


def _save_png(figure: Any, path: Path) -> None:
    """Writes a PNG with 256 colors, about a third of the size of a full-color one; palette colors stay exact."""
    from PIL import Image, ImageColor

    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH)
    exact = [ImageColor.getrgb(color) for color in (BLUE, VERMILION, GREEN, YELLOW, PURPLE, ORANGE, SKY)]
    with Image.open(buffer) as opened:
        full = opened.convert("RGB")
    others = 256 - len(exact)
    quantized = full.quantize(others, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    colors = np.array(quantized.getpalette()).reshape(-1, 3)[:others]
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colors)], palette[others:] = colors, exact
    indices = np.array(quantized)
    for index, color in enumerate(exact, start=others):
        indices[(np.asarray(full) == color).all(axis=2)] = index
    result = Image.fromarray(indices)
    result.putpalette(palette.tobytes())
    result.save(path, format="PNG", optimize=True)
