"""From records to tables: what the runs say, beside what was published. Nothing here reads or writes files."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ..errors import InputError, check_choice
from ..training.records import Record
from .published import FORMS, PUBLISHED, TABLES, PublishedRow, published_row


@dataclass(frozen=True)
class Result:
    """What the finished runs of one row in one form say; without any, `n` is 0 and all numbers are None.

    `mean` and `std` (over samples, None for a single run) are of the error in %, or of the instance accuracy
    on ModelNet40, where the class accuracy has its own. `failed` counts runs that failed.
    """

    model: str | None
    n: int = 0
    mean: float | None = None
    std: float | None = None
    class_mean: float | None = None
    class_std: float | None = None
    params: int | None = None
    seconds_per_epoch: float | None = None
    failed: int = 0


@dataclass(frozen=True)
class TableRow:
    """A row for one data set: what was published, and ours by form. Quoted rows have no results."""

    row: str
    dataset: str
    published: PublishedRow | None
    results: dict[str, Result]

    @property
    def quoted(self) -> bool:
        return self.published is not None and self.published.quoted


@dataclass(frozen=True)
class Table:
    """A table of the report. `sources` and `devices` are those of its finished runs; `warnings` are lines that
    say where runs that are averaged differ in more than their seed."""

    name: str
    rows: tuple[TableRow, ...]
    sources: tuple[str, ...]
    devices: tuple[str, ...]
    warnings: tuple[str, ...]


def build_tables(records: Iterable[Record], names: Sequence[str] = tuple(TABLES)) -> list[Table]:
    """The tables called `names` (by default all), with every row that is known of and every row that was run."""
    for name in names:
        check_choice("table", name, TABLES)
    reported = [record for record in records if is_reported(record)]
    return [_table(name, [record for record in reported if record.table == name]) for name in names]


def is_reported(record: Record) -> bool:
    """Whether a record belongs to a row of one of the tables."""
    return record.table in TABLES and record.row is not None and record.form in FORMS


def to_json(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """One object per row, data set and form, as `ptn report --json` prints them. Quoted rows are left out."""
    return [
        _json_row(table.name, row, form, result)
        for table in tables
        for row in table.rows
        for form, result in row.results.items()
    ]


class _Row(Protocol):
    @property
    def table(self) -> str: ...
    @property
    def row(self) -> str: ...


class _Recipe(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> Sequence[_Row]: ...


R = TypeVar("R", bound=_Recipe)


def missing_runs(
    table: str, records: Iterable[Record], recipes: Iterable[R], seeds: Iterable[int]
) -> list[tuple[R, int]]:
    """The runs that `table` still needs: recipes and seeds that lack a finished record for one of its rows."""
    check_choice("table", table, TABLES)
    done = {
        (record.recipe, record.row, record.seed)
        for record in records
        if record.table == table and record.status == "done"
    }
    wanted = list(seeds)
    return [
        (recipe, seed)
        for recipe in recipes
        for seed in wanted
        if any(row.table == table and (recipe.name, row.row, seed) not in done for row in recipe.rows)
    ]


def _table(name: str, records: list[Record]) -> Table:
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in {record.identity: record for record in records}.values():  # files may repeat each other
        groups[record.dataset, record.row or "", record.form].append(record)
    finished = {key: _newest(group) for key, group in groups.items()}
    counted = [record for group in finished.values() for record in group]

    rows = []
    for dataset, row in _row_names(name, groups):
        published = published_row(name, row, dataset)
        results = {
            form: _result(
                name, published, finished.get((dataset, row, form), []), groups.get((dataset, row, form), [])
            )
            for form in FORMS
            if (dataset, row, form) in groups or (published and not published.quoted and form in published.forms)
        }
        rows.append(TableRow(row, dataset, published, results))
    return Table(
        name=name,
        rows=tuple(rows),
        sources=tuple(sorted({str(record.metrics.get("source", "unknown")) for record in counted})),
        devices=tuple(sorted({record.device for record in counted})),
        warnings=tuple(line for key, group in finished.items() for line in _differences(key, group)),
    )


def _row_names(table: str, groups: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """(data set, row) in order: data sets as the table has them; in each our rows, known ones first, then quoted."""
    known = {(row.dataset, row.row): row.quoted for row in PUBLISHED if row.table == table}
    names = [*known, *((dataset, row) for dataset, row, _ in groups)]
    datasets = list(TABLES[table].datasets)

    def place(key: tuple[str, str]) -> tuple[int, bool]:
        dataset = key[0]
        return datasets.index(dataset) if dataset in datasets else len(datasets), known.get(key, False)

    return sorted(dict.fromkeys(names), key=place)


def _newest(records: Iterable[Record]) -> list[Record]:
    """The finished run of each seed, the one started last where there are several."""
    by_seed: dict[int, Record] = {}
    for record in sorted(records, key=lambda record: datetime.fromisoformat(record.started)):
        if record.status == "done":
            by_seed[record.seed] = record
    return [by_seed[seed] for seed in sorted(by_seed)]


def _result(table: str, published: PublishedRow | None, finished: list[Record], all_runs: list[Record]) -> Result:
    failed = sum(record.status == "failed" for record in all_runs)
    if not finished:
        return Result(model=published.model if published else all_runs[-1].model, failed=failed)
    newest = max(finished, key=lambda record: datetime.fromisoformat(record.started))
    if TABLES[table].accuracy:
        mean, std = _statistics([_metric(record, "instance_accuracy") for record in finished])
        class_mean, class_std = _statistics([_metric(record, "class_accuracy") for record in finished])
    else:
        mean, std = _statistics([record.test_error for record in finished if record.test_error is not None])
        class_mean = class_std = None
    seconds = [record.seconds_per_epoch for record in finished if record.seconds_per_epoch is not None]
    return Result(
        model=newest.model,
        n=len(finished),
        mean=mean,
        std=std,
        class_mean=class_mean,
        class_std=class_std,
        params=newest.params,
        seconds_per_epoch=statistics.fmean(seconds) if seconds else None,
        failed=failed,
    )


def _statistics(values: list[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation of a sample (over n - 1), which one value does not have."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _metric(record: Record, name: str) -> float:
    value = record.metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"run {record.run} of {record.table} must have {name!r} in %, a number, among its metrics")
    return float(value)


def _differences(key: tuple[str, str, str], records: list[Record]) -> list[str]:
    _, row, form = key
    place = f"{row}, {form} recipe"
    lines = []
    if len({record.config_sha256 for record in records}) > 1:
        lines.append(f"{place}: these runs were trained with different settings.")
    if len({record.data_sha256 for record in records}) > 1:
        lines.append(f"{place}: these runs were trained on different data.")
    return lines


def _json_row(table: str, row: TableRow, form: str, result: Result) -> dict[str, Any]:
    entry = {
        "table": table,
        "row": row.row,
        "dataset": row.dataset,
        "model": result.model,
        "recipe": form,
        "n": result.n,
        "mean": result.mean,
        "std": result.std,
        "paper": row.published.mean if row.published else None,
        "params": result.params,
    }
    return entry | ({"class_mean": result.class_mean} if TABLES[table].accuracy else {})
