"""Tables and published numbers, read from published.toml."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from ptn.errors import unknown_name


@dataclass(frozen=True)
class PublishedRow:
    """A row of a table: its title and the published numbers.

    Attributes:
        dataset: Name of the data set.
        mean, std: Error in %, or accuracy over instances in tables of accuracies; None if nothing was published.
        class_mean: Accuracy over classes in %.
        params, seconds_per_epoch: As published.
        baseline: Id of the row whose error is the denominator of the ratio.
        source: Citation of a quoted row; None for the rows that we train.
    """

    id: str
    dataset: str
    title: str
    mean: float | None = None
    std: float | None = None
    class_mean: float | None = None
    params: int | None = None
    seconds_per_epoch: float | None = None
    baseline: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class TableInfo:
    """A table: its title, its data sets and its rows by id.

    Attributes:
        datasets: Titles of the data sets by name.
        results: Name of the file of records in results/, without suffix.
        columns: Further columns: the metrics of the records by heading.
        notes: Remarks below the table.
        accuracy: True for accuracies over instances and classes, False for errors.
        citation: Source of the published numbers, by default the paper.
    """

    title: str
    datasets: dict[str, str]
    results: str
    rows: dict[str, PublishedRow]
    columns: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    accuracy: bool = False
    citation: str | None = None


def _load() -> tuple[str, dict[str, TableInfo]]:
    content = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    tables = {}
    for name, values in content["tables"].items():
        datasets = list(values["datasets"])
        rows = {}
        for id, row in values["rows"].items():
            # the second part of an id is the data set where the table has several
            dataset = id.split(".")[1] if len(datasets) > 1 else datasets[0]
            source = content["sources"][row["source"]] if "source" in row else None
            rows[id] = PublishedRow(**{**row, "id": id, "dataset": dataset, "source": source})
        tables[name] = TableInfo(**{**values, "rows": rows})
    return content["paper"], tables


PAPER, TABLES = _load()
"""The citation of the paper, and all tables by name."""


def find_table(name: str) -> TableInfo:
    """Returns the table with this name."""
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


def row_title(id: str | None) -> str | None:
    """Returns the title of a row, None if no table has it."""
    return next((table.rows[id].title for table in TABLES.values() if id in table.rows), None)
