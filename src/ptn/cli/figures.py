"""`ptn figures`: the pictures of the paper, drawn from data and records."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, check_choice, optional_module

if TYPE_CHECKING:
    from torch import Tensor

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
            help="logpolar (digits turned and enlarged), responses (group convolutions), architecture (a network "
            "at work), moving (a film of a digit), sim2mnist (what a network sees there), cylinder (shapes "
            "turned), azimuth (accuracy against it), rotsvhn (house numbers turned), angles (accuracy against how "
            "far), origins (where a network looks in them); by default all.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of records (*.jsonl), or one file of them.", metavar="FOLDER")
    ] = Path("results"),
    weights: Annotated[
        str | None,
        typer.Option(
            help="For architecture, moving, sim2mnist and origins: the network in this .safetensors file, instead "
            "of one that is not trained, of ptn_b.sim2mnist, or of ptn_resnet32.rotsvhn.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Light ink on dark paper, NAME.dark.png.")] = False,
    kind: Annotated[str, typer.Option("--format", help="png, webp, svg or pdf; films are WebP.")] = "png",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures, NAME.png.")] = Path(
        "out"
    ),
) -> None:
    """Draw figures, each into a file of its name, and print where they are.

    Of all figures, those that lack data, weights or records are left out, and why is said.
    """
    from ..evaluation import open_weights
    from ..reporting.figures import style

    for name in names or []:
        check_choice("figure", name, _FIGURES)
    check_choice("format", kind, style.FORMATS)
    optional_module("matplotlib", "ptn[figures]")
    sources = Sources(results, None if weights is None else open_weights(weights))
    for name in dict.fromkeys(names or _FIGURES):
        suffix = "webp" if name in _FILMS else kind
        path = output / f"{name}{'.dark' if dark else ''}.{suffix}"
        try:
            with style.paper(dark=dark):
                _FIGURES[name](path, sources)
        except InputError as error:
            if names:
                raise
            print(f"ptn: {name} is left out: {error}", file=sys.stderr)
        else:
            print(path)


def _logpolar(path: Path, sources: Sources) -> None:
    from ..reporting.figures import logpolar

    logpolar.draw(_digit(3), path)


def _responses(path: Path, sources: Sources) -> None:
    from ..reporting.figures import responses

    responses.draw(_digit(4), path)


def _architecture(path: Path, sources: Sources) -> None:
    import torch

    from ..geometry import Similarity, similarity_warp
    from ..models import create_model
    from ..models.networks import Network
    from ..reporting.figures import architecture

    digits = tuple(map(str, range(10)))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # one that is not trained looks the same every time
        model = create_model("ptn_b", image_size=42) if sources.weights is None else sources.weights.model
    if not isinstance(model, Network) or len(model.input_shape) != 3:
        raise InputError("the architecture is drawn of a network with a learned origin: take ptn_s, ptn_b or ptn_l")
    channels, height, width = model.input_shape
    side = min(height, width)
    # away from the middle, so that there is an origin to find
    image = similarity_warp(
        _digit(4)[None, None],
        Similarity(scale=side / 42, shift_px=(side / 6, side / 6)),
        size=(height, width),
        mode="bicubic",
    ).clamp(0, 1)[0]
    trained = "" if sources.weights else ", not trained yet"
    architecture.draw(
        model,
        image.expand(channels, -1, -1),
        path,
        title=f"{model.config.name}{trained}",
        classes=sources.weights.class_names if sources.weights else digits,
    )


def _moving(path: Path, sources: Sources) -> None:
    from ..models import OnnxModel
    from ..reporting.figures import moving

    if sources.weights is None:
        frames = moving.film(_digit(4))
    elif isinstance(sources.weights.model, OnnxModel):
        raise InputError("the moving picture needs the .safetensors file that the ONNX file was made from")
    else:
        frames = moving.film(_digit(4), sources.weights.model, classes=sources.weights.class_names)
    moving.draw(frames, path)


def _trained(sources: Sources, tag: str, recipe: str) -> "Weights":
    """The network that was given, or the one that comes with the package under `tag`."""
    from ..evaluation import open_weights
    from ..models import list_pretrained

    if sources.weights is not None:
        return sources.weights
    if tag not in list_pretrained():
        raise InputError(
            f"this picture is of a trained network: give its file with --weights FILE, say the weights.safetensors "
            f"of `ptn train {recipe}`"
        )
    return open_weights(tag)


def _digit(label: int) -> "Tensor":
    """A real digit that comes with an installed package, (28, 28) in [0, 1]."""
    from ..data.mnist import load_bundled

    source = load_bundled()
    return source.images[int((source.labels == label).nonzero()[0])].float() / 255


def _sim2mnist(path: Path, sources: Sources) -> None:
    import torch

    from ..data import Dataset, load_dataset
    from ..data.mnist import load_mnist
    from ..models.networks import PolarNetwork
    from ..reporting.figures import sim2mnist

    weights = _trained(sources, "ptn_b.sim2mnist", "sim2mnist/ptn_b/modern")
    if weights.dataset != "sim2mnist" or not isinstance(weights.model, PolarNetwork):
        raise InputError(f"{weights.name} is no polar network trained on sim2mnist: train sim2mnist/ptn_b/modern")
    test = load_dataset("sim2mnist", "test", **weights.dataset_options)
    if not isinstance(test, Dataset):
        raise InputError("sim2mnist has no images")
    mnist = load_mnist()
    first = int((test.labels == _SHOWN).nonzero()[0])
    chosen = test.meta["mnist_index"][first : first + _DIGITS]
    images = mnist.images[chosen]
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
    from ..evaluation.classify import match_classes
    from ..models import Network
    from ..reporting.figures import origins
    from ..reporting.published import TABLES

    TITLES = {"ptn_resnet32": "PTN-ResNet32", "resnet32": "ResNet32"}

    opened = _trained(sources, "ptn_resnet32.rotsvhn", "rotsvhn/ptn_resnet32/modern")
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
    "responses": _responses,
    "architecture": _architecture,
    "moving": _moving,
    "sim2mnist": _sim2mnist,
    "cylinder": _cylinder,
    "azimuth": _azimuth,
    "rotsvhn": _rotsvhn,
    "angles": _angles,
    "origins": _origins,
}
_FILMS = ("moving",)
