"""From records to tables: what the runs say, beside what was published. Nothing here reads or writes files."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ..errors import InputError, check_choice
from ..training.recipe import FORMS
from ..training.recipes import is_outdated
from ..training.records import Record
from .published import PUBLISHED, TABLES, PublishedRow

_Key = tuple[str, str, str]  # data set, row, form


@dataclass(frozen=True)
class Result:
    """What the finished runs of one row in one form say; without any, `n` is 0 and all numbers are None.

    `mean` and `std` (over samples, None for a single run) are of the error in %, or of the instance accuracy
    on ModelNet40, where the class accuracy has its own. `metrics` are the means of the numbers that all runs have
    among their metrics. `failed` counts runs that failed.
    """

    model: str | None
    n: int = 0
    mean: float | None = None
    std: float | None = None
    class_mean: float | None = None
    class_std: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: int | None = None
    seconds_per_epoch: float | None = None
    failed: int = 0


@dataclass(frozen=True)
class TableRow:
    """A row for one data set: what was published, and ours by form. Quoted rows have no results."""

    published: PublishedRow
    results: dict[str, Result]


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
    """The tables called `names` (by default all), with every row that is known of and every row that was run.

    Runs that were trained with other settings than their recipe has now are left out, and counted in a warning.
    """
    for name in names:
        check_choice("table", name, TABLES)
    reported = [record for record in records if record.row is not None and record.form in FORMS]
    return [_table(name, [record for record in reported if record.table == name]) for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class Ratios:
    """The error of a row as a share of its baseline's: as published, and ours by form; None where either lacks."""

    published: float | None
    ours: tuple[float | None, ...]


def ratios_to_baseline(table: Table, row: TableRow) -> Ratios | None:
    """How a row compares with its baseline on the same data; None if it has none."""
    name = TABLES[table.name].baselines.get(row.published.row)
    pairs = {(other.published.dataset, other.published.row): other for other in table.rows}
    baseline = pairs.get((row.published.dataset, name or ""))
    if baseline is None:
        return None
    known = baseline.results
    ours = (
        _quotient(result.mean, known[form].mean if form in known else None) for form, result in row.results.items()
    )
    return Ratios(_quotient(row.published.mean, baseline.published.mean), tuple(ours))


def _quotient(error: float | None, baseline: float | None) -> float | None:
    return error / baseline if error is not None and baseline else None


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
    """The runs that `table` still needs: recipes and seeds that lack a finished record for one of its rows.

    A record counts if it was trained as its recipe says now.
    """
    check_choice("table", table, TABLES)
    done = {
        (record.recipe, record.row, record.seed)
        for record in records
        if record.table == table and record.status == "done" and not is_outdated(record)
    }
    wanted = list(seeds)
    return [
        (recipe, seed)
        for recipe in recipes
        for seed in wanted
        if any(row.table == table and (recipe.name, row.row, seed) not in done for row in recipe.rows)
    ]


def _table(name: str, everything: list[Record]) -> Table:
    records = [record for record in everything if not is_outdated(record)]
    groups: dict[_Key, list[Record]] = defaultdict(list)
    for record in {(record.identity, record.started): record for record in records}.values():  # files may overlap
        groups[record.dataset, record.row or "", record.form].append(record)
    finished = {key: newest(group) for key, group in groups.items()}
    counted = [record for group in finished.values() for record in group]
    return Table(
        name=name,
        rows=tuple(_row(published, groups, finished) for published in _known_rows(name, groups)),
        sources=tuple(sorted({str(record.metrics.get("source", "unknown")) for record in counted})),
        devices=tuple(sorted({record.device for record in counted})),
        warnings=(
            *(line for key, group in finished.items() for line in _differences(key, group)),
            *_outdated(len(everything) - len(records)),
        ),
    )


def _known_rows(table: str, groups: dict[_Key, list[Record]]) -> list[PublishedRow]:
    """By data set, as the table orders them: our rows, first those known beforehand, then the quoted ones."""
    known = {(row.dataset, row.row): row for row in PUBLISHED if row.table == table}
    for (dataset, row, _), records in groups.items():
        model = records[-1].model
        unheard_of = PublishedRow(table=table, row=row, dataset=dataset, model=model, forms=())
        known.setdefault((dataset, row), unheard_of)
    datasets = list(dict.fromkeys([*TABLES[table].datasets, *(dataset for dataset, _ in known)]))
    return sorted(known.values(), key=lambda row: (datasets.index(row.dataset), row.quoted))


def _row(published: PublishedRow, groups: dict[_Key, list[Record]], finished: dict[_Key, list[Record]]) -> TableRow:
    results: dict[str, Result] = {}
    for form in FORMS:
        key = (published.dataset, published.row, form)
        if key in groups:
            failed = sum(record.status == "failed" for record in groups[key])
            results[form] = _result(published, finished[key], failed)
        elif form in published.forms and not published.quoted:
            results[form] = Result(published.model)
    return TableRow(published, results)


def newest(records: Iterable[Record]) -> list[Record]:
    """The finished run of each seed, the one started last where there are several."""
    by_seed: dict[int, Record] = {}
    for record in sorted(records, key=_started):
        if record.status == "done":
            by_seed[record.seed] = record
    return [by_seed[seed] for seed in sorted(by_seed)]


def _started(record: Record) -> datetime:
    return datetime.fromisoformat(record.started)


def _result(published: PublishedRow, records: list[Record], failed: int) -> Result:
    if not records:
        return Result(published.model, failed=failed)
    newest = max(records, key=_started)
    class_mean: float | None = None
    class_std: float | None = None
    errors = [record.test_error for record in records if record.test_error is not None]
    if TABLES[published.table].accuracy:
        mean, std = _statistics([100 - error for error in errors])
        class_mean, class_std = _statistics([_metric(record, "class_accuracy") for record in records])
    else:
        mean, std = _statistics(errors)
    seconds = [record.seconds_per_epoch for record in records if record.seconds_per_epoch is not None]
    return Result(
        model=newest.model,
        n=len(records),
        mean=mean,
        std=std,
        class_mean=class_mean,
        class_std=class_std,
        metrics=_mean_metrics(records),
        params=newest.params,
        seconds_per_epoch=statistics.fmean(seconds) if seconds else None,
        failed=failed,
    )


def _statistics(values: list[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation of a sample (over n - 1), which one value does not have."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _mean_metrics(records: list[Record]) -> dict[str, float]:
    """The mean of every number that all records have among their metrics."""
    numbers = [{name: value for name, value in record.metrics.items() if _is_number(value)} for record in records]
    common = [name for name in numbers[0] if all(name in others for others in numbers)]
    return {name: statistics.fmean(values[name] for values in numbers) for name in common}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _metric(record: Record, name: str) -> float:
    value = record.metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"run {record.run} of {record.table} must have {name!r} in %, a number, among its metrics")
    return float(value)


def _outdated(count: int) -> list[str]:
    if not count:
        return []
    return [f"{count} records are left out: they were trained with other settings than their recipes have now."]


def _differences(key: _Key, records: list[Record]) -> list[str]:
    dataset, row, form = key
    place = f"{row} on {dataset}, {form} recipe"
    lines = []
    if len({record.config_sha256 for record in records}) > 1:
        lines.append(f"{place}: these runs were trained with different settings.")
    if len({record.data_sha256 for record in records}) > 1:
        lines.append(f"{place}: these runs were trained on different data.")
    return lines


def _json_row(table: str, row: TableRow, form: str, result: Result) -> dict[str, Any]:
    entry = {
        "table": table,
        "row": row.published.row,
        "dataset": row.published.dataset,
        "model": result.model,
        "recipe": form,
        "n": result.n,
        "mean": result.mean,
        "std": result.std,
        "paper": row.published.mean,
        "params": result.params,
    }
    return entry | ({"class_mean": result.class_mean} if TABLES[table].accuracy else {})
