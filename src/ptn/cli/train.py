"""`ptn train` and `ptn quickstart`, which trains two small networks on bundled digits and draws the results."""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config import override, parse_setting
from ..errors import InputError, optional_module
from ..files import make_folder, real_path
from .options import DeviceOption, print_table, show

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import Dataset
    from ..training import Recipe, Record, Run

NETWORKS = {"ccnn_s": ("CCNN-S", "plain CNN"), "ptn_s": ("PTN-S", "polar CNN")}
_ROTATED_DIGITS = 300
_MAX_RUNS = 10_000

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
        str | None,
        typer.Option(
            "--model",
            "--models",
            help="A model of `ptn models`, or timm:NAME; by default ptn_b for images. With --folder also several, "
            "such as ptn_b,ccnn_b, which are trained for the same time and compared.",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=16, help="With --folder: pixels per side; by default that of the images, at most 128."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --folder: train for one minute, by default ptn_s.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs, at most; chosen by default.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step; chosen by default.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate; chosen by default.")] = None,
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
    """Train a model on a folder of images or a data set, evaluate it on the test split, and save its weights.

    From the first epoch on, the weights with the smallest validation error are saved. With --folder, a report with
    training curves, mistakes and robustness is written at the end.
    """
    from ..training import dataset_recipe, with_seeds

    if (folder is None) == (dataset is None):
        raise InputError("use either --folder DIR or --dataset NAME")
    if folder is None and (image_size is not None or quick or "," in (model or "")):
        raise InputError("--image-size, --quick and several --models are for --folder")
    shortcuts = {"epochs": epochs, "batch": batch_size, "optimizer.lr": lr}
    more = [f"{key}={value}" for key, value in shortcuts.items() if value is not None]
    changes = parse_settings([*(settings or ()), *more])
    options: Any = {
        "output": output,
        "results": results,
        "device": device,
        "resume": resume,
        "fresh": fresh,
        "budget_seconds": budget_seconds,
        "at_once": at_once,
        "checkpoint_every": checkpoint_every,
        "fused": fused,
    }
    numbers = parse_seeds(seeds)
    if folder is not None:
        raise typer.Exit(_train_folder(folder, model, image_size, changes, numbers, quick=quick, options=options))
    recipe = override(dataset_recipe(str(dataset), model=model), changes)
    raise typer.Exit(run_session(with_seeds(recipe, numbers), **options))


def _train_folder(
    folder: Path,
    models: str | None,
    image_size: int | None,
    changes: dict[str, Any],
    seeds: list[int],
    *,
    quick: bool,
    options: dict[str, Any],
) -> int:
    """Trains one network, or several for the same time; returns the exit code."""
    from ..data.folder import split_folders
    from ..training import Session, folder_recipe, read_records, with_seeds
    from ..training.progress import make_reporter
    from ..training.recipe import explain_choices
    from ..training.session import run_folder

    for classes in split_folders(folder).values():  # the report is an image, which the next run would read
        if Path(real_path(options["output"])).is_relative_to(real_path(classes)):
            raise InputError(
                f"{options['output']} is in {classes}, whose folders are classes: choose another with -o"
            )
    names: list[str | None] = [None] if models is None else [name.strip() for name in models.split(",")]
    if len(names) > 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("several --models are trained in one process: start it without torchrun")
    if quick:
        names = ["ptn_s"] if models is None else names
        changes = {"max_seconds": 60.0, **changes}
    chosen = [folder_recipe(folder, model=name, image_size=image_size) for name in names]
    recipes = [override(recipe, changes) for recipe in chosen]
    requested = {*changes, *({"model"} if names[0] else ()), *({"image_size"} if image_size else ())}
    reasons = [text for key, text in explain_choices(chosen[0]).items() if key not in requested]

    def limited(index: int, seconds: float) -> "list[Recipe]":
        """Returns the runs of a network; the training time of all but the first network is limited."""
        epochs = min(10**6, 10 * recipes[0].epochs)
        limits = {"epochs": epochs, "patience": 0, "max_seconds": max(1.0, seconds)} if index else {}
        return with_seeds(override(recipes[index], limits), seeds)

    reporter = make_reporter(f"chosen: {'; '.join(reasons)}" if reasons else "")
    options = {**options, "splits": {}, "reporter": reporter}
    if len(recipes) > 1:  # report invalid input for any network before training the first
        shared = {"folder": options["output"], **{key: options[key] for key in ("resume", "fresh", "splits")}}
        Session(**shared).check([recipe for index in range(len(recipes)) for recipe in limited(index, 1.0)])
    finished: list[Record] = []
    budget, start = options["budget_seconds"], time.monotonic()
    for index in range(len(recipes)):
        if budget is not None and index:  # of all networks together
            options["budget_seconds"] = max(0.0, budget - (time.monotonic() - start))
        seconds = max((record.train_seconds for record in finished[: len(seeds)]), default=0.0)
        seeded = limited(index, seconds)
        if code := run_session(seeded, **options):
            return code
        for single in seeded:
            finished += read_records(run_folder(single, options["output"]) / "result.jsonl")[:1]
    if len(recipes) > 1:
        rows = []
        for record in finished:
            results = (f"{record.test_error:.2f}%", str(record.epochs), f"{record.train_seconds:.0f} s")
            rows.append((record.model, str(record.seed), f"{record.params:,}", *results))
        headings = ("network", "seed", "parameters", "test error", "epochs", "training")
        print_table("Trained for the same time", headings, rows, right=headings[1:])
    return 0


def run_session(
    recipes: "Sequence[Recipe]",
    *,
    output: Path,
    device: str = "auto",
    how_to_continue: str = "continue with --resume",
    **options: Any,
) -> int:
    """Trains recipes with progress on the terminal; returns 3 if stopped early, 1 if a run failed, otherwise 0.

    Args:
        how_to_continue: end of the message about a stopped session.
        options: of `Session`.
    """
    # Required for deterministic cuBLAS, before CUDA is initialized.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    from ..device import choose_device, join
    from ..training import Session
    from ..training.session import run_folder

    if options.get("resume") and options.get("fresh"):
        raise InputError("use either --resume or --fresh")
    parallel = join(choose_device(device))
    place: Any = {"folder": output, "device": parallel.device, "parallel": parallel}
    outcome = Session(**place, **options).train(recipes)
    code = 3 if outcome.reason is not None else 1 if outcome.failed else 0
    if parallel.leads:
        files = [run_folder(recipe, output) / "weights.safetensors" for recipe in recipes]
        if weights := [path for path in files if path.exists()]:
            show("weights:", *weights, sep="\n")
        if code != 3 or weights:
            show(f"records: {output / 'records.jsonl'}")
        if code == 3:
            print(f"stopped: {outcome.reason}; {how_to_continue}")
    parallel.end(code)
    return code


def parse_settings(texts: Sequence[str] | None) -> dict[str, Any]:
    """Returns the settings of --set by dotted key."""
    changes: dict[str, Any] = {}
    for key, value in map(parse_setting, texts or ()):
        if key in changes:
            raise InputError(f"{key} is set twice: to {changes[key]!r} and to {value!r}")
        changes[key] = value
    if "seed" in changes:
        raise InputError(f"use --seeds {changes['seed']} instead of --set seed")
    return changes


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds of a list of numbers and ranges.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            span = range(int(first), int(last if dash else first) + 1)
            seeds += span[:_MAX_RUNS]
    except (ValueError, OverflowError):
        seeds = []
    if not 0 < len(seeds) < _MAX_RUNS:
        raise InputError(f"--seeds must be numbers and ranges, such as 0-4 or 0,3,7; got {text!r}")
    return seeds


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for figures and weights.")] = Path("out"),
    epochs: Annotated[int, typer.Option(help="Number of epochs.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and the order of the digits.")] = 0,
) -> None:
    """Train a polar and a plain network on rotated, scaled and shifted digits, and draw their accuracy.

    Takes two to three minutes on a CPU. Earlier results in the folder are replaced.
    """
    optional_module("matplotlib", "ptn[figures]")
    import torch

    from ..data import load_dataset
    from ..data.mnist import bundled_digits
    from ..figures import draw_log_polar
    from ..training import DataSpec, ModelSpec, Recipe, ScheduleSpec, Session, read_records
    from ..training.session import run_folder

    recipes = [
        Recipe(
            name=f"quickstart/{model}",
            data=DataSpec("quickstart"),
            model=ModelSpec(model),
            schedule=ScheduleSpec("cosine", warmup=0.1),
            epochs=epochs,
            batch=50,
            label_smoothing=0.1,
            seed=seed,
        )
        for model in NETWORKS
    ]
    make_folder(output)
    runs = output / "runs"
    test: Any = load_dataset("quickstart", "test")
    print("Handwritten digits at any angle, scaled by 0.6 to 1.2, anywhere on 42 × 42 pixels.")
    torch.set_num_threads(1)  # more are slower for networks this small where the cores are busy
    outcome = Session(folder=runs, fresh=True).train(recipes)
    if outcome.reason is not None:
        raise typer.Abort
    if outcome.failed:
        raise typer.Exit(1)
    finished = [(run, read_records(run_folder(run.recipe, runs) / "result.jsonl")[0]) for run in outcome.done]
    _print_errors(finished)
    networks = [
        (NETWORKS[record.model][0], record.test_error or 0.0, run.finished_model())
        for run, record in reversed(finished)  # the polar network first
    ]
    draw_networks(networks, test, output / "quickstart.png")
    images, labels, _ = bundled_digits()
    draw_log_polar(images[labels == 3][0].float() / 255, output / "logpolar.png")
    weights = run_folder(recipes[-1], runs) / "weights.safetensors"
    show(f"Figures: {output / 'quickstart.png'}, {output / 'logpolar.png'}")
    print("Next:")
    print(f"  ptn evaluate {shlex.quote(str(weights))} --per-class")
    print("  ptn train --folder PHOTOS          (one folder of images per class)")
    print("  ptn polar photo.jpg -o out")
    print("  ptn models")


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


def draw_networks(networks: "list[tuple[str, float, Any]]", test: "Dataset", path: Path) -> None:
    """Draws a digit of each class, and accuracies on test digits that stay inside the image at every angle.

    Args:
        networks: title, test error in % and network, the polar one first.
    """
    from ..data.dataset import subset
    from ..evaluation import ANGLES, accuracy_by_angle, scores
    from ..figures import QuickstartResult, draw_quickstart

    firsts = [int((test.labels == label).nonzero()[0]) for label in test.labels.unique()]
    images, labels = test.images[firsts].float() / 255, test.labels[firsts].tolist()
    rotated = subset(test, stays_inside(test.images).nonzero()[:_ROTATED_DIGITS, 0])
    results = []
    for title, error, model in networks:
        predictions, accuracies = scores(model, images).argmax(dim=1).tolist(), accuracy_by_angle(model, rotated)
        results.append(QuickstartResult(title, error, predictions, accuracies))
    explanation = networks[0][2].explain(images)
    note = f", on {len(rotated)} test digits that stay inside the image"
    draw_quickstart(path, images, labels, explanation, (results[0], results[1]), angles=ANGLES, note=note)


def stays_inside(images: "Tensor") -> "Tensor":
    """Returns which images (N, C, H, W) have no bright pixels outside the inscribed disc: bool (N,)."""
    from ..evaluation.equivariance import disc

    return ~((images > 0) & (disc(images) == 0)).flatten(1).any(dim=1)
