"""`ptn train`."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from .options import DeviceOption

if TYPE_CHECKING:
    from ..training import Recipe

# Options of `python -m experiments train` as well.
SeedsOption = Annotated[str, typer.Option(help="Seeds, one run each: 0, 0-4 or 0,3,7.")]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: optimizer.lr=0.005. Repeatable.")
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Folder for weights and records.")]
ResultsOption = Annotated[Path | None, typer.Option(help="Append the records to this file, too.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue from checkpoints.")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Delete earlier checkpoints of these runs.")]
BudgetOption = Annotated[float | None, typer.Option(help="Write checkpoints and stop after this time.")]
AtOnceOption = Annotated[int, typer.Option(min=1, help="Maximal number of runs that share a GPU.")]
CheckpointOption = Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")]
FusedOption = Annotated[bool | None, typer.Option(help="Compile the training step; by default on a GPU.")]


def train(
    folder: Annotated[Path | None, typer.Option(help="Folder of images: DIR/train/CLASS/* or DIR/CLASS/*.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Or a data set of `ptn data list`.")] = None,
    model: Annotated[
        str | None, typer.Option(help="A model of `ptn models`, or timm:NAME; by default ptn_b for images.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=16, help="With --folder: pixels per side; by default 64.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs; by default about 3,000 steps.")] = None,
    seeds: SeedsOption = "0",
    settings: SettingsOption = None,
    output: OutputOption = Path("runs"),
    results: ResultsOption = None,
    device: DeviceOption = "auto",
    resume: ResumeOption = False,
    fresh: FreshOption = False,
    budget_seconds: BudgetOption = None,
    at_once: AtOnceOption = 16,
    checkpoint_every: CheckpointOption = 10,
    fused: FusedOption = None,
) -> None:
    """Train a model on a folder of images or a data set, evaluate it on the test split, and save its weights."""
    from ..config import override, parse_setting
    from ..training import dataset_recipe, folder_recipe, with_seeds

    if (folder is None) == (dataset is None):
        raise InputError("use either --folder DIR or --dataset NAME")
    if folder is not None:
        recipe = folder_recipe(folder, model=model or "ptn_b", image_size=image_size or 64)
    elif image_size is not None:
        raise InputError("--image-size is for --folder: the images of a data set have a fixed size")
    else:
        recipe = dataset_recipe(str(dataset), model=model)
    changes = dict(parse_setting(text) for text in settings or [])
    if epochs is not None:
        changes["epochs"] = epochs
    code = run_session(
        with_seeds(override(recipe, changes), parse_seeds(seeds)),
        output=output,
        results=results,
        device=device,
        resume=resume,
        fresh=fresh,
        budget_seconds=budget_seconds,
        at_once=at_once,
        checkpoint_every=checkpoint_every,
        fused=fused,
    )
    raise typer.Exit(code)


def run_session(
    recipes: "Sequence[Recipe]",
    *,
    output: Path,
    device: str = "auto",
    how_to_continue: str = "continue with --resume",
    extra_metrics: Callable[..., dict[str, Any]] | None = None,
    **options: Any,
) -> int:
    """Trains recipes with progress on the terminal; returns 3 if stopped early, 1 if a run failed, otherwise 0.

    Args:
        how_to_continue: end of the message about a stopped session.
        extra_metrics, options: of `Session`.
    """
    # Required for deterministic cuBLAS, before CUDA is initialized.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    from ..device import choose_device
    from ..training import Session
    from ..training.distributed import join
    from ..training.session import run_folder

    if options.get("resume") and options.get("fresh"):
        raise InputError("use either --resume or --fresh")
    parallel = join(choose_device(device))
    place: Any = {"folder": output, "device": parallel.device, "parallel": parallel}
    outcome = Session(**place, extra_metrics=extra_metrics, **options).train(recipes)
    code = 3 if outcome.reason is not None else 1 if outcome.failed else 0
    if parallel.leads:
        files = [run_folder(recipe, output) / "weights.safetensors" for recipe in recipes]
        if weights := [path for path in files if path.exists()]:
            print("weights:", *weights, sep="\n")
        if code != 3 or weights:
            print(f"records: {output / 'records.jsonl'}")
        if code == 3:
            print(f"stopped: {outcome.reason}; {how_to_continue}")
    parallel.end(code)
    return code


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds of a list of numbers and ranges.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            seeds += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise InputError(f"--seeds must be numbers and ranges, such as 0-4 or 0,3,7; got {text!r}")
    return seeds
