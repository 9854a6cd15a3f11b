"""The rows of `python -m experiments report --json`, without their ids."""

from pathlib import Path

import pytest

import golden
from experiments.tables import build_tables, load_records, to_json

ROWS = to_json(build_tables(load_records(Path(__file__).parents[2] / "experiments" / "results")))


def title(row: dict) -> str:
    return " | ".join(str(row[key]) for key in ("table", "row", "dataset", "model", "recipe"))


REPORT = {title(row): lambda row=row: {key: row[key] for key in row if key != "id"} for row in ROWS}
CASES: golden.Cases = {"report": REPORT}


def test_titles_of_rows_are_unique() -> None:
    assert len(REPORT) == len(ROWS)


@pytest.mark.parametrize("key", REPORT)
def test_numbers_are_those_recorded(key: str) -> None:
    golden.check("report", key, REPORT[key](), atol=1e-9)
