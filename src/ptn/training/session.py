"""Training sessions: recipes in, weights and records out; and `fit`, for a model and data in memory."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import build, override
from ..data import Dataset, VoxelDataset, load_dataset, load_folder
from ..data.augment import AugmentSpec
from ..data.catalog import dataset_info
from ..data.dataset import hold_out, subset
from ..device import Precision, choose_device, describe_device
from ..errors import InputError
from ..evaluation import evaluate, match_classes, scores
from ..files import make_folder, save_tensors
from ..models import Model, ModelConfig, Network, count_parameters, save_weights
from .distributed import Parallel
from .fleet import FleetOutcome, out_of_memory, train_fleet
from .progress import PlainReporter, QuietReporter, make_reporter
from .recipe import DataSpec, EvaluationSpec, Recipe, default_recipe
from .records import Record, append_records, git_commit, merge_records, read_records
from .trainer import Progress, Run, RunData, build_model, channel_statistics, prepare_device, restored_settings

AnyDataset = Dataset | VoxelDataset
ExtraMetrics = Callable[[Model, Recipe, AnyDataset, EvaluationSpec], dict[str, Any]]


@dataclass(frozen=True)
class SessionOptions:
    """Where and how recipes are trained. No option changes results, except for rounding by `fused`.

    Attributes:
        folder: Folder of all runs; records are appended to `folder`/records.jsonl.
        resume: Continue from the checkpoints in `folder`.
        fresh: Delete earlier runs of the recipes. Without `resume` and `fresh`, a folder that is not empty is an
            error.
        budget_seconds: Time after which all runs write a checkpoint and stop.
        at_once: Number of runs that share a GPU.
        checkpoint_every: Number of epochs between checkpoints.
        fused: See `Run`.
        results: A second file that records are appended to.
        extra_metrics: Returns further metrics of a trained model for the record of an evaluation.
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
    extra_metrics: ExtraMetrics | None = None
    parallel: Parallel = field(default_factory=Parallel)


def train_recipes(recipes: Sequence[Recipe], options: SessionOptions, reporter: PlainReporter) -> FleetOutcome:
    """Trains recipes (each with its own seed), evaluates each on its test set, and writes weights and records.

    A finished run is not trained again.
    """
    if not recipes:
        raise InputError("no recipe to train")
    if len({recipe.precision for recipe in recipes}) > 1:
        raise InputError("recipes of different precision cannot be trained in one session")
    if len({(recipe.name, recipe.seed) for recipe in recipes}) < len(recipes):
        raise InputError("two recipes have the same name and seed")
    try:
        return _Session(options, reporter).train(recipes)
    finally:
        reporter.close()


def run_folder(recipe: Recipe, folder: Path) -> Path:
    """Returns the folder of a run's checkpoint, weights and records."""
    return folder / recipe.name.replace("/", ".") / f"seed-{recipe.seed}"


def with_seeds(recipe: Recipe, seeds: Iterable[int]) -> list[Recipe]:
    """Returns a copy of the recipe for each seed."""
    return [replace(recipe, seed=seed) for seed in seeds]


def load_split(spec: DataSpec, split: str, *, seed: int = 0) -> AnyDataset:
    """Returns a split of a recipe's data; `seed` is that of the run, which draws the samples held out."""
    if spec.hold_out and split in (spec.train, "valid"):
        if spec.name == "folder" or "valid" in set(dataset_info(spec.name).splits) - set(spec.train.split("+")):
            raise InputError(f"{spec.name} has a validation set of its own: leave data.hold_out at 0")
        kept, held_out = hold_out(load_split(replace(spec, hold_out=0), spec.train), spec.hold_out, seed=seed)
        return kept if split == spec.train else held_out
    if spec.name != "folder":
        return load_dataset(spec.name, split, **spec.options)
    options = dict(spec.options)
    return load_folder(Path(options.pop("root")), split, **options)


class _Session:
    """State of `train_recipes`: the options, and the splits that runs share."""

    def __init__(self, options: SessionOptions, reporter: PlainReporter) -> None:
        self.options = options
        self.reporter = reporter if options.parallel.leads else QuietReporter()
        self.splits: dict[str, AnyDataset] = {}

    def train(self, recipes: Sequence[Recipe]) -> FleetOutcome:
        options = self.options
        finished = [] if options.fresh else [recipe for recipe in recipes if self._is_finished(recipe)]
        waiting = [recipe for recipe in recipes if recipe not in finished]
        options.parallel.wait()  # no process writes files before all have checked for finished runs
        distinct = {recipe.sha256: recipe for recipe in waiting}
        if options.fresh or len(distinct) > 1:  # before runs are deleted, or hours spent on the first of several
            for recipe in distinct.values():
                build_model(recipe, self._load(recipe, recipe.data.train))
        if options.fresh and options.parallel.leads:
            for recipe in recipes:
                shutil.rmtree(self._folder(recipe), ignore_errors=True)
        if options.results is not None and options.parallel.leads and finished:
            merge_records(options.results, [self._folder(recipe) / "result.jsonl" for recipe in finished])
        options.parallel.wait()
        return train_fleet(
            [partial(self._start, recipe) for recipe in waiting],
            at_once=options.at_once if options.parallel.world == 1 else 1,
            budget_seconds=options.budget_seconds,
            on_done=self._finish,
            on_failed=self._fail,
        )

    def _folder(self, recipe: Recipe) -> Path:
        return run_folder(recipe, self.options.folder)

    def _load(self, recipe: Recipe, split: str) -> AnyDataset:
        spec = recipe.data
        key = json.dumps([spec.name, split, spec.options, [spec.hold_out, recipe.seed] if spec.hold_out else []])
        if key not in self.splits:
            self.splits[key] = load_split(spec, split, seed=recipe.seed)
        return self.splits[key]

    def _is_finished(self, recipe: Recipe) -> bool:
        """True if the run has records. Raises if its folder must not be touched with these options."""
        folder = self._folder(recipe)
        if not folder.exists() or not any(folder.iterdir()):
            return False
        results = folder / "result.jsonl"
        if not self.options.resume:
            state, keep = ("a finished run", "keep it") if results.exists() else ("a run", "continue")
            raise InputError(f"{folder} has {state}: {keep} with --resume, or start over with --fresh")
        records = read_records(results) if results.exists() else []
        if not records:  # an interrupted write leaves a file without a record
            return False
        evaluations = {EvaluationSpec(record.id, record.rotations, record.origins) for record in records}
        if records[0].config_sha256 != recipe.sha256 or not evaluations.issuperset(recipe.evaluations):
            raise InputError(
                f"{folder} has a finished run with other settings or evaluations: start over with --fresh"
            )
        return True

    def _start(self, recipe: Recipe) -> Run:
        options, valid = self.options, recipe.data.valid
        prepare_device(recipe.precision)
        train = self._load(recipe, recipe.data.train)
        try:
            run = Run(
                recipe,
                RunData(train, None if valid is None else self._load(recipe, valid)),
                options.device,
                self._folder(recipe),
                parallel=options.parallel,
                fused=options.fused,
                checkpoint_every=options.checkpoint_every,
                on_epoch=self.reporter.epoch,
            )
        except torch.OutOfMemoryError as error:
            raise out_of_memory(recipe, options.device) from error
        make_folder(self._folder(recipe))  # only now: a recipe that cannot be trained leaves no folder
        if options.resume:
            run.resume()
        self.reporter.begin(run)
        return run

    def _finish(self, run: Run) -> None:
        try:
            if self.options.parallel.leads:
                self._evaluate(run)
        finally:
            self.options.parallel.wait()

    def _fail(self, run: Run, reason: str) -> None:
        if self.options.parallel.leads:
            record = replace(make_record(run), metrics={"reason": reason})
            self._write(run.recipe, [replace(record, **vars(evaluation)) for evaluation in run.recipe.evaluations])
            self.reporter.failed(run, reason)

    def _evaluate(self, run: Run) -> None:
        """Evaluates a trained run and writes its records and weights."""
        recipe, model = run.recipe, run.finished_model()
        common: dict[str, Any] = {"together": run.together}
        if run.best_error is not None:
            common["valid_error"] = run.best_error
        elif run.data.valid is not None:
            common["valid_error"] = round(evaluate(model, run.data.valid, precision=recipe.precision).error, 6)
        blank = make_record(run)
        records: list[Record] = []
        results: dict[tuple[int, int], tuple[float, dict[str, Any]]] = {}
        for evaluation in recipe.evaluations:
            tta = evaluation.rotations, evaluation.origins
            if tta not in results:
                results[tta] = self._measure(recipe, model, evaluation)
            error, metrics = results[tta]
            values = {"test_error": error, "metrics": metrics | common, "status": "done", **vars(evaluation)}
            records.append(replace(blank, **values))
        model.classes = tuple(run.data.train.classes)
        model.metadata = {
            "dataset": recipe.data.name,
            "dataset_options": recipe.data.options,
            "fit": recipe.data.options.get("fit", "resize"),
            "recipe": recipe.name,
            "seed": recipe.seed,
            "test_error": records[0].test_error,
        }
        folder = self._folder(recipe)
        save_weights(model, folder / "weights.safetensors")
        self._write(recipe, records)
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        self.reporter.done(run, records)

    def _measure(self, recipe: Recipe, model: Model, evaluation: EvaluationSpec) -> tuple[float, dict[str, Any]]:
        """Returns the test error and the metrics of an evaluation."""
        test = self._load(recipe, recipe.data.test)
        rotations, origins = evaluation.rotations, evaluation.origins
        start = time.perf_counter()
        result = evaluate(model, test, rotations=rotations, origins=origins, precision=recipe.precision)
        metrics = {
            "source": test.meta.get("source"),
            "test_count": result.n,
            "test_seconds": round(time.perf_counter() - start, 3),
            "per_class_accuracy": [None if value is None else round(value, 2) for value in result.per_class],
            "class_accuracy": round(result.class_accuracy, 4),
        }
        if self.options.extra_metrics is not None:
            metrics |= self.options.extra_metrics(model, recipe, test, evaluation)
        return round(result.error, 6), metrics

    def _write(self, recipe: Recipe, records: Sequence[Record]) -> None:
        append_records(self.options.folder / "records.jsonl", records)
        if self.options.results is not None:
            append_records(self.options.results, records)
        append_records(self._folder(recipe) / "result.jsonl", records)  # last: it marks the run as finished


def make_record(run: Run) -> Record:
    """Returns the record of a run without a result."""
    recipe = run.recipe
    return Record(
        run=f"{recipe.name}#{recipe.seed}@{run.started}",
        recipe=recipe.name,
        dataset=recipe.data.name,
        model=recipe.model.name,
        params=count_parameters(run.model),
        seed=recipe.seed,
        test_error=None,
        metrics={},
        epochs=run.epoch,
        train_seconds=round(run.seconds, 3),
        seconds_per_epoch=round(run.seconds / run.epoch, 5) if run.epoch else None,
        selection=recipe.selection,
        data_sha256=str(run.data.train.meta.get("sha256", "")),
        config=recipe.changes(),
        config_sha256=recipe.sha256,
        git=git_commit(),
        torch=torch.__version__,
        device=describe_device(run.device),
        precision=recipe.precision,
        started=run.started,
        status="failed",
    )


# --- fit


@dataclass(frozen=True)
class History:
    """Result of `fit`.

    Attributes:
        epochs: Losses and errors of each epoch.
        best_epoch: The epoch (from 1) whose weights were kept: the best on validation images, else the last.
        seconds: Training time.
    """

    epochs: list[Progress]
    best_epoch: int
    seconds: float


TrainingData = AnyDataset | str | Path | tuple[Tensor, Tensor]


def fit(
    model: nn.Module,
    train: TrainingData,
    valid: TrainingData | None = None,
    *,
    epochs: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    augment: Mapping[str, Any] | None = None,
    seed: int = 0,
    precision: Precision = "fp32",
    device: torch.device | str = "auto",
    folder: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> History:
    """Trains a model in place and returns its history.

    Afterwards the model is in evaluation mode, on the device that it was on, with the weights of the best epoch on
    the validation images (without them, of the last epoch), and `model.classes` has the names of the classes.

    >>> model = ptn.create_model("ptn_s", num_classes=3, in_chans=3, image_size=64)  # doctest: +SKIP
    >>> history = ptn.fit(model, "photos", augment={"rotation_deg": 180})  # doctest: +SKIP

    Args:
        model: A model of `create_model`, `load_model` or `polarize`, or any module: images in [0, 1] -> logits.
            A network without a normalization gets that of the training images.
        train: A data set, a folder of images (see `load_folder`), or images (N, C, H, W), uint8 or floats in
            [0, 1], and labels (N,). Images are kept as bytes.
        valid: Validation data of the same kinds; by default the validation split of a folder, else none.
        epochs: By default about 3,000 steps, at least 10 and at most 200 epochs.
        batch: By default 100 images or 32 voxel grids, less for small data sets.
        lr: Peak learning rate of Adam with a cosine schedule; by default 0.01 for the networks of `list_models`
            for images, else 0.001.
        augment: Options of `AugmentSpec`, such as `{"rotation_deg": 180, "scale": (0.8, 1.2)}`.
        device: Where to train; "auto" is the GPU if there is one.
        folder: Folder for checkpoints and the final weights. An interrupted call with the same arguments resumes.
        settings: Further settings of a `Recipe` by dotted key: `{"optimizer.weight_decay": 0.01}`.
        progress: Print the progress.
    """
    train_set = _as_dataset(model, train, "train")
    if valid is None and isinstance(train, str | Path):
        valid = train
    valid_set = None
    if valid is not None:
        valid_set = match_classes(_as_dataset(model, valid, "valid", train_set.classes), train_set.classes)
    config = getattr(model, "config", None)
    name = config.name if isinstance(config, ModelConfig) else type(model).__name__
    data = DataSpec(train_set.name, valid=None if valid_set is None else "valid")
    voxels = isinstance(train_set, VoxelDataset)
    recipe = default_recipe(f"fit/{data.name}/{name}", data, name, len(train_set), voxels=voxels)
    chosen = {"epochs": epochs, "batch": batch, "optimizer.lr": lr, "seed": seed, "precision": precision}
    chosen = {key: value for key, value in chosen.items() if value is not None} | dict(settings or {})
    for key in chosen:
        if key.split(".")[0] in ("name", "data", "model", "dropout", "origin_jitter_px"):
            raise InputError(f"{key} is not a setting of fit: it is decided by the model and the data")
    recipe = override(replace(recipe, augment=build(AugmentSpec, augment or {}, "augment")), chosen)
    sample = subset(train_set, torch.arange(min(2, len(train_set)))).images
    crop = recipe.augment.crop_px
    outputs = scores(model, sample[..., :crop, :crop]).shape[1]
    if outputs != (count := len(train_set.classes)):
        raise InputError(f"the model has {outputs} outputs, {data.name} {count} classes: use num_classes={count}")
    if isinstance(model, Network) and isinstance(train_set, Dataset) and _is_not_normalized(model):
        model.set_normalization(*channel_statistics(train_set.images))
    target = None if folder is None else make_folder(Path(folder))
    reporter = make_reporter() if progress else QuietReporter()
    with restored_settings():
        prepare_device(recipe.precision)
        run = Run(
            recipe,
            RunData(train_set, valid_set),
            choose_device(str(device)),
            target,
            network=model,
            on_epoch=reporter.epoch,
        )
        run.resume()
        reporter.begin(run)
        try:
            start = time.perf_counter() - run.seconds
            for _ in run.steps():
                run.seconds = time.perf_counter() - start
        finally:  # an interrupted call keeps the weights that it has
            reporter.close()
            if run.history:
                model.load_state_dict(run.finished_model().state_dict())
                model.classes = tuple(train_set.classes)  # type: ignore[assignment]
                model.metadata = {"dataset": train_set.name, "seed": recipe.seed}  # type: ignore[assignment]
            model.eval()
    if target is not None:
        path = target / "weights.safetensors"
        if isinstance(config, ModelConfig):
            save_weights(model, path)  # type: ignore[arg-type]
        else:  # create_model cannot build it
            save_tensors(path, model.state_dict(), {"classes": json.dumps(model.classes)})
        (target / "checkpoint.safetensors").unlink(missing_ok=True)
    history = [Progress(**epoch) for epoch in run.history]
    best = min(history, key=lambda epoch: epoch.valid_error or 0.0) if run.best else history[-1]
    return History(history, best.epoch, run.seconds)


def _is_not_normalized(model: Network) -> bool:
    return not model.get_buffer("mean").any() and bool((model.get_buffer("std") == 1).all())


def _as_dataset(
    model: nn.Module, data: TrainingData, split: str, classes: tuple[str, ...] | None = None
) -> AnyDataset:
    """Returns training data of any kind as a data set; `classes` are for tensors, by default those of the model."""
    if isinstance(data, Dataset | VoxelDataset):
        return data
    if isinstance(data, str | Path):
        config = getattr(model, "config", None)
        if not isinstance(config, ModelConfig):
            raise InputError("the image size of this model is unknown: use load_folder(..., image_size=...)")
        channels: Any = config.in_chans
        return load_folder(data, split, image_size=config.image_size, channels=channels)
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise InputError(f"{split} must be a data set, a folder or (images, labels); got {type(data).__name__}")
    images, labels = (torch.as_tensor(part).cpu() for part in data)
    if images.dim() != 4:
        raise InputError(f"images must have shape (N, C, H, W); got {tuple(images.shape)}")
    if images.dtype != torch.uint8:
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):
            raise InputError("images must be uint8, or floats in [0, 1]")
        images = (255 * images.float()).round().to(torch.uint8)
    if classes is None:
        known = getattr(model, "classes", None)
        classes = known or tuple(map(str, range(scores(model, images[:2]).shape[1])))
    return Dataset("tensors", split, images, labels.long(), classes)
