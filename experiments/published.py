"""Tables and published numbers, read from published.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ptn.config import build
from ptn.errors import InputError, unknown_name

PATH = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class PublishedRow:
    """A row of a table: its title and the published numbers.

    Attributes:
        title: The name of the row in the table.
        mean, std: Error in %, or accuracy over instances in tables of accuracies; None if nothing was published.
        class_mean: Accuracy over classes in %.
        params, seconds_per_epoch: As published.
        baseline: Id of the row whose error is the denominator of the ratio.
        source: Citation of a quoted row; None for the rows that we train.
    """

    id: str
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
    """

    title: str
    datasets: dict[str, str]
    results: str
    rows: dict[str, PublishedRow]
    columns: dict[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    accuracy: bool = False

    def dataset_of(self, id: str) -> str:
        """Returns the data set of a row: the second part of its id where the table has several."""
        return id.split(".")[1] if len(self.datasets) > 1 else next(iter(self.datasets))


@cache
def load_published(path: Path = PATH) -> tuple[str, Mapping[str, TableInfo]]:
    """Returns the citation of the paper and all tables by name.

    Raises:
        InputError: The file has an unknown key, a value of the wrong type, or an unknown baseline or source.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    sources, tables = content["sources"], {}
    for name, values in content["tables"].items():
        rows = {}
        for id, row in values["rows"].items():
            if "source" in row and row["source"] not in sources:
                raise InputError(f"{path}: {id}: unknown source {row['source']!r}")
            citation = {"source": sources[row["source"]]} if "source" in row else {}
            rows[id] = build(PublishedRow, {"id": id, **row, **citation}, f"{path}: {id}")
        tables[name] = build(TableInfo, {**values, "rows": rows}, f"{path}: {name}")
        for id, published in rows.items():
            if published.baseline is not None and published.baseline not in rows:
                raise InputError(f"{path}: {id}: unknown baseline {published.baseline!r}")
    return content["paper"], tables


def table_names() -> list[str]:
    """Returns the names of all tables in order."""
    return list(load_published()[1])


def find_table(name: str) -> TableInfo:
    """Returns the table with this name."""
    tables = load_published()[1]
    if name not in tables:
        raise unknown_name("table", name, tables)
    return tables[name]


def row_title(id: str | None) -> str | None:
    """Returns the title of a row, None if no table has it."""
    rows = [table.rows[id] for table in load_published()[1].values() if id in table.rows]
    return rows[0].title if rows else None
