"""`ptn ship`: a trained network made ready to be given away."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..evaluation import Weights
    from ..reporting.card import Looks
    from ..training.records import Record

TOLERANCE = 0.1
"""How many % of the test set rounding weights to float16 may cost before they are not the same network."""


def register(app: typer.Typer) -> None:
    app.command("ship")(ship)


def ship(
    runs: Annotated[
        list[str],
        typer.Argument(help="Folders of runs, or their weights files.", metavar="RUN", show_default=False),
    ],
    tag: Annotated[str, typer.Option(help="What they were trained on: ptn_b becomes ptn_b.TAG.")],
    results: Annotated[Path, typer.Option(help="Folder or file of records, with those of all seeds.")] = Path(
        "results"
    ),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for weights and cards.")] = Path("weights"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda, where they are tested once more.")] = "auto",
) -> None:
    """Write weights as float16 with a model card each: MODEL.TAG.safetensors and MODEL.TAG.md.

    The rounded network is tested, and refused if its error is not that of the run.
    """
    from ..evaluation import open_weights
    from ..reporting.card import runs_behind
    from .report import load_records

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", tag):
        raise InputError(f"--tag is a name of letters, digits, - and _; got {tag!r}")
    records = load_records(results)
    opened = [open_weights(run) for run in runs]
    names = [f"{weights.model.config.name}.{tag}" for weights in opened]
    if len(set(names)) < len(names):
        raise InputError("two of these are the same network: give each a --tag of its own, one after the other")
    known = [runs_behind(weights, records) for weights in opened]
    for weights, name, behind in zip(opened, names, known, strict=True):
        _ship(weights, name, behind, output, device)


def _ship(weights: "Weights", name: str, runs: "dict[Looks, list[Record]]", output: Path, device: str) -> None:
    from ..device import choose_device
    from ..evaluation import evaluate
    from ..evaluation.classify import scores
    from ..files import atomic_path
    from ..models import OnnxModel, load_model, save_weights
    from ..reporting.card import weights_card
    from .inputs import load_for
    from .progress import show_progress

    if isinstance(weights.model, OnnxModel):
        raise InputError(f"{weights.name} is an ONNX file, which is given away as it is")
    metadata = {key: value for key, value in weights.metadata.items() if key != "config"}
    card, file = output / f"{name}.md", output / f"{name}.safetensors"
    with atomic_path(card) as page, atomic_path(file) as rounded:
        save_weights(weights.model, rounded, half=True, metadata=metadata)
        model = load_model(rounded)
        test = load_for(weights, None, None, "test")
        with show_progress(f"testing {name}") as report:
            error = evaluate(scores(model, test, device=choose_device(device), progress=report), test).error
        if not abs(error - float(metadata["test_error"])) <= TOLERANCE:
            raise InputError(
                f"{weights.name} makes {error:.2f}% errors with weights in float16, not the "
                f"{metadata['test_error']} of its run: give it away in float32"
            )
        page.write_text(weights_card(name, weights, model, error, runs), encoding="utf-8")
    print(f"{file} and {card.name}: {error:.2f}% error")
