"""Accuracy against the angle of test photographs: networks trained on upright digits, and on turned ones."""

from collections.abc import Iterable
from pathlib import Path

from ...errors import InputError
from experiments.recipes import is_outdated
from ...training.records import Record
from .turns import Curve, Panel, draw_panels, mean_curve

ROWS = ("PTN-ResNet32", "ResNet32")
_SETS = {"": ("SVHN", "ROTSVHN"), "-minus": ("SVHN− (without 6 and 9)", "ROTSVHN− (without 6 and 9)")}


def curves(records: Iterable[Record]) -> dict[str, list[Curve]]:
    """By data set, a curve for each of the two networks by the paper's recipe that has been run.

    Of runs that were trained again the newest counts, of runs that were trained otherwise than their recipe says
    now none does.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        wanted = record.table == "svhn" and record.form == "paper" and record.row in ROWS
        if wanted and "angle_accuracy" in record.metrics and not is_outdated(record):
            groups.setdefault((record.dataset, record.row or ""), []).append(record)
    made: dict[str, list[Curve]] = {}
    for dataset, row in sorted(groups, key=lambda key: ROWS.index(key[1])):
        curve = mean_curve(row, groups[dataset, row], turned=dataset.startswith("rot"), metric="angle")
        made.setdefault(dataset, []).append(curve)
    return made


def draw(records: Iterable[Record], path: Path) -> dict[str, list[Curve]]:
    """Write the figure as a PNG and return its curves: trained on upright digits to the left, on turned ones right,
    a row for all digits and one for those without 6 and 9."""
    made = curves(records)
    if not made:
        raise InputError("no record has accuracies by angle: train svhn and rotsvhn by the paper's recipe first")
    rows = []
    for suffix, (upright, turned) in _SETS.items():
        panels = [
            Panel(f"trained on upright digits: {upright}", made.get(f"svhn{suffix}", [])),
            Panel(f"trained on turned digits: {turned}", made.get(f"rotsvhn{suffix}", [])),
        ]
        rows.append([panel for panel in panels if panel.curves])
    shown = [row for row in rows if row]
    draw_panels(shown, path, xlabel="test digits turned by", ylabel="accuracy (%)")
    return made
