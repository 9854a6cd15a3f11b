"""`ptn quickstart`: train two small networks on bundled digits and draw the results."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import optional_module
from .options import print_table

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import Dataset
    from ..training import Recipe, Record, Run

NETWORKS = {"ccnn_s": ("CCNN-S", "plain CNN"), "ptn_s": ("PTN-S", "polar CNN")}
_ROTATED_DIGITS = 300


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for figures and weights.")] = Path("out"),
    epochs: Annotated[int | None, typer.Option(help="Number of epochs; by default 15.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and the order of the digits.")] = 0,
) -> None:
    """Train a polar and a plain network on rotated, scaled and shifted digits, and draw their accuracy.

    Takes two to three minutes on a CPU. Earlier results in the folder are replaced.
    """
    optional_module("matplotlib", "ptn[figures]")
    import torch

    from ..config import override
    from ..data import load_dataset
    from ..data.mnist import bundled_digits
    from ..figures import draw_log_polar
    from ..files import make_folder
    from ..training.session import run_folder

    changes = {"seed": seed} | ({} if epochs is None else {"epochs": epochs})
    recipes = [override(quickstart_recipe(model), changes) for model in NETWORKS]
    make_folder(output)
    test: Any = load_dataset("quickstart", "test")
    print("Handwritten digits at any angle, scaled by 0.6 to 1.2, anywhere on 42 × 42 pixels.")
    torch.set_num_threads(1)  # more are slower for networks this small where the cores are busy
    finished = _train(recipes, output / "runs")
    _print_errors(finished)
    _draw(finished, test, output / "quickstart.png")
    images, labels, _ = bundled_digits()
    draw_log_polar(images[labels == 3][0].float() / 255, output / "logpolar.png")
    weights = run_folder(recipes[-1], output / "runs") / "weights.safetensors"
    print(f"Figures: {output / 'quickstart.png'}, {output / 'logpolar.png'}")
    print("Next:")
    print(f"  ptn evaluate {shlex.quote(str(weights))} --per-class")
    print("  ptn train --folder PHOTOS          (one folder of images per class)")
    print("  ptn polar photo.jpg -o out")
    print("  ptn models")


def quickstart_recipe(model: str) -> "Recipe":
    """Returns the recipe of a small network on the quickstart digits, for minutes on a CPU."""
    from ..training import DataSpec, ModelSpec, Recipe, ScheduleSpec

    return Recipe(
        name=f"quickstart/{model}",
        data=DataSpec("quickstart"),
        model=ModelSpec(model),
        schedule=ScheduleSpec("cosine", warmup=0.1),
        epochs=15,
        batch=50,
        label_smoothing=0.1,
    )


def _train(recipes: "list[Recipe]", folder: Path) -> "list[tuple[Run, Record]]":

    from ..training import Session, read_records
    from ..training.session import run_folder

    outcome = Session(folder=folder, fresh=True).train(recipes)
    if outcome.reason is not None:
        raise typer.Abort
    if outcome.failed:
        raise typer.Exit(1)
    return [(run, read_records(run_folder(run.recipe, folder) / "result.jsonl")[0]) for run in outcome.done]


def _print_errors(finished: "list[tuple[Run, Record]]") -> None:
    rows = []
    for _, record in finished:
        error, count = record.test_error or 0.0, int(record.metrics["test_count"])
        wrong = f"{round(error * count / 100)} of {count:,}"
        results = (f"{record.params:,}", f"{error:.1f}%", wrong, f"{record.train_seconds:.0f} s")
        rows.append((*NETWORKS[record.model], *results))
    run, record = finished[0]
    numbers = ("parameters", "test error", "wrong", "training")
    title = f"After {record.epochs} epochs on the same {len(run.data.train):,} digits"
    print_table(title, ("network", "kind", *numbers), rows, right=numbers)


def _draw(finished: "list[tuple[Run, Record]]", test: "Dataset", path: Path) -> None:
    """Draws a digit of each class, and accuracies on test digits that stay inside the image at every angle."""
    from ..data.dataset import subset
    from ..evaluation import ANGLES, accuracy_by_angle, scores
    from ..figures import QuickstartResult, draw_quickstart

    firsts = [int((test.labels == label).nonzero()[0]) for label in test.labels.unique()]
    images, labels = test.images[firsts].float() / 255, test.labels[firsts].tolist()
    rotated = subset(test, stays_inside(test.images).nonzero()[:_ROTATED_DIGITS, 0])
    results = []
    for run, record in reversed(finished):  # the polar network first
        model = run.finished_model()
        predictions, accuracies = scores(model, images).argmax(dim=1).tolist(), accuracy_by_angle(model, rotated)
        title = NETWORKS[record.model][0]
        results.append(QuickstartResult(title, record.test_error or 0.0, predictions, accuracies))
    explanation = finished[-1][0].finished_model().explain(images)
    note = f", on {len(rotated)} test digits that stay inside the image"
    draw_quickstart(path, images, labels, explanation, (results[0], results[1]), angles=ANGLES, note=note)


def stays_inside(images: "Tensor") -> "Tensor":
    """Returns which images (N, C, H, W) have no bright pixels outside the inscribed disc: bool (N,)."""
    from ..evaluation.equivariance import disc

    return ~((images > 0) & (disc(images) == 0)).flatten(1).any(dim=1)
