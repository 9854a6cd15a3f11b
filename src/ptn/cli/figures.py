"""`ptn figures`: the pictures of the paper, drawn from data and records."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, check_choice

if TYPE_CHECKING:
    from ..evaluation import Weights


@dataclass(frozen=True)
class Sources:
    """What pictures are drawn from, beside the data: records, and the network in a weights file."""

    results: Path
    weights: "Weights | None"


def register(app: typer.Typer) -> None:
    app.command("figures")(figures)


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIGURE",
            help="logpolar (digits turned and enlarged), cylinder (shapes turned), azimuth (accuracy against it), "
            "rotsvhn (house numbers turned), angles (accuracy against how far), origins (where a network looks in "
            "them); by default all.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of records (*.jsonl), or one file of them.", metavar="FOLDER")
    ] = Path("results"),
    weights: Annotated[
        str | None,
        typer.Option(
            help="For origins: the network in this .safetensors file, instead of ptn_resnet32.rotsvhn.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures, NAME.png.")] = Path(
        "out"
    ),
) -> None:
    """Draw figures, each into a PNG file of its name, and print where they are."""
    from ..evaluation import open_weights

    for name in names or []:
        check_choice("figure", name, _FIGURES)
    sources = Sources(results, None if weights is None else open_weights(weights))
    for name in dict.fromkeys(names or _FIGURES):
        path = output / f"{name}.png"
        _FIGURES[name](path, sources)
        print(path)


def _logpolar(path: Path, sources: Sources) -> None:
    from ..data.quickstart import load_digits
    from ..reporting.figures import logpolar

    source = load_digits()
    three = source.images[int((source.labels == 3).nonzero()[0])].float() / 255
    logpolar.draw(three, path)


def _cylinder(path: Path, sources: Sources) -> None:
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


def _azimuth(path: Path, sources: Sources) -> None:
    from ..reporting.figures import azimuth
    from .report import load_records

    azimuth.draw(load_records(sources.results), path)


def _rotsvhn(path: Path, sources: Sources) -> None:
    from ..data.svhn import load_svhn
    from ..reporting.figures import rotsvhn

    rotsvhn.draw(
        load_svhn("test"),
        load_svhn("test", rotated=True),
        load_svhn("test", rotated=True, size=48),
        load_svhn("test", rotated=True, scale=(0.6, 1.0)),
        path,
    )


def _angles(path: Path, sources: Sources) -> None:
    from ..reporting.figures import angles
    from .report import load_records

    angles.draw(load_records(sources.results), path)


def _origins(path: Path, sources: Sources) -> None:
    from ..data import Dataset, load_dataset
    from ..evaluation import open_weights
    from ..evaluation.classify import match_classes
    from ..models import Network
    from ..reporting.figures import origins
    from ..reporting.published import TABLES
    from ..training.photo_recipes import TITLES

    opened = sources.weights or open_weights("ptn_resnet32.rotsvhn")
    if not isinstance(opened.model, Network) or "svhn" not in (opened.dataset or ""):
        raise InputError(f"{opened.name} is no network that was trained on house numbers: train one of rotsvhn")
    digits = load_dataset(opened.dataset or "", "test", **opened.dataset_options)
    if not isinstance(digits, Dataset):
        raise InputError(f"{opened.dataset} has no images")
    name = opened.model.config.name
    title = f"{TITLES.get(name, name)} on {TABLES['svhn'].datasets[digits.name]}"
    origins.draw(opened.model, title, match_classes(digits, opened.class_names), path)


_FIGURES: dict[str, Callable[[Path, Sources], None]] = {
    "logpolar": _logpolar,
    "cylinder": _cylinder,
    "azimuth": _azimuth,
    "rotsvhn": _rotsvhn,
    "angles": _angles,
    "origins": _origins,
}
