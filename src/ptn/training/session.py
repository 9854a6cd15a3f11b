"""Training sessions: recipes in, weights and records out."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..config import build, check, check_options
from ..data import load_dataset, load_folder
from ..data.dataset import AnyDataset, data_sha256
from ..data.folder import OPTIONS as FOLDER_OPTIONS
from ..device import Parallel, describe_device, prepare_device
from ..errors import InputError
from ..evaluation import check_tta, evaluate
from ..files import empty_folder, locked_folder, read_tensors
from ..models import Model, count_parameters, save_weights
from ..models.zoo import decode_metadata
from .fleet import FleetOutcome, train_fleet
from .progress import PlainReporter, QuietReporter, advice, make_reporter
from .recipe import DataSpec, EvaluationSpec, Recipe
from .records import Record, append_records, check_appendable, git_commit, read_records
from .report import write_report
from .trainer import CHECKPOINTS, LOG, Run, RunData, build_model, check_data, check_machine

ExtraMetrics = Callable[[Model, Recipe, AnyDataset, EvaluationSpec], dict[str, Any]]


def run_folder(recipe: Recipe, folder: Path) -> Path:
    """Returns the folder of a run's checkpoint, weights and records."""
    return folder / recipe.name.replace("/", ".") / f"seed-{recipe.seed}"


def with_seeds(recipe: Recipe, seeds: Iterable[int]) -> list[Recipe]:
    """Returns a copy of the recipe for each seed."""
    return [replace(recipe, seed=seed) for seed in seeds]


def load_split(spec: DataSpec, split: str) -> AnyDataset:
    """Returns a split of a recipe's data."""
    if spec.name == "folder":
        required = {"root", "image_size"}
        check("data.options", spec.options, required <= spec.options.keys(), "an object with root and image_size")
        options = check_options(load_folder, spec.options, FOLDER_OPTIONS, "option of folder")
        return load_folder(**options, split=split)
    return load_dataset(spec.name, split, **spec.options)


@dataclass(kw_only=True)
class Session:
    """Where and how recipes are trained. No option changes results, except for rounding by `fused`.

    Attributes:
        folder: Folder of all runs; records are appended to `folder`/records.jsonl.
        resume, fresh: Continue or delete earlier runs of the recipes; without either, these are an error.
        budget_seconds: Time after which all runs write a checkpoint and stop.
        at_once: Number of runs that share a GPU.
        checkpoint_every: Number of epochs between checkpoints.
        fused: See `Run`.
        results: A second file that records are appended to.
        extra_metrics: Returns further metrics of a trained model for the record of an evaluation.
        build_network: Returns the network of a recipe, initialized by its seed, for a training set; a `Network`, or
            another module with its attributes input_shape, config, classes and metadata.
        reporter: Prints the progress; by default to standard output.
        splits: Data sets that are loaded already; sessions may share them.
    """

    folder: Path
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    resume: bool = False
    fresh: bool = False
    budget_seconds: float | None = None
    at_once: int = 16
    checkpoint_every: int = 10
    fused: bool | None = None
    results: Path | None = None
    extra_metrics: ExtraMetrics | None = None
    build_network: Callable[[Recipe, AnyDataset], Any] = build_model
    parallel: Parallel = field(default_factory=Parallel)
    reporter: PlainReporter = field(default_factory=make_reporter)
    splits: dict[str, AnyDataset] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        budget = self.budget_seconds
        check("budget_seconds", budget, budget is None or budget >= 0, "at least 0")
        if not self.parallel.leads:
            self.reporter = QuietReporter()

    def train(self, recipes: Sequence[Recipe]) -> FleetOutcome:
        """Trains recipes (each with its own seed), evaluates each on its test set, and writes weights and records.

        A finished run is not trained again.
        """
        if len({recipe.precision == "fp32" for recipe in recipes}) > 1:  # TF32 is a global setting
            raise InputError("recipes with and without TF32 (fp32) cannot be trained in one session")
        _check_names(recipes)
        with ExitStack() as locks:
            if self.parallel.leads:
                for recipe in recipes:
                    locks.enter_context(locked_folder(self._folder(recipe)))
            return self._train(recipes)

    def check(self, recipes: Sequence[Recipe]) -> None:
        """Raises `InputError` if a recipe cannot be trained and tested, or its folder has a run already."""
        _check_names(recipes)
        for recipe in recipes:
            if not (self.resume or self.fresh):
                self._is_finished(recipe)
        for recipe in {recipe.name: recipe for recipe in recipes}.values():
            self._check(recipe, self._build(recipe))

    def _train(self, recipes: Sequence[Recipe]) -> FleetOutcome:
        finished = [] if self.fresh else [recipe for recipe in recipes if self._is_finished(recipe)]
        waiting = [recipe for recipe in recipes if recipe not in finished]
        self.parallel.wait()  # no process writes files before all have checked for finished runs
        distinct = {recipe.sha256: recipe for recipe in waiting}
        if self.fresh or len(distinct) > 1:  # errors come before runs are deleted, or hours spent on the first
            for recipe in distinct.values():
                self._check(recipe, self._build(recipe))
        for path in self._record_files():
            check_appendable(path)
        if self.parallel.leads:
            for recipe in recipes if self.fresh else []:
                empty_folder(self._folder(recipe))
            for recipe in finished:  # it may have been killed while it wrote its records
                self._publish(recipe, self._records(recipe))
        self.parallel.wait()
        try:
            outcome = train_fleet(
                [partial(self._start, recipe) for recipe in waiting],
                at_once=self.at_once if self.parallel.world == 1 else 1,
                budget_seconds=self.budget_seconds,
                on_done=self._finish,
                on_failed=self._fail,
            )
        finally:
            self.reporter.close()
        for recipe in finished:
            if (record := self._records(recipe)[0]).status == "failed":
                outcome.failed.append((recipe, str(record.metrics.get("reason"))))
                LOG.warning(
                    "%s failed before: %s; --fresh starts over", self._folder(recipe), outcome.failed[-1][1]
                )
        return outcome

    def _folder(self, recipe: Recipe) -> Path:
        return run_folder(recipe, self.folder)

    def _load(self, recipe: Recipe, split: str) -> AnyDataset:
        key = json.dumps([recipe.data.name, split, recipe.data.options])
        if key not in self.splits:
            self.splits[key] = load_split(recipe.data, split)
        return self.splits[key]

    def _build(self, recipe: Recipe) -> Any:
        return self.build_network(recipe, self._load(recipe, recipe.data.train))

    def _records(self, recipe: Recipe) -> list[Record]:
        """Returns the records of a finished run; none if their writing was interrupted."""
        path = self._folder(recipe) / "result.jsonl"
        return read_records(path) if path.exists() else []

    def _record_files(self) -> list[Path]:
        """Returns the files of records of several runs."""
        return [self.folder / "records.jsonl", *([self.results] if self.results is not None else [])]

    def _check(self, recipe: Recipe, model: Model) -> None:
        """Raises `InputError` if the trained model could not be tested."""
        train = self._load(recipe, recipe.data.train)
        for split in (recipe.data.valid, recipe.data.test):
            data = train if split is None else self._load(recipe, split)
            if data.classes != train.classes:
                raise InputError(f"{recipe.name}: the splits {data.split} and {train.split} have other classes")
            if split is not None and (shape := data.image_shape) != model.input_shape:
                raise InputError(f"{recipe.name}: the images of {split} are {shape}, not {model.input_shape}")
        for evaluation in recipe.evaluations:
            check_tta(model, rotations=evaluation.rotations, origins=evaluation.origins)

    def _is_finished(self, recipe: Recipe) -> bool:
        """Returns whether the run has records; raises `InputError` if its folder must not be changed."""
        folder = self._folder(recipe)
        if not folder.exists() or not any(folder.iterdir()):
            return False
        if not self.resume:
            raise InputError(f"{folder} has a run: keep or continue it with --resume, or start over with --fresh")
        records = self._records(recipe)
        if not records or self._continues(recipe, records[0]):
            return False
        evaluations = {EvaluationSpec(record.id, record.rotations, record.origins) for record in records}
        if records[0].config_sha256 != recipe.sha256 or not evaluations.issuperset(recipe.evaluations):
            raise InputError(
                f"{folder} has a finished run with other settings or evaluations: start over with --fresh"
            )
        self._compare(recipe, records[0])
        return not self._lacks_report(recipe, records[0])

    def _lacks_report(self, recipe: Recipe, record: Record) -> bool:
        """Returns whether a run on a folder was killed before its report was written, and a checkpoint is left."""
        folder, possible = self._folder(recipe), record.status == "done" and find_spec("matplotlib") is not None
        wanted = recipe.data.name == "folder" and not (folder / "report.html").exists()
        return wanted and possible and (folder / CHECKPOINTS[0]).exists()

    def _continues(self, recipe: Recipe, record: Record) -> bool:
        """Returns whether a finished run is to be trained for more epochs, or for a longer time."""
        limits = {"epochs": recipe.epochs, "max_seconds": recipe.max_seconds}
        before = build(Recipe, {"name": recipe.name, **record.config, **limits})
        more = record.config_sha256 != recipe.sha256 == before.sha256
        more &= recipe.can_extend(record.epochs, record.config.get("max_seconds"))
        return more and (self._folder(recipe) / CHECKPOINTS[0]).exists()

    def _compare(self, recipe: Recipe, record: Record) -> None:
        """Raises `InputError` if the data of a finished run have changed or its weights are damaged."""
        folder = self._folder(recipe)
        train = self._load(recipe, recipe.data.train)
        before, now = [record.data_sha256], [data_sha256(train)]
        splits = {"valid_sha256": recipe.data.valid, "test_sha256": recipe.data.test}
        for name, split in splits.items():
            if split is not None and name in record.metrics:
                before.append(record.metrics[name])
                now.append(data_sha256(self._load(recipe, split)))
        if record.status == "done":
            path = folder / "weights.safetensors"
            _, classes, _ = decode_metadata(read_tensors(path, "weights file")[1], path)
            before, now = [*before, *(classes or ())], [*now, *train.classes]
        check_data(folder, before, now)
        check_machine(folder, (record.torch, record.device), (torch.__version__, describe_device(self.device)))

    def _start(self, recipe: Recipe) -> Run:
        valid = recipe.data.valid
        prepare_device(recipe.precision)
        run = Run(
            recipe,
            RunData(
                self._load(recipe, recipe.data.train),
                self._load(recipe, valid) if valid else None,
                data_sha256(self._load(recipe, recipe.data.test)),
            ),
            self.device,
            self._folder(recipe),
            network=self._build(recipe),
            parallel=self.parallel,
            fused=self.fused,
            checkpoint_every=self.checkpoint_every,
            on_epoch=self.reporter.epoch,
            on_step=self.reporter.step,
            on_best=self._save,
        )
        self._check(recipe, run.template)
        if self.resume:
            run.resume()
        self.reporter.begin(run)
        return run

    def _finish(self, run: Run) -> None:
        try:
            if self.parallel.leads:
                self._evaluate(run)
        finally:  # the other processes wait for this one, also if it fails
            self.parallel.wait()

    def _fail(self, run: Run, reason: str) -> None:
        if self.parallel.leads:
            record = make_record(run, {"reason": reason})
            self._write(run.recipe, [replace(record, **vars(evaluation)) for evaluation in run.recipe.evaluations])
            self.reporter.failed(run, reason)

    def _evaluate(self, run: Run) -> None:
        """Evaluates a trained run and writes its weights and records."""
        recipe, model = run.recipe, run.finished_model()
        metrics: dict[str, Any] = {}
        if run.best_error is not None:
            metrics["valid_error"] = run.best_error
        elif run.data.valid is not None:
            metrics["valid_error"] = round(evaluate(model, run.data.valid, precision=recipe.precision).error, 6)
        blank = make_record(run, metrics)
        # of a run that lacks only its report; its checkpoint has less than the whole training time
        before = [record for record in self._records(recipe) if record.run == blank.run]
        if not before or (before[0].epochs, before[0].status) != (run.epoch, "done"):
            before = []
        records = before or [self._test(model, recipe, evaluation, blank) for evaluation in recipe.evaluations]
        self._save(run, model, test_error=records[0].test_error)
        self._write(recipe, records)
        self.reporter.done(run, records)
        for line in advice(run, model):
            self.reporter.print(line)
        if recipe.data.name == "folder":
            self.reporter.print(
                write_report(run, model, self._load(recipe, recipe.data.test), self._folder(recipe))
            )

    def _save(self, run: Run, model: Model, **facts: Any) -> None:
        """Writes the weights of a run, the final ones or the best so far."""
        recipe, options = run.recipe, dict(run.recipe.data.options)
        if "root" in options:  # the weights may be evaluated from another working directory
            options["root"] = str(Path(options["root"]).absolute())
        model.classes = tuple(run.data.train.classes)
        model.metadata = {
            "dataset": recipe.data.name,
            "dataset_options": options,
            "fit": recipe.data.options.get("fit", "resize"),
            "recipe": recipe.name,
            "seed": recipe.seed,
            **facts,
        }
        save_weights(model, self._folder(recipe) / "weights.safetensors")

    def _test(self, model: Model, recipe: Recipe, evaluation: EvaluationSpec, blank: Record) -> Record:
        """Returns the record of one evaluation; `blank` has the fields and metrics that all of a run share."""
        test = self._load(recipe, recipe.data.test)
        rotations, origins = evaluation.rotations, evaluation.origins
        start = time.perf_counter()
        result = evaluate(model, test, rotations=rotations, origins=origins, precision=recipe.precision)
        metrics = {
            "source": test.meta.get("source"),
            "test_sha256": data_sha256(test),
            "test_count": result.n,
            "test_seconds": round(time.perf_counter() - start, 3),
            "per_class_accuracy": [None if value is None else round(value, 2) for value in result.per_class],
            "class_accuracy": round(result.class_accuracy, 4),
        }
        if self.extra_metrics is not None:
            metrics |= self.extra_metrics(model, recipe, test, evaluation)
        metrics |= blank.metrics
        error = round(result.error, 6)
        return replace(blank, test_error=error, metrics=metrics, status="done", **vars(evaluation))

    def _write(self, recipe: Recipe, records: Sequence[Record]) -> None:
        result = self._folder(recipe) / "result.jsonl"
        result.unlink(missing_ok=True)  # the result of fewer epochs
        append_records(result, records)  # first: it marks the run as finished
        self._publish(recipe, records)

    def _publish(self, recipe: Recipe, records: Sequence[Record]) -> None:
        """Copies the records of a run to the other files, then deletes its checkpoints unless it failed.

        A run with the schedule "hold" keeps the last one: it can be continued with more epochs.
        """
        for path in self._record_files():
            append_records(path, records, only_new=True)
        done = records[0].status == "done"
        for name in CHECKPOINTS[recipe.schedule.kind == "hold" :] if done else ():
            (self._folder(recipe) / name).unlink(missing_ok=True)


def _check_names(recipes: Sequence[Recipe]) -> None:
    [((name, seed), count)] = Counter((recipe.name, recipe.seed) for recipe in recipes).most_common(1)
    if count > 1:
        raise InputError(
            f"{count} runs have the same name and seed, {name} and {seed}: give every model and seed once, "
            "and several models without --set name"
        )


def make_record(run: Run, metrics: dict[str, Any]) -> Record:
    """Returns the record of a run without a test error: that of a failed run."""
    recipe = run.recipe
    if run.data.valid is not None:
        metrics = {**metrics, "valid_sha256": data_sha256(run.data.valid)}
    return Record(
        run=f"{recipe.name}#{recipe.seed}@{run.started}",
        recipe=recipe.name,
        dataset=recipe.data.name,
        model=recipe.model.name,
        params=count_parameters(run.model),
        seed=recipe.seed,
        test_error=None,
        metrics=metrics,
        epochs=run.epoch,
        train_seconds=round(run.seconds, 3),
        seconds_per_epoch=round(run.seconds / run.epoch, 5) if run.epoch else None,
        selection=recipe.selection,
        data_sha256=data_sha256(run.data.train),
        config=recipe.changes(),
        config_sha256=recipe.sha256,
        git=git_commit(),
        torch=torch.__version__,
        device=describe_device(run.device),
        precision=recipe.precision,
        started=run.started,
        status="failed",
    )
