"""`ptn figures`: the pictures of the paper, drawn from data and records."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, check_choice, optional_module

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
            help="logpolar (digits turned and enlarged), sim2mnist (what a network sees there), cylinder (shapes "
            "turned), azimuth (accuracy against it); by default all.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of records (*.jsonl), or one file of them.", metavar="FOLDER")
    ] = Path("results"),
    weights: Annotated[
        str | None,
        typer.Option(
            help="For sim2mnist: the network in this .safetensors file, instead of ptn_b.sim2mnist.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Light ink on dark paper, NAME.dark.png.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures, NAME.png.")] = Path(
        "out"
    ),
) -> None:
    """Draw figures, each into a PNG file of its name, and print where they are."""
    from ..evaluation import open_weights
    from ..reporting.figures import style

    for name in names or []:
        check_choice("figure", name, _FIGURES)
    optional_module("matplotlib", "ptn[figures]")
    sources = Sources(results, None if weights is None else open_weights(weights))
    for name in dict.fromkeys(names or _FIGURES):
        path = output / f"{name}{'.dark' if dark else ''}.png"
        with style.paper(dark=dark):
            _FIGURES[name](path, sources)
        print(path)


def _logpolar(path: Path, sources: Sources) -> None:
    from ..data.quickstart import load_digits
    from ..reporting.figures import logpolar

    source = load_digits()
    three = source.images[int((source.labels == 3).nonzero()[0])].float() / 255
    logpolar.draw(three, path)


def _sim2mnist(path: Path, sources: Sources) -> None:
    import torch

    from ..data import Dataset, load_dataset
    from ..data.mnist import load_mnist
    from ..evaluation import open_weights
    from ..models.networks import PolarNetwork
    from ..reporting.figures import sim2mnist

    weights = sources.weights or open_weights("ptn_b.sim2mnist")
    if weights.dataset != "sim2mnist" or not isinstance(weights.model, PolarNetwork):
        raise InputError(f"{weights.name} is no polar network trained on sim2mnist: train sim2mnist/ptn_b/modern")
    test = load_dataset("sim2mnist", "test", **weights.dataset_options)
    if not isinstance(test, Dataset):
        raise InputError("sim2mnist has no images")
    mnist = load_mnist()
    first = int((test.labels == _SHOWN).nonzero()[0])
    chosen = test.meta["mnist_index"][first : first + _DIGITS]
    images = torch.cat((mnist.train_images, mnist.test_images))[chosen]
    title = weights.model.config.name.upper().replace("_", "-")
    sim2mnist.draw(weights.model, test, images.float() / 255, path, title=title)


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


_DIGITS, _SHOWN = 200, 9
"""How many digits of SIM2MNIST have their shifts measured, and of which class the one is that is shown."""

_FIGURES: dict[str, Callable[[Path, Sources], None]] = {
    "logpolar": _logpolar,
    "sim2mnist": _sim2mnist,
    "cylinder": _cylinder,
    "azimuth": _azimuth,
}
