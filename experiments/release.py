"""Release of trained networks: weights in float16 with a model card."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import ptn
from ptn.cli.options import DeviceOption
from ptn.device import choose_device
from ptn.errors import InputError
from ptn.evaluation import evaluate, match_classes
from ptn.files import atomic_path
from ptn.models import Model, OnnxModel, save_weights
from ptn.models.export import model_card
from ptn.models.zoo import WEIGHTS
from ptn.training.records import Record

from .markdown import align, spread
from .published import row_title
from .recipes import is_outdated
from .tables import RESULTS, load_records, mean_and_std, newest

TOLERANCE = 0.1
"""Largest difference of the test error in % that rounding weights to float16 may cause."""

Runs = Mapping[tuple[int, int], Sequence[Record]]
"""Finished runs of a recipe by test-time augmentation, (rotations, origins); the released seed comes first."""


def release(
    run: Annotated[str, typer.Argument(help="Folder of a run, or its weights.", metavar="RUN", show_default=False)],
    tag: Annotated[str, typer.Option(help="Name of the training data: ptn_b becomes ptn_b.TAG.")],
    results: Annotated[Path, typer.Option(help="Folder or file of records of all seeds.")] = RESULTS,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of weights and cards.")] = WEIGHTS,
    device: DeviceOption = "auto",
) -> None:
    """Write weights as float16 with a model card: MODEL.TAG.safetensors and MODEL.TAG.md.

    The rounded network is tested, and rejected if its error is not that of the run.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", tag):
        raise InputError(f"--tag takes letters, digits, - and _; got {tag!r}")
    model = ptn.load_model(run)
    if isinstance(model, OnnxModel):
        raise InputError(f"{run} is an ONNX file: release the weights it was exported from")
    runs = find_runs(model, load_records(results))
    name = f"{model.config.name}.{tag}"
    file, card = output / f"{name}.safetensors", output / f"{name}.md"
    with atomic_path(card) as page, atomic_path(file) as rounded:
        save_weights(model, rounded, half=True)
        error = _test(rounded, model.metadata, device)
        page.write_text(weights_card(name, model, error, runs), encoding="utf-8")
    print(f"{file} and {card.name}: {error:.2f}% error")


def find_runs(model: Model, records: Iterable[Record]) -> Runs:
    """Returns the finished runs of the recipe that a model was trained with.

    Raises:
        InputError: None of them has the seed and the test error of the model.
    """
    recipe, seed, error = (model.metadata.get(key) for key in ("recipe", "seed", "test_error"))
    by_row: dict[tuple[int, int, str | None], list[Record]] = {}
    for record in records:
        if record.recipe == recipe and not is_outdated(record):
            by_row.setdefault((record.rotations, record.origins, record.id), []).append(record)
    runs: dict[tuple[int, int], list[Record]] = {}
    for (rotations, origins, _), group in by_row.items():
        finished = sorted(newest(group), key=lambda record: record.seed != seed)
        if finished and finished[0].seed == seed:
            runs.setdefault((rotations, origins), finished)
    own = runs[1, 1][0].test_error if (1, 1) in runs else None
    if own is None or error is None or abs(own - error) > 1e-4:
        raise InputError(f"there is no record of seed {seed} of {recipe} with an error of {error}%: see --results")
    return dict(sorted(runs.items()))


def weights_card(name: str, model: Model, error: float, runs: Runs) -> str:
    """Returns the card of a model that is released as `name`; `error` is that of the rounded weights."""
    first = runs[1, 1][0]
    errors = [[run.test_error for run in group if run.test_error is not None] for group in runs.values()]
    columns = {
        "row": [row_title(group[0].id) or group[0].model for group in runs.values()],
        "this network": [f"{group[0].test_error:.2f}" for group in runs.values()],
        "all seeds": [f"{spread(*mean_and_std(values), 2)} (n={len(values)})" for values in errors],
    }
    source = ", regenerated from MNIST" if first.metrics.get("source") == "regenerated" else ""
    samples = "images" if len(model.input_shape) == 3 else "shapes"
    architecture, _, tag = name.partition(".")
    command = f"python -m experiments train {first.recipe} --seeds {first.seed}"
    if first.dataset == "quickstart":
        command = f"ptn quickstart --seed {first.seed}"
    lines = [
        model_card(model, name, f'ptn.create_model("{architecture}", pretrained="{tag}")').rstrip(),
        "",
        "## Test error",
        "",
        f"Error in % on the test set of {first.dataset} ({first.metrics['test_count']:,} {samples}{source}):",
        "",
        *align(columns, names=("row",)),
        "",
        f"Error of the released weights, which are in float16: {error:.2f}.",
        "",
        "## Training",
        "",
        f"`{command}`, {first.epochs} epochs in {first.precision} on {first.device} (commit {first.git}).",
        "",
    ]
    return "\n".join(lines)


def _test(path: Path, metadata: Mapping[str, Any], device: str) -> float:
    """Returns the test error of a weights file, which must be that of its run."""
    model = ptn.load_model(path)
    test = ptn.load_dataset(metadata["dataset"], "test", **metadata.get("dataset_options", {}))
    test = match_classes(test, model.classes or test.classes)
    error = evaluate(model, test, device=choose_device(device)).error
    expected = float(metadata["test_error"])
    if abs(error - expected) > TOLERANCE:
        raise InputError(f"the error is {error:.2f}% with weights in float16, but {expected:.2f}% in its record")
    return error
