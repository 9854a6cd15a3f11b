"""The one look of all pictures: colours, ink on light or dark paper, and how they are saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ...files import atomic_path

# Okabe and Ito's colours, which colour-blind readers can tell apart, and which show on white and on black
BLUE, VERMILION, GREEN, YELLOW = "#0072b2", "#d55e00", "#009e73", "#f0e442"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"

FORMATS = ("png", "webp", "svg", "pdf")

_LIGHT, _DARK = ("#1f2328", "#ffffff"), ("#e6edf3", "#0d1117")
_DOTS_PER_INCH = 80


@contextmanager
def paper(*, dark: bool = False) -> Iterator[None]:
    """Everything that is drawn inside the block is in dark ink on white, or in light ink on nearly black."""
    from matplotlib import rc_context

    ink, ground = _DARK if dark else _LIGHT
    inked = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "legend.labelcolor")
    # letters stay letters in SVG, and two drawings of the same thing are the same file
    fixed = {"svg.fonttype": "none", "svg.hashsalt": "ptn"}
    with rc_context(dict.fromkeys(inked, ink) | {"axes.facecolor": ground, "figure.facecolor": ground} | fixed):  # type: ignore[arg-type]
        yield


def ink() -> str:
    """The colour of lines and letters on the paper in use."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


def faint_grid(axis: Any) -> None:
    """Lines to read values by, which do not compete with the values, and no frame."""
    axis.grid(color=ink(), alpha=0.12)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def explain_shift_lines(figure: Any) -> None:
    """Say below a picture what its yellow and green lines are, on black as the pictures that they lie on."""
    from matplotlib.lines import Line2D

    meanings = {YELLOW: "a landmark of the first picture", GREEN: "where the measured shift carries it"}
    lines = [Line2D([], [], color=colour, linewidth=1.6, label=label) for colour, label in meanings.items()]
    legend = figure.legend(
        handles=lines, loc="outside lower center", ncols=2, fontsize=9, facecolor="black", labelcolor="white"
    )
    legend.get_frame().set(alpha=1, edgecolor="black")


def save(figure: Any, path: Path) -> None:
    """Write `figure` in the format that the suffix names, one of `FORMATS`."""
    kind = path.suffix.removeprefix(".")
    with atomic_path(path) as temporary:
        if kind == "png":
            _save_small(figure, temporary)
        elif kind == "webp":
            # a third of a PNG's size where there are pictures within the picture
            figure.savefig(temporary, format=kind, dpi=_DOTS_PER_INCH, pil_kwargs={"quality": 65, "method": 6})
        else:
            # files do not say when they were made, so that the same picture is the same file
            undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            figure.savefig(temporary, format=kind, metadata=undated[kind])


def _save_small(figure: Any, path: Path) -> None:
    """A PNG of 256 colours, a third of the size of one with all, and to the eye the same.

    Our own colours stay as they are, however few pixels have them.
    """
    from PIL import Image, ImageColor

    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=_DOTS_PER_INCH)
    own = [ImageColor.getrgb(colour) for colour in (BLUE, VERMILION, GREEN, YELLOW, PURPLE, ORANGE, SKY)]
    with Image.open(drawn) as picture:
        full = picture.convert("RGB")
    others = 256 - len(own)
    few = full.quantize(others, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette = np.zeros((256, 3), np.uint8)
    found = np.array(few.getpalette()).reshape(-1, 3)[:others]
    palette[: len(found)], palette[others:] = found, own
    places = np.array(few)
    for place, colour in enumerate(own, start=others):
        places[(np.asarray(full) == colour).all(axis=2)] = place
    made = Image.fromarray(places)
    made.putpalette(palette.tobytes())
    made.save(path, format="PNG", optimize=True)
