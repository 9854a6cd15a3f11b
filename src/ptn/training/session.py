"""Recipes and seeds in, weights and records out: what `ptn train` does."""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from ..data import Dataset, VoxelDataset, load_dataset, load_folder
from ..data.catalog import dataset_info
from ..data.dataset import hold_out
from ..errors import InputError
from ..files import make_folder
from ..models import load_model
from .fleet import FleetOutcome, out_of_memory, train_fleet
from .recipe import DataSpec, Recipe
from .records import Record, append_records, merge_records, read_records
from .results import conclude_run, data_sha256, failed_records, keep_weights, looks_for_origins, measure_rows
from .step import Parallel
from .trainer import Progress, Run, RunData, build_model, prepare_device


class Reporter(Protocol):
    """Who is told how a session goes."""

    def begin(self, run: Run) -> None: ...
    def epoch(self, run: Run, progress: Progress) -> None: ...
    def done(self, run: Run, records: Sequence[Record]) -> None: ...
    def failed(self, run: Run, reason: str) -> None: ...
    def tested(self, records: Sequence[Record]) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class SessionOptions:
    """Where and how recipes are trained: nothing of this changes a result, but for rounding in `fused` steps.

    `resume` goes on from checkpoints in `folder`, `fresh` throws them away; with neither, a run whose folder is
    not empty is an error. `at_once` bounds how many runs share a GPU. Records go to `folder`/records.jsonl, and
    to `results` where that is given.
    """

    folder: Path = Path("runs")
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    resume: bool = False
    fresh: bool = False
    budget_seconds: float | None = None
    at_once: int = 16
    checkpoint_every: int = 10
    fused: bool | None = None
    results: Path | None = None
    parallel: Parallel | None = None

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.parallel is None or self.parallel.shard.rank == 0

    def wait(self) -> None:
        """Until all processes of this run are here."""
        if self.parallel is not None:
            self.parallel.wait()


def train_recipes(recipes: Sequence[Recipe], options: SessionOptions, reporter: Reporter) -> FleetOutcome:
    """Train every recipe (each with its own seed), test each once, and keep weights and records.

    A run that is finished already is not trained again, but tested for rows that its recipe has got since; its
    records still go to `results`.
    """
    _check_together(recipes)
    finished = [] if options.fresh else [recipe for recipe in recipes if _is_finished(recipe, options)]
    waiting = [recipe for recipe in recipes if recipe not in finished]
    options.wait()  # nobody makes files before all have seen which runs are finished
    data = _Data()
    _check_networks(waiting, options, data)
    if options.fresh:
        _throw_away(waiting, options)
    if options.leads:
        for recipe in finished:
            _add_rows(recipe, options, reporter, data)
    if finished and options.results is not None and options.leads:
        folders = [run_folder(recipe, options.folder) for recipe in finished]
        merge_records(options.results, [folder / "result.jsonl" for folder in folders])

    def finish(run: Run) -> None:
        try:
            if options.leads:
                conclude(run)
        finally:  # the others wait, whatever becomes of it
            options.wait()

    def conclude(run: Run) -> None:
        test, clean = data.to_test_on(run.recipe)
        model, records = conclude_run(run, test, clean=clean)
        folder = run_folder(run.recipe, options.folder)
        error = records[0].test_error
        assert error is not None
        keep_weights(model, run, folder / "weights.safetensors", error=error)
        _keep_records(records, folder, options)
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        reporter.done(run, records)

    def give_up(run: Run, reason: str) -> None:
        if options.leads:
            _keep_records(failed_records(run, reason), run_folder(run.recipe, options.folder), options)
            reporter.failed(run, reason)

    try:
        return train_fleet(
            [partial(_start_run, recipe, options, reporter, data) for recipe in waiting],
            at_once=1 if options.parallel else options.at_once,
            budget_seconds=options.budget_seconds,
            on_done=finish,
            on_failed=give_up,
        )
    finally:
        reporter.close()


class _Data:
    """Splits that several runs share, each loaded once."""

    def __init__(self) -> None:
        self.loaded: dict[str, Dataset | VoxelDataset] = {}

    def get(self, spec: DataSpec, split: str, *, seed: int) -> Dataset | VoxelDataset:
        held = [spec.hold_out, seed] if spec.hold_out else []
        key = json.dumps([spec.name, split, spec.options, held], sort_keys=True)
        if key not in self.loaded:
            self.loaded[key] = load_split(spec, split, seed=seed)
        return self.loaded[key]

    def to_test_on(self, recipe: Recipe) -> tuple[Dataset | VoxelDataset, Dataset | VoxelDataset | None]:
        """The test set, and the same without clutter where origins are compared with the true ones."""
        spec, seed = recipe.data, recipe.seed
        test = self.get(spec, spec.test, seed=seed)
        if not (looks_for_origins(recipe, test) and test.meta.get("clutter")):
            return test, None
        without = replace(spec, options={**spec.options, "clutter": 0})
        return test, self.get(without, spec.test, seed=seed)


def _add_rows(recipe: Recipe, options: SessionOptions, reporter: Reporter, data: _Data) -> None:
    """Test the network of a finished run for the rows that its recipe has got since, where there are any."""
    folder = run_folder(recipe, options.folder)
    left = read_records(folder / "result.jsonl")
    tested = {(record.table, record.row) for record in left}
    rows = [row for row in recipe.rows if (row.table, row.row) not in tested]
    if not rows or left[0].status == "failed":
        return
    trained_on = data.get(recipe.data, recipe.data.train, seed=recipe.seed)
    if data_sha256(trained_on) != left[0].data_sha256:
        raise InputError(
            f"{folder} has a run that was trained on another {recipe.data.name} than there is now, so it cannot be "
            f"tested for {rows[0].row}: start over with --fresh"
        )
    prepare_device(recipe, options.device)
    model = load_model(folder / "weights.safetensors").to(options.device)
    test, clean = data.to_test_on(recipe)
    records = measure_rows(recipe, rows, left[0], model, test, clean=clean)
    _keep_records(records, folder, options)
    reporter.tested(records)


def _start_run(recipe: Recipe, options: SessionOptions, reporter: Reporter, data: _Data) -> Run:
    folder = run_folder(recipe, options.folder)
    prepare_device(recipe, options.device)
    spec, seed = recipe.data, recipe.seed
    splits = RunData(
        data.get(spec, spec.train, seed=seed), data.get(spec, spec.valid, seed=seed) if spec.valid else None
    )
    try:
        run = Run(
            recipe,
            splits,
            options.device,
            folder,
            parallel=options.parallel,
            fused=options.fused,
            checkpoint_every=options.checkpoint_every,
            on_epoch=reporter.epoch if options.leads else None,
        )
    except torch.OutOfMemoryError as error:
        raise out_of_memory(recipe, options.device) from error
    make_folder(folder)  # only now: what cannot be trained leaves none behind
    if options.resume:
        run.resume()
    if options.leads:
        reporter.begin(run)
    return run


def _check_together(recipes: Sequence[Recipe]) -> None:
    """What holds for the whole process must be the same for all runs in it."""
    if not recipes:
        raise InputError("no recipe to train: see `ptn train --list`")
    if len({(recipe.precision, recipe.deterministic) for recipe in recipes}) > 1:
        raise InputError("recipes of different precision or determinism cannot train together: train them apart")
    names = [(recipe.name, recipe.seed) for recipe in recipes]
    if len(set(names)) < len(names):
        raise InputError("the same recipe and seed is named twice")


def _check_networks(recipes: Sequence[Recipe], options: SessionOptions, data: _Data) -> None:
    """Make every network once before earlier runs are thrown away, or hours go into the first of several."""
    distinct = {recipe.sha256: recipe for recipe in recipes}
    if options.fresh or len(distinct) > 1:
        for recipe in distinct.values():
            build_model(recipe, data.get(recipe.data, recipe.data.train, seed=recipe.seed))


def _throw_away(recipes: Sequence[Recipe], options: SessionOptions) -> None:
    """Remove what earlier runs of `recipes` have left."""
    if options.leads:
        for recipe in recipes:
            shutil.rmtree(run_folder(recipe, options.folder), ignore_errors=True)
    options.wait()


def _is_finished(recipe: Recipe, options: SessionOptions) -> bool:
    """Whether a run's folder says that it is done; an error if it says something that we may not touch."""
    folder = run_folder(recipe, options.folder)
    if not folder.exists() or not any(folder.iterdir()):
        return False
    if not options.resume:
        if (folder / "result.jsonl").exists():
            raise InputError(
                f"{folder} has a finished run in it: start over with --fresh, or keep it with --resume"
            )
        raise InputError(f"{folder} has a run in it: go on with --resume, or start over with --fresh")
    left = read_records(folder / "result.jsonl") if (folder / "result.jsonl").exists() else []
    if any(record.config_sha256 != recipe.sha256 for record in left):
        raise InputError(f"{folder} has a finished run with other settings: start over with --fresh")
    return bool(left)  # a file without a whole record is what an interrupted write leaves


def _keep_records(records: Sequence[Record], folder: Path, options: SessionOptions) -> None:
    append_records(options.folder / "records.jsonl", records)
    if options.results is not None:
        append_records(options.results, records)
    # last, because it says that the run is finished
    append_records(folder / "result.jsonl", records)


def run_folder(recipe: Recipe, folder: Path) -> Path:
    """Where a run keeps its checkpoint and weights."""
    return folder / recipe.name.replace("/", ".") / f"seed-{recipe.seed}"


def with_seeds(recipe: Recipe, seeds: Iterable[int]) -> list[Recipe]:
    """The same recipe once for each seed."""
    return [replace(recipe, seed=seed) for seed in seeds]


def _leaves_a_validation_set(spec: DataSpec) -> bool:
    """Whether there is one that is not trained on."""
    return "valid" in set(dataset_info(spec.name).splits) - set(spec.train.split("+"))


def load_split(spec: DataSpec, split: str, *, seed: int = 0) -> Dataset | VoxelDataset:
    """A split of a recipe's data; `seed` is the run's, by which samples are held out."""
    if spec.hold_out and split in (spec.train, "valid"):
        if spec.name == "folder" or _leaves_a_validation_set(spec):
            raise InputError(f"{spec.name} has a validation set of its own: leave data.hold_out at 0")
        kept, held = hold_out(load_split(replace(spec, hold_out=0), spec.train), spec.hold_out, seed=seed)
        return kept if split == spec.train else held
    if spec.name != "folder":
        return load_dataset(spec.name, split, **spec.options)
    options = dict(spec.options)
    return load_folder(Path(options.pop("root")), split, **options)
