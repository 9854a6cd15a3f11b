"""Runs that are no row of a table: settings that were tried in order to choose, and networks of one's own."""

import statistics
from collections.abc import Iterable
from typing import Any

from ..training.records import Record
from .align import align
from .tables import newest


def summarise_own(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One object per recipe and split that it was tested on: the seeds that finished, and their error in %."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.row is None:
            split = record.config.get("data", {}).get("test", "test")
            groups.setdefault((record.recipe, split), []).append(record)
    rows = []
    for (recipe, split), group in groups.items():
        finished = newest(group)
        errors = [record.test_error for record in finished if record.test_error is not None]
        seconds = [record.train_seconds for record in finished]
        rows.append(
            {
                "recipe": recipe,
                "split": split,
                "n": len(errors),
                "failed": sum(record.status == "failed" for record in group),
                "mean": statistics.fmean(errors) if errors else None,
                "std": statistics.stdev(errors) if len(errors) > 1 else None,
                "train_seconds": statistics.fmean(seconds) if seconds else None,
            }
        )
    return rows


def render_own(rows: Iterable[dict[str, Any]]) -> str:
    """The same as a table in Markdown."""
    given = list(rows)
    if not given:
        return "No runs of one's own are among these records.\n"
    columns = {
        "recipe": [row["recipe"] for row in given],
        "tested on": [row["split"] for row in given],
        "error": [_error(row) for row in given],
        "seconds": ["" if row["train_seconds"] is None else f"{row['train_seconds']:.0f}" for row in given],
    }
    note = "- Error in %: mean ± sample standard deviation over n seeds."
    return "\n".join(["## Runs of one's own", "", *align(columns, names=("recipe", "tested on")), "", note, ""])


def _error(row: dict[str, Any]) -> str:
    mean, std, failed = row["mean"], row["std"], f"{row['failed']} failed"
    if mean is None:
        return failed
    counts = [f"n={row['n']}", *([failed] if row["failed"] else [])]
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}") + f" ({', '.join(counts)})"
