"""`ptn evaluate`: the error of trained weights, alone or together."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import InputError, check_choice
from .inputs import DataOption, FolderOption, SplitOption, load_for

if TYPE_CHECKING:
    from rich.table import Table

    from ..data import Dataset, VoxelDataset
    from ..device import Precision
    from ..evaluation import Evaluation, Weights

# More classes than this make a table that no terminal shows; the pairs most often confused are listed instead.
_TABLE_CLASSES = 16
_PAIRS = 20


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate_weights)


def evaluate_weights(
    weights: Annotated[
        list[str],
        typer.Argument(
            help="A .safetensors or .onnx file, the folder of a run, or a pretrained tag such as ptn_b.rotmnist. "
            "Several vote together.",
            show_default=False,
        ),
    ],
    data: DataOption = None,
    folder: FolderOption = None,
    split: SplitOption = "test",
    rotations: Annotated[int, typer.Option(min=1, help="Average over so many; the paper's ++ is 8.")] = 1,
    origins: Annotated[
        int, typer.Option(help="5 averages over the origin found and those a pixel around it, in PTNs.")
    ] = 1,
    per_class: Annotated[bool, typer.Option("--per-class", help="The accuracy of each class too.")] = False,
    confusion: Annotated[bool, typer.Option("--confusion", help="What was taken for what, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object instead of text.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "fp32",
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Images at a time; by default 1000, fewer if large.", show_default=False),
    ] = None,
) -> None:
    """Print the error of weights on a test set; with several weights, that of the sum of their scores.

    A folder of images without a folder for the split gives it a share of the images, the same as in training.
    """
    from ..device import PRECISIONS, choose_device
    from ..evaluation import ensemble_scores, evaluate, open_weights, scores
    from ..evaluation import check_tta
    from ..evaluation.classify import match_classes
    from .progress import show_progress

    check_choice("precision", precision, PRECISIONS)
    place = choose_device(device)
    members = [open_weights(name) for name in weights]
    _check_alike(members)
    for member in members:
        check_tta(member.model, rotations=rotations, origins=origins)
    dataset = load_for(members[0], data, folder, split)
    if members[0].classes is not None:
        dataset = match_classes(dataset, members[0].classes)
    answers = []
    for member in members:
        with show_progress(f"evaluating {member.name} on {dataset.name} {dataset.split}") as report:
            answers.append(
                scores(
                    member.model,
                    dataset,
                    batch=batch,
                    rotations=rotations,
                    origins=origins,
                    device=place,
                    precision=cast("Precision", precision),
                    progress=report,
                )
            )
    result = evaluate(ensemble_scores(answers), dataset)
    facts = _facts(members, dataset, result) | {
        "rotations": rotations,
        "origins": origins,
        "precision": precision,
        "device": str(place),
    }
    if as_json:
        if per_class:
            facts["per_class"] = dict(zip(dataset.classes, result.per_class, strict=True))
        if confusion:
            facts["confusion"] = result.confusion.tolist()
        print(json.dumps(facts, indent=2))
        return
    _print_summary(facts)
    if per_class:
        _print_per_class(result, dataset.classes)
    if confusion:
        _print_confusion(result, dataset.classes)


def _check_alike(members: "list[Weights]") -> None:
    """Raise unless the scores of all can be summed."""
    first = members[0]
    for other in members[1:]:
        for what in ("image size and channels", "classes"):
            ours, theirs = (
                member.model.input_shape if what != "classes" else member.class_names for member in (first, other)
            )
            if ours != theirs:
                raise InputError(f"{first.name} and {other.name} differ in {what}: they cannot vote together")


def _facts(members: "list[Weights]", dataset: "Dataset | VoxelDataset", result: "Evaluation") -> dict[str, Any]:
    """What is to be said in the summary and in the JSON object."""
    from ..evaluation import origin_error_px
    from ..models import PolarNetwork

    facts: dict[str, Any] = {
        "weights": [member.name for member in members],
        "models": [member.model.config.name for member in members],
        "dataset": dataset.name,
        "split": dataset.split,
        "source": dataset.meta.get("source"),
        "sha256": dataset.meta.get("sha256"),
        "n": result.n,
        "error": result.error,
        "accuracy": result.accuracy,
        "class_accuracy": result.class_accuracy,
    }
    model = members[0].model
    if len(members) == 1 and isinstance(model, PolarNetwork) and "center" in dataset.meta:
        median, p90 = origin_error_px(model, dataset)
        facts["origin_error_px"] = {"median": median, "p90": p90}
    return facts


def _print_summary(facts: dict[str, Any]) -> None:
    from ..evaluation import describe_tta

    source = f" ({facts['source']})" if facts["source"] else ""
    averaged = describe_tta(facts["rotations"], facts["origins"])
    together = "the sum of " if len(facts["weights"]) > 1 else ""
    print(f"{together}{' + '.join(facts['weights'])} on {facts['dataset']} {facts['split']}{source}{averaged}")
    print(f"error           {facts['error']:.2f}% of {facts['n']:,}")
    print(f"accuracy        {facts['accuracy']:.2f}%")
    print(f"class accuracy  {facts['class_accuracy']:.2f}%")
    if "origin_error_px" in facts:
        origin = facts["origin_error_px"]
        print(f"origin          {origin['median']:.2f} px off in the median, {origin['p90']:.2f} px at 90%")


def _print_per_class(result: "Evaluation", classes: tuple[str, ...]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Accuracy by class")
    table.add_column("class")
    table.add_column("samples", justify="right")
    table.add_column("accuracy", justify="right")
    counts = result.confusion.sum(dim=1).tolist()
    for name, count, accuracy in zip(classes, counts, result.per_class, strict=True):
        table.add_row(escape(name), f"{count:,}", "–" if accuracy is None else f"{accuracy:.2f}%")
    _show(table)


def _print_confusion(result: "Evaluation", classes: tuple[str, ...]) -> None:
    """What was taken for what: the matrix, or, of many classes, the commonest mistakes."""
    from rich.markup import escape
    from rich.table import Table

    if len(classes) <= _TABLE_CLASSES:
        table = Table("true", *map(escape, classes), title="True class (rows) and answer (columns)")
        for name, counts in zip(classes, result.confusion.tolist(), strict=True):
            table.add_row(escape(name), *(f"{count:,}" if count else "·" for count in counts))
    else:
        table = Table("true", "answer", "samples", title="The commonest mistakes (--json has the whole matrix)")
        mistakes = result.confusion.clone().fill_diagonal_(0).flatten()
        for pair in mistakes.argsort(descending=True, stable=True)[:_PAIRS].tolist():
            if mistakes[pair]:
                true, answer = divmod(pair, len(classes))
                table.add_row(escape(classes[true]), escape(classes[answer]), f"{int(mistakes[pair]):,}")
    _show(table)


def _show(table: "Table") -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(table)
