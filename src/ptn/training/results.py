"""What a finished run leaves: weights, and a record for each row of a table that it fills."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset, VoxelDataset, load_dataset
from ..data.dataset import subset
from ..device import describe_device
from ..evaluation import ANGLES, accuracy_by_angle, evaluate, origin_error_px, origin_offsets_px, scores
from ..layers import PolarTransformer
from ..models import Model, Network, count_parameters, save_weights
from .recipe import Recipe, Row
from .records import Record, git_commit
from .trainer import Run


def conclude_run(
    run: Run, test: Dataset | VoxelDataset, *, clean: Dataset | VoxelDataset | None = None
) -> tuple[Model, list[Record]]:
    """The finished network of a run, looked at on the test set once, and the records of what was seen.

    `clean` is the test set without clutter, for the origins found there.
    """
    model = run.finished_model()
    recipe = run.recipe
    rows: Sequence[Row | None] = recipe.rows or (None,)
    records, seen = [], {}
    common: dict[str, Any] = {"together": run.together}
    valid_error = _valid_error(run, model)
    if valid_error is not None:
        common["valid_error"] = valid_error
    for row in rows:
        looks = (row.rotations, row.origins) if row else (1, 1)
        if looks not in seen:
            seen[looks] = measure(model, test, clean=clean, rotations=looks[0], origins=looks[1], recipe=recipe)
        error, metrics = seen[looks]
        records.append(make_record(run, row, error=error, metrics={**metrics, **common}, status="done"))
    return model, records


_OF_THE_RUN = ("together", "valid_error")  # metrics that are the same in all of its records


def measure_rows(
    recipe: Recipe,
    rows: Sequence[Row],
    left: Record,
    model: Model,
    test: Dataset | VoxelDataset,
    *,
    clean: Dataset | VoxelDataset | None = None,
) -> list[Record]:
    """The records of `rows` that a recipe has got since its run left the record `left` and the network `model`.

    A record is about its run; `tested_with` says which commit, torch and device looked at the network later. How
    long that took is told where the device is the run's.
    """
    device = describe_device(next(model.parameters()).device)
    at_home = device == left.device
    kept: dict[str, Any] = {name: left.metrics[name] for name in _OF_THE_RUN if name in left.metrics}
    kept["tested_with"] = {"git": git_commit(), "torch": torch.__version__, "device": device}
    records = []
    for row in rows:
        looks = {"rotations": row.rotations, "origins": row.origins}
        error, metrics = measure(model, test, clean=clean, **looks, recipe=recipe)
        if not at_home:
            del metrics["test_seconds"]
        found: Any = {"test_error": round(error, 6), "metrics": metrics | kept}
        records.append(replace(left, table=row.table, row=row.row, tta=row.rotations, origins=row.origins, **found))
    return records


def _valid_error(run: Run, model: Model) -> float | None:
    """The error of the finished network on the validation set, in %, where the recipe names one."""
    if run.recipe.selection == "valid" or run.data.valid is None:
        return run.best_error
    return round(evaluate(model, run.data.valid, precision=run.recipe.precision).error, 6)


def looks_for_origins(recipe: Recipe, test: Dataset | VoxelDataset) -> bool:
    """Whether a network learns origins and the true ones are known."""
    return recipe.model.name.startswith("ptn") and "center" in test.meta


def failed_records(run: Run, reason: str) -> list[Record]:
    """The records of a run that could not go on."""
    rows: Sequence[Row | None] = run.recipe.rows or (None,)
    metrics = {"reason": reason}
    return [make_record(run, row, error=None, metrics=metrics, status="failed") for row in rows]


def measure(
    model: Model,
    test: Dataset | VoxelDataset,
    *,
    clean: Dataset | VoxelDataset | None = None,
    rotations: int,
    origins: int,
    recipe: Recipe,
) -> tuple[float, dict[str, Any]]:
    """Error in % and what else is worth keeping of a network's answers, averaged over rotations and origins."""
    start = time.perf_counter()
    answers = scores(model, test, rotations=rotations, origins=origins, precision=recipe.precision)
    alone = rotations == origins == 1
    result = evaluate(answers, test)
    metrics: dict[str, Any] = {
        "source": test.meta.get("source"),
        "test_count": result.n,
        "test_seconds": round(time.perf_counter() - start, 3),
        "per_class_accuracy": [None if value is None else round(value, 2) for value in result.per_class],
        "class_accuracy": round(result.class_accuracy, 4),
    }
    if alone and looks_for_origins(recipe, test):
        metrics |= _origin_errors(model, test)
        if clean is not None:
            without = _origin_errors(model, clean)
            metrics |= {f"{name}_without_clutter": value for name, value in without.items()}
    elif alone and _learns_origins(model) and isinstance(test, Dataset) and len(test):
        metrics |= _origins_from_middle(model, test)
    if "from_points" in test.meta:
        metrics |= _of_meshes_alone(answers, test)
    if alone and isinstance(test, VoxelDataset):
        curve = accuracy_by_angle(model, test, precision=recipe.precision)
        metrics |= {"azimuth_deg": list(ANGLES), "azimuth_accuracy": [round(value, 2) for value in curve]}
    if alone and isinstance(model, Network) and _shows_digits_as_cut(recipe, test):
        metrics |= _by_angle(model, recipe)
    return result.error, metrics


def _origin_errors(model: Model, test: Dataset | VoxelDataset) -> dict[str, float]:
    median, p90 = origin_error_px(model, test)
    return {"origin_error_px_median": round(median, 3), "origin_error_px_p90": round(p90, 3)}


def _learns_origins(model: Model) -> bool:
    transformer = getattr(model, "transformer", None)
    return isinstance(transformer, PolarTransformer) and transformer.predictor is not None


def _origins_from_middle(model: Model, test: Dataset) -> dict[str, list[float]]:
    """Where origins are, in pixels from the middle of the image along x and y: their mean, and how they scatter."""
    found = origin_offsets_px(model, test)
    return {
        "origin_from_middle_px": [round(value, 3) for value in found.mean(dim=0).tolist()],
        "origin_deviation_px": [round(value, 3) for value in found.std(dim=0, correction=0).tolist()],
    }


def _shows_digits_as_cut(recipe: Recipe, test: Dataset | VoxelDataset) -> bool:
    """Whether the test digits are the usual crops of house numbers, and what is around them is at hand."""
    usual = recipe.data.options.keys() <= {"training_tiles"} and recipe.data.test == "test"
    return usual and "svhn" in recipe.data.name and test.meta["source"] != "official crops"


def _by_angle(model: Network, recipe: Recipe) -> dict[str, Any]:
    """The accuracies on every tenth test digit turned by each angle, cut from its tile, so that no border shows."""
    tiles = load_dataset(recipe.data.name.removeprefix("rot"), "test", size=48)
    some = subset(tiles, torch.arange(0, len(tiles), 10))
    _, height, width = model.input_shape
    curve = accuracy_by_angle(model, some, size=(height, width), precision=recipe.precision)
    accuracies = [round(value, 2) for value in curve]
    return {"angle_deg": list(ANGLES), "angle_count": len(some), "angle_accuracy": accuracies}


def _of_meshes_alone(answers: Tensor, test: Dataset | VoxelDataset) -> dict[str, Any]:
    """The accuracies without the shapes that were filled in from points, for want of a mesh."""
    rows = (~test.meta["from_points"]).nonzero()[:, 0]
    result = evaluate(answers[rows], subset(test, rows))
    return {
        "mesh_count": result.n,
        "mesh_class_accuracy": round(result.class_accuracy, 4),
        "mesh_instance_accuracy": round(result.accuracy, 4),
    }


def make_record(run: Run, row: Row | None, *, error: float | None, metrics: dict[str, Any], status: Any) -> Record:
    recipe = run.recipe
    return Record(
        run=f"{recipe.name}#{recipe.seed}@{run.started}",
        recipe=recipe.name,
        form=recipe.form,
        table=row.table if row else None,
        row=row.row if row else None,
        dataset=recipe.data.name,
        model=recipe.model.name,
        params=count_parameters(run.model),
        seed=recipe.seed,
        test_error=None if error is None else round(error, 6),
        metrics=metrics,
        tta=row.rotations if row else 1,
        origins=row.origins if row else 1,
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
        deterministic=recipe.deterministic,
        started=run.started,
        status=status,
    )


def data_sha256(train: Dataset | VoxelDataset) -> str:
    """What a record says that its run was trained on."""
    return str(train.meta.get("sha256", ""))


def keep_weights(model: Model, run: Run, path: Path, *, error: float) -> None:
    """Write the weights of a finished run with what one needs to use them."""
    recipe = run.recipe
    metadata = {
        "classes": json.dumps(list(run.data.train.classes)),
        "dataset": recipe.data.name,
        "dataset_options": json.dumps(recipe.data.options),
        "recipe": recipe.name,
        "seed": str(recipe.seed),
        "test_error": f"{error:.4f}",
        "fit": str(recipe.data.options.get("fit", "resize")),
    }
    save_weights(model, path, metadata=metadata)
