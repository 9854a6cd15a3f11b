"""`ptn quickstart`: what `make demo` runs."""

import importlib.util
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..training import Recipe
    from ..training.records import Record
    from ..training.trainer import Run

# the plain network first: it is the quicker one, and the polar one has its errors to halve
TITLES = {"ccnn_s": "CCNN-S", "ptn_s": "PTN-S"}
KINDS = {"ccnn_s": "plain CNN", "ptn_s": "polar CNN"}


def register(app: typer.Typer) -> None:
    app.command("quickstart")(quickstart)


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for pictures and weights.")] = Path("out"),
    epochs: Annotated[
        int | None, typer.Option(help="Train for so many epochs instead of the recipe's.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first weights and of the order of the digits.")] = 0,
) -> None:
    """Train a polar and a plain network on real digits at any angle, size and place, and draw what they do.

    Takes two to three minutes on a CPU. Earlier results in the folder are replaced.
    """
    if importlib.util.find_spec("matplotlib") is None:  # said now, rather than after minutes of training
        raise InputError("the pictures of quickstart need matplotlib: pip install 'ptn[data,figures]'")
    from rich.console import Console

    from ..data.quickstart import load_quickstart
    from ..files import make_folder
    from ..reporting.figures import quickstart as figure
    from ..config import override
    from ..training.session import run_folder

    changes = {"seed": seed} | ({} if epochs is None else {"epochs": epochs})
    recipes = [override(quickstart_recipe(model), changes) for model in TITLES]
    make_folder(output)
    test = load_quickstart("test")
    console = Console(highlight=False, markup=False)
    console.print("Real digits at any angle, 0.6 to 1.2 times as large, anywhere on 42 × 42 pixels.")
    with _one_thread():
        finished = _train(recipes, output / "runs")
        _print_errors(console, finished)
        plain, polar = (
            figure.Contender(TITLES[record.model], run.finished_model(), record.test_error or 0.0)
            for run, record in finished
        )
        figure.draw(polar, plain, test, output / "quickstart.png")
        _measure_shifts(console, output / "logpolar.png")

    weights = run_folder(recipes[-1], output / "runs") / "weights.safetensors"
    console.print(f"Pictures: {output / 'quickstart.png'}, {output / 'logpolar.png'}", soft_wrap=True)
    console.print("Next:")
    for command in (
        f"ptn evaluate {shlex.quote(str(weights))} --per-class",
        "ptn train --folder PHOTOS          (a folder of images for each class)",
        "ptn polar photo.jpg -o out",
        "ptn models",
    ):
        console.print(f"  {command}", soft_wrap=True)


def quickstart_recipe(model: str) -> "Recipe":
    """Returns the recipe of a small network on the quickstart digits, for minutes on a CPU."""
    from ..training.recipe import DataSpec, ModelSpec, Recipe, ScheduleSpec

    return Recipe(
        name=f"quickstart/{model}/modern",
        data=DataSpec("quickstart"),
        model=ModelSpec(model),
        schedule=ScheduleSpec("cosine", warmup=0.1),
        epochs=15,
        batch=50,
        label_smoothing=0.1,
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for the block: networks this small gain little from two, which crawl where others compute too.

    On two busy cores one thread trained ten times faster than two. The result does not depend on the number of
    cores, either.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train(recipes: "list[Recipe]", folder: Path) -> "list[tuple[Run, Record]]":
    """The finished run of each recipe, with its record."""
    import torch

    from ..training import SessionOptions, train_recipes
    from ..training.records import read_records
    from ..training.progress import make_reporter
    from ..training.session import run_folder

    options = SessionOptions(folder=folder, device=torch.device("cpu"), fresh=True)
    outcome = train_recipes(recipes, options, make_reporter())
    if outcome.reason is not None:
        raise typer.Abort
    if outcome.failed:
        raise typer.Exit(1)
    return [(run, read_records(run_folder(run.recipe, folder) / "result.jsonl")[0]) for run in outcome.done]


def _print_errors(console: "Console", finished: "list[tuple[Run, Record]]") -> None:
    from rich.table import Table

    run, first = finished[0]
    table = Table(title=f"After {first.epochs} epochs on the same {len(run.data.train):,} digits")
    for heading in ("network", "kind"):
        table.add_column(heading)
    for heading in ("parameters", "test error", "wrong", "training"):
        table.add_column(heading, justify="right")
    for _, record in finished:
        error, count = record.test_error or 0.0, int(record.metrics["test_count"])
        table.add_row(
            TITLES[record.model],
            KINDS[record.model],
            f"{record.params:,}",
            f"{error:.1f}%",
            f"{round(error * count / 100)} of {count:,}",
            f"{record.train_seconds:.0f} s",
        )
    console.print(table)


def _measure_shifts(console: "Console", picture: Path) -> None:
    """Why it works: turning and enlarging a digit shift its log-polar image (the paper's Figure 1)."""
    from rich.table import Table

    from ..data.quickstart import load_digits
    from ..reporting.figures import logpolar

    source = load_digits()
    # one of each class
    chosen = [source.images[int((source.labels == label).nonzero()[0])].float() / 255 for label in range(10)]
    shifts = [
        shift
        for digit in chosen
        for shift in (*logpolar.turn(digit, (0, 90, 200)).shifts, *logpolar.dilate(digit, (1, 1.5, 2.4)).shifts)
    ]
    table = Table(title="Why: shifts of the log-polar images of ten digits (96 × 96)")
    table.add_column("transform")
    table.add_column("unit")
    for heading in ("theory", "measured (mean)", "furthest from theory"):
        table.add_column(heading, justify="right")
    for row in logpolar.summarise(shifts):
        table.add_row(*row)
    console.print(table)
    logpolar.draw(chosen[3], picture)
