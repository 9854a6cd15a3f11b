"""Tables from records: results over seeds beside the published numbers."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ptn.errors import InputError
from ptn.training.recipe import Recipe
from ptn.training.records import Record, read_records

from .published import TABLES, TableInfo, find_table
from .recipes import FORMS, EnsembleRecipe, Form, ensembles, find_recipe, form_of, is_outdated, recipe_names

RESULTS = Path(__file__).with_name("results")
"""The records of this repository."""

Trained = TypeVar("Trained", Recipe, EnsembleRecipe)
Spread = tuple[float, float | None]
"""Mean, and standard deviation of a sample (n - 1), None for a single value."""


@dataclass(frozen=True)
class Result:
    """Results of the finished runs of one row in one form; without any, `n` is 0 and all numbers are None.

    Attributes:
        failed: Number of failed runs.
        mean, std: Error in %, or accuracy over instances.
        metrics: The numbers that all runs have in their metrics, and "train_seconds".
    """

    model: str
    n: int = 0
    failed: int = 0
    mean: float | None = None
    std: float | None = None
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    params: int | None = None
    seconds_per_epoch: float | None = None


@dataclass(frozen=True)
class Table:
    """A table with the results of every row by form, none for quoted rows.

    Attributes:
        sources, devices: Of the data and the training of the finished runs.
        warnings: About runs that differ.
    """

    name: str
    info: TableInfo
    results: Mapping[str, Mapping[Form, Result]]
    sources: Sequence[str]
    devices: Sequence[str]
    warnings: Sequence[str]


def load_records(path: Path = RESULTS) -> list[Record]:
    """Returns the records of a file, or of every *.jsonl in a folder; none if there is no such folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    return [record for file in files for record in read_records(file)]


def build_tables(records: Iterable[Record], names: Sequence[str] | None = None) -> list[Table]:
    """Returns the tables called `names`, by default those with records, or all if none has.

    A record that several files have counts once. Records of runs with other settings than their recipe has now are
    left out and counted in a warning.
    """
    groups: dict[str | None, list[Record]] = defaultdict(list)
    for record in {(record.identity, record.status): record for record in records}.values():
        groups[record.id].append(record)
    models = _models()
    names = names or [name for name, info in TABLES.items() if info.rows.keys() & groups.keys()] or list(TABLES)
    return [_table(name, groups, models) for name in dict.fromkeys(names)]


def to_json(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Returns one object per row and form, without the quoted rows."""
    rows = []
    for table in tables:
        for id, published in table.info.rows.items():
            for form, result in table.results[id].items():
                row = {
                    "id": id,
                    "table": table.name,
                    "row": published.title,
                    "dataset": published.dataset,
                    "model": result.model,
                    "recipe": form,
                    "n": result.n,
                    "mean": result.mean,
                    "std": result.std,
                    "paper": published.mean,
                    "params": result.params,
                }
                if table.info.accuracy:
                    row["class_mean"] = result.metrics["class_accuracy"][0] if result.n else None
                rows.append(row)
    return rows


def missing_runs(
    tables: Iterable[str], records: Iterable[Record], recipes: Iterable[Trained], seeds: Sequence[int]
) -> list[tuple[Trained, int]]:
    """Returns the recipes and seeds that lack a finished record, not outdated, for a row of `tables`."""
    rows = {id for table in tables for id in find_table(table).rows}
    finished = {
        (record.recipe, record.id, record.seed)
        for record in records
        if record.status == "done" and not is_outdated(record)
    }
    return [
        (recipe, seed)
        for recipe in recipes
        for seed in seeds
        if any(spec.id in rows and (recipe.name, spec.id, seed) not in finished for spec in recipe.evaluations)
    ]


def newest(records: Iterable[Record]) -> list[Record]:
    """Returns the finished record of each seed, the one started last if there are several."""
    finished = sorted((record for record in records if record.status == "done"), key=lambda record: record.started)
    by_seed = {record.seed: record for record in finished}
    return [by_seed[seed] for seed in sorted(by_seed)]


def mean_and_std(values: Sequence[float]) -> Spread:
    """Returns the mean and the standard deviation of a sample (n - 1), None for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


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
    name: str, groups: Mapping[str | None, list[Record]], models: Mapping[tuple[str | None, Form | None], str]
) -> Table:
    info = find_table(name)
    results: dict[str, dict[Form, Result]] = {id: {} for id in info.rows}
    counted: list[Record] = []
    warnings, outdated = [], 0
    for id, published in info.rows.items():
        records = groups.get(id, [])
        current = [record for record in records if not is_outdated(record)]
        outdated += len(records) - len(current)
        for form in FORMS:
            if (id, form) not in models:
                continue
            of_form = [record for record in current if form_of(record.recipe) == form]
            finished = newest(of_form)
            failed = sum(record.status == "failed" for record in of_form)
            results[id][form] = _result(models[id, form], finished, failed, accuracy=info.accuracy)
            counted += finished
            if len({record.data_sha256 for record in finished}) > 1:
                title = f"{published.title} on {published.dataset}, {form} recipe"
                warnings.append(f"{title}: the training data of the runs differ.")
    if outdated:
        warnings.append(f"{outdated} records are left out: their recipes have other settings now.")
    sources = sorted({str(record.metrics.get("source", "unknown")) for record in counted})
    return Table(name, info, results, sources, sorted({record.device for record in counted}), warnings)


def _result(model: str, records: Sequence[Record], failed: int, *, accuracy: bool) -> Result:
    if not records:
        return Result(model, failed=failed)
    errors = [record.test_error for record in records if record.test_error is not None]
    mean, std = mean_and_std([100 - error for error in errors] if accuracy else errors)
    common = set.intersection(*(set(record.metrics) for record in records))
    if accuracy and not _are_numbers(record.metrics.get("class_accuracy") for record in records):
        raise InputError(f"a record of {records[0].recipe} has no class_accuracy in its metrics")
    metrics = {name: [record.metrics[name] for record in records] for name in common}
    metrics["train_seconds"] = [record.train_seconds for record in records]
    seconds = [record.seconds_per_epoch for record in records if record.seconds_per_epoch is not None]
    return Result(
        model=model,
        n=len(records),
        failed=failed,
        mean=mean,
        std=std,
        metrics={name: mean_and_std(values) for name, values in metrics.items() if _are_numbers(values)},
        params=records[-1].params,
        seconds_per_epoch=statistics.fmean(seconds) if seconds else None,
    )


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)
