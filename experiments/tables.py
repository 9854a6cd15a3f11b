"""Tables from records: results over seeds beside the published numbers."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from ptn.errors import InputError
from ptn.training.recipe import Recipe
from ptn.training.records import Record, read_records

from .published import PublishedRow, TableInfo, find_table, table_names
from .recipes import FORMS, EnsembleRecipe, Form, ensembles, find_recipe, form_of, is_outdated, recipe_names

RESULTS = Path(__file__).with_name("results")
"""The records of this repository."""

Trained = TypeVar("Trained", Recipe, EnsembleRecipe)


@dataclass(frozen=True)
class Result:
    """Results of the finished runs of one row in one form; without any, `n` is 0 and all numbers are None.

    Attributes:
        mean, std: Error in %, or accuracy over instances; `std` is that of a sample, None for a single run.
        class_mean, class_std: Accuracy over classes in %, in tables of accuracies.
        metrics: Means of the numbers that all runs have in their metrics.
        failed: Number of failed runs.
    """

    model: str
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
    """A row: the published numbers, and the results by form. A quoted row has no results."""

    published: PublishedRow
    dataset: str
    results: Mapping[Form, Result]


@dataclass(frozen=True)
class Table:
    """A table with the data sources and devices of its finished runs, and warnings about runs that differ."""

    name: str
    info: TableInfo
    rows: tuple[TableRow, ...]
    sources: tuple[str, ...]
    devices: tuple[str, ...]
    warnings: tuple[str, ...]


def load_records(path: Path = RESULTS) -> list[Record]:
    """Returns the records of a file, or of every *.jsonl in a folder; none if there is no such folder."""
    if path.is_file():
        return read_records(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is neither a folder nor a file of records")
    return [record for file in sorted(path.glob("*.jsonl")) for record in read_records(file)]


def build_tables(records: Iterable[Record], names: Sequence[str] | None = None) -> list[Table]:
    """Returns the tables called `names`, by default all.

    Records of runs with other settings than their recipe has now are left out and counted in a warning.
    """
    groups: dict[str, list[Record]] = defaultdict(list)
    # files may overlap
    for record in {(record.identity, record.started): record for record in records}.values():
        if record.id is not None:
            groups[record.id].append(record)
    models = _models()
    return [_table(name, groups, models) for name in dict.fromkeys(table_names() if names is None else names)]


def unknown_ids(records: Iterable[Record]) -> list[str]:
    """Returns the row ids of records that no table has."""
    known = {id for name in table_names() for id in find_table(name).rows}
    return sorted({record.id for record in records if record.id is not None} - known)


def to_json(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Returns one object per row and form, without the quoted rows."""
    return [
        _json_row(table, row, form, result)
        for table in tables
        for row in table.rows
        for form, result in row.results.items()
    ]


def missing_runs(
    table: str, records: Iterable[Record], recipes: Iterable[Trained], seeds: Iterable[int]
) -> list[tuple[Trained, int]]:
    """Returns the recipes and seeds that lack a finished record, not outdated, for a row of `table`."""
    rows = find_table(table).rows
    finished = {
        (record.recipe, record.id, record.seed)
        for record in records
        if record.status == "done" and not is_outdated(record)
    }
    wanted = list(seeds)
    return [
        (recipe, seed)
        for recipe in recipes
        for seed in wanted
        if any(spec.id in rows and (recipe.name, spec.id, seed) not in finished for spec in recipe.evaluations)
    ]


def newest(records: Iterable[Record]) -> list[Record]:
    """Returns the finished record of each seed, the one started last if there are several."""
    by_seed: dict[int, Record] = {}
    for record in sorted(records, key=_started):
        if record.status == "done":
            by_seed[record.seed] = record
    return [by_seed[seed] for seed in sorted(by_seed)]


def _models() -> dict[tuple[str | None, Form | None], str]:
    """Returns the name of the model that is trained for each row id and form."""
    models = {}
    for recipe in map(find_recipe, recipe_names()):
        for spec in recipe.evaluations:
            models[spec.id, form_of(recipe.name)] = recipe.model.name
    for ensemble in ensembles():
        members = dict.fromkeys(find_recipe(member).model.name for member in ensemble.members)
        for spec in ensemble.evaluations:
            models[spec.id, form_of(ensemble.name)] = "+".join(members)
    return models


def _table(
    name: str, groups: Mapping[str, list[Record]], models: Mapping[tuple[str | None, Form | None], str]
) -> Table:
    info = find_table(name)
    rows, counted, warnings, outdated = [], [], [], 0
    for id, published in info.rows.items():
        current = [record for record in groups.get(id, []) if not is_outdated(record)]
        outdated += len(groups.get(id, [])) - len(current)
        dataset, results = info.dataset_of(id), {}
        for form in FORMS:
            of_form = [record for record in current if form_of(record.recipe) == form]
            finished = newest(of_form)
            if of_form or (id, form) in models:
                failed = sum(record.status == "failed" for record in of_form)
                results[form] = _result(models.get((id, form), ""), finished, failed, accuracy=info.accuracy)
            counted += finished
            if len({record.data_sha256 for record in finished}) > 1:
                warnings.append(
                    f"{published.title} on {dataset}, {form} recipe: the training data of the runs differ."
                )
        rows.append(TableRow(published, dataset, results))
    if outdated:
        warnings.append(f"{outdated} records are left out: their recipes have other settings now.")
    return Table(
        name=name,
        info=info,
        rows=tuple(rows),
        sources=tuple(sorted({str(record.metrics.get("source", "unknown")) for record in counted})),
        devices=tuple(sorted({record.device for record in counted})),
        warnings=tuple(warnings),
    )


def _result(model: str, records: Sequence[Record], failed: int, *, accuracy: bool) -> Result:
    if not records:
        return Result(model, failed=failed)
    last = max(records, key=_started)
    class_mean: float | None = None
    class_std: float | None = None
    errors = [record.test_error for record in records if record.test_error is not None]
    mean, std = mean_and_std([100 - error for error in errors] if accuracy else errors)
    if accuracy:
        class_mean, class_std = mean_and_std([_class_accuracy(record) for record in records])
    seconds = [record.seconds_per_epoch for record in records if record.seconds_per_epoch is not None]
    return Result(
        model=last.model,
        n=len(records),
        mean=mean,
        std=std,
        class_mean=class_mean,
        class_std=class_std,
        metrics=_mean_metrics(records),
        params=last.params,
        seconds_per_epoch=statistics.fmean(seconds) if seconds else None,
        failed=failed,
    )


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean and the standard deviation of a sample (n - 1), None for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _mean_metrics(records: Sequence[Record]) -> dict[str, float]:
    numbers = [{name: value for name, value in record.metrics.items() if _is_number(value)} for record in records]
    common = [name for name in numbers[0] if all(name in others for others in numbers)]
    return {name: statistics.fmean(values[name] for values in numbers) for name in common}


def _class_accuracy(record: Record) -> float:
    value: Any = record.metrics.get("class_accuracy")
    if not _is_number(value):
        raise InputError(f"run {record.run}: the metrics must have 'class_accuracy', a number in %")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _started(record: Record) -> datetime:
    return datetime.fromisoformat(record.started)


def _json_row(table: Table, row: TableRow, form: Form, result: Result) -> dict[str, Any]:
    entry = {
        "id": row.published.id,
        "table": table.name,
        "row": row.published.title,
        "dataset": row.dataset,
        "model": result.model,
        "recipe": form,
        "n": result.n,
        "mean": result.mean,
        "std": result.std,
        "paper": row.published.mean,
        "params": result.params,
    }
    return entry | ({"class_mean": result.class_mean} if table.info.accuracy else {})
