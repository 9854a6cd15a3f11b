"""`ptn train`: recipes by name, or a folder of one's own images."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..training import Recipe
    from ..training.session import ExtraMetrics


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    folder: Annotated[
        Path | None, typer.Option(help="Train on your own images: DIR/train/<class>/*, or DIR/<class>/*.")
    ] = None,
    model: Annotated[str, typer.Option(help="With --folder: the network, say ptn_b or timm:resnet18.")] = "ptn_b",
    image_size: Annotated[
        int, typer.Option(help="With --folder: images are resized to this many pixels.", min=16)
    ] = 64,
    epochs: Annotated[int | None, typer.Option(help="Train for so many epochs instead of the recipe's.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, say 0, 0-4 or 0,3,7.")] = "0",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, say optimizer.lr=0.005. Repeatable.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for checkpoints, weights, records")] = Path(
        "runs"
    ),
    results: Annotated[Path | None, typer.Option(help="Append the records to this file too.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoints.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw earlier checkpoints of these runs away.")] = False,
    budget_seconds: Annotated[float | None, typer.Option(help="Stop at a checkpoint after so long.")] = None,
    at_once: Annotated[int, typer.Option(help="How many runs share a GPU at most.", min=1)] = 16,
    checkpoint_every: Annotated[int, typer.Option(help="Epochs between checkpoints.", min=1)] = 10,
    fused: Annotated[
        bool | None,
        typer.Option(help="Compile the step: faster after a slow start. By default on a GPU, where it can be."),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write scalars for TensorBoard.")] = False,
) -> None:
    """Train a network on your own images, test it once, keep weights and records."""
    from ..config import override, parse_setting
    from ..training import with_seeds
    from ..training.recipe import folder_recipe

    if folder is None:
        raise InputError("a folder of images is missing: --folder DIR")
    chosen = folder_recipe(folder, model=model, image_size=image_size)
    changes = dict(parse_setting(text) for text in settings or [])
    if epochs is not None:
        changes["epochs"] = epochs
    runs = with_seeds(override(chosen, changes), parse_seeds(seeds))
    code = run_session(
        runs,
        output=output,
        results=results,
        device=device,
        resume=resume,
        fresh=fresh,
        budget_seconds=budget_seconds,
        at_once=at_once,
        checkpoint_every=checkpoint_every,
        fused=fused,
        tensorboard=tensorboard,
    )
    raise typer.Exit(code)


def run_session(
    recipes: "list[Recipe]",
    *,
    output: Path,
    results: Path | None = None,
    device: str = "auto",
    resume: bool = False,
    fresh: bool = False,
    budget_seconds: float | None = None,
    at_once: int = 16,
    checkpoint_every: int = 10,
    fused: bool | None = None,
    tensorboard: bool = False,
    extra_metrics: "ExtraMetrics | None" = None,
    how_to_go_on: str = "go on with --resume",
) -> int:
    """Train `recipes` and tell the terminal about it. Returns 3 if stopped early, 1 if a run failed, else 0."""
    # deterministic cuBLAS asks for this before CUDA starts
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    from ..device import choose_device
    from ..training import SessionOptions, train_recipes
    from ..training.distributed import join, launched_together
    from ..training.progress import TensorBoardReporter, make_reporter
    from ..training.session import run_folder

    if resume and fresh:
        raise InputError("--resume goes on and --fresh starts over: give one of them")
    place, parallel = choose_device(device), None
    if launched_together():
        parallel = join(place)
        place = parallel.device
    options = SessionOptions(
        folder=output,
        device=place,
        parallel=parallel,
        resume=resume,
        fresh=fresh,
        budget_seconds=budget_seconds,
        at_once=at_once,
        checkpoint_every=checkpoint_every,
        fused=fused,
        results=results,
        extra_metrics=extra_metrics,
    )
    reporter = make_reporter()
    outcome = train_recipes(recipes, options, TensorBoardReporter(reporter) if tensorboard else reporter)
    code = 3 if outcome.reason is not None else 1 if outcome.failed else 0
    if options.leads:
        files = [run_folder(recipe, output) / "weights.safetensors" for recipe in recipes]
        if kept := [path for path in files if path.exists()]:
            print("weights:", *kept, sep="\n")
        if code != 3 or kept:
            print(f"records are in {output / 'records.jsonl'}")
        if code == 3:
            print(f"stopped: {outcome.reason}; {how_to_go_on}")
    if parallel is not None:
        parallel.end(code)
    return code


def parse_seeds(text: str) -> list[int]:
    """ "0-2,7" -> [0, 1, 2, 7]."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            seeds += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise InputError(f"--seeds takes numbers and ranges, say 0-4 or 0,3,7; got {text!r}") from None
    if not seeds:
        raise InputError(f"--seeds names none: {text!r}")
    return seeds
