"""`ptn figures`: the pictures of the paper, drawn from data and records."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError, check_choice


def register(app: typer.Typer) -> None:
    app.command("figures")(figures)


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIGURE",
            help="logpolar (digits turned and enlarged), cylinder (shapes turned), azimuth (accuracy against it); "
            "by default all.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of records (*.jsonl), or one file of them.", metavar="FOLDER")
    ] = Path("results"),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures, NAME.png.")] = Path(
        "out"
    ),
) -> None:
    """Draw figures, each into a PNG file of its name, and print where they are."""
    for name in names or []:
        check_choice("figure", name, _FIGURES)
    for name in dict.fromkeys(names or _FIGURES):
        path = output / f"{name}.png"
        _FIGURES[name](path, results)
        print(path)


def _logpolar(path: Path, results: Path) -> None:
    from ..data.quickstart import load_digits
    from ..reporting.figures import logpolar

    source = load_digits()
    three = source.images[int((source.labels == 3).nonzero()[0])].float() / 255
    logpolar.draw(three, path)


def _cylinder(path: Path, results: Path) -> None:
    import torch

    from ..data import VoxelDataset, load_dataset
    from ..data.dataset import unpack_voxels
    from ..data.voxelize import fill
    from ..reporting.figures import cylinder

    test = load_dataset("modelnet40", "test", size=64)
    if not isinstance(test, VoxelDataset):
        raise InputError("modelnet40 has no voxels")
    shapes = []
    for name in ("chair", "bench"):
        chosen = (test.labels == test.classes.index(name)) & ~test.meta["from_points"]
        row = int(chosen.nonzero()[1])  # the second of each, a shape with much to see
        surface = unpack_voxels(test.packed[row : row + 1], test.size)[0, 0].bool().numpy()
        shapes.append((name, torch.from_numpy(fill(surface)).float()))
    cylinder.draw(shapes, path)


def _azimuth(path: Path, results: Path) -> None:
    from ..reporting.figures import azimuth
    from .report import load_records

    azimuth.draw(load_records(results), path)


_FIGURES: dict[str, Callable[[Path, Path], None]] = {
    "logpolar": _logpolar,
    "cylinder": _cylinder,
    "azimuth": _azimuth,
}
