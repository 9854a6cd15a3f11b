"""Ink and paper: pictures for white pages, and for dark ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INKED = (
    "text.color",
    "axes.labelcolor",
    "axes.titlecolor",
    "axes.edgecolor",
    "xtick.color",
    "ytick.color",
    "legend.labelcolor",
)
_PAPERED = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")


@contextmanager
def page(*, dark: bool) -> Iterator[str]:
    """What is drawn inside the block is dark ink on white paper, or light ink on dark paper. Yields the ink."""
    from matplotlib import rc_context

    ink, paper = ("#e6edf3", "#0d1117") if dark else ("#1f2328", "#ffffff")
    style: Any = dict.fromkeys(_INKED, ink) | dict.fromkeys(_PAPERED, paper)
    with rc_context(style):
        yield ink
