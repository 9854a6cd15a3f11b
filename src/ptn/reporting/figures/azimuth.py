"""Accuracy against azimuth: how networks fare on test shapes turned about z, from the records of their runs."""

from collections.abc import Iterable
from pathlib import Path

from ...errors import InputError
from experiments.recipes import is_outdated
from ...training.records import Record
from .turns import Curve, Panel, draw_panels, mean_curve

UNTURNED = ", no rotation aug."
"""How the rows end of networks that were trained without turning the shapes."""


def curves(records: Iterable[Record]) -> list[Curve]:
    """A curve for each row by the modern recipe with accuracies by azimuth, in the order in which they come.

    The controls have no other recipe, and a mean over two recipes would be that of none. Of runs that were trained
    again the newest counts, of runs that were trained otherwise than their recipe says now none does.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        wanted = record.row is not None and record.form == "modern" and "azimuth_accuracy" in record.metrics
        if wanted and not is_outdated(record):
            groups.setdefault(record.row or "", []).append(record)
    return [
        mean_curve(row.removesuffix(UNTURNED), group, turned=not row.endswith(UNTURNED), metric="azimuth")
        for row, group in groups.items()
    ]


def draw(records: Iterable[Record], path: Path) -> list[Curve]:
    """Write the figure as a PNG and return its curves: those trained on turned shapes to the left, others right."""
    made = curves(records)
    if not made:
        raise InputError("no record has accuracies by azimuth: train the recipes of modelnet40 first")
    headings = {True: "trained on shapes turned at random", False: "trained on shapes as they come"}
    panels = [Panel(headings[turned], [c for c in made if c.turned == turned]) for turned in (True, False)]
    shown = [panel for panel in panels if panel.curves]
    draw_panels([shown], path, xlabel="test shapes turned about z by", ylabel="instance accuracy (%)")
    return made
