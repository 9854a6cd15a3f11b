"""Figures of the paper and of the documentation: `python -m experiments figures NAME...`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from ptn.cli.train import NETWORKS, draw_networks
from ptn.data import Dataset, VoxelDataset, load_dataset
from ptn.data.dataset import unpack_voxels
from ptn.data.mnist import bundled_digits
from ptn.data.voxelize import fill
from ptn.demo.models import Pair, find_pairs, load_samples
from ptn.errors import InputError, check_choice, optional_module
from ptn.evaluation import evaluate, match_classes
from ptn.figures import draw_log_polar, paper
from ptn.geometry import Similarity, similarity_warp
from ptn.models import PolarNetwork, load_model

from ..tables import load_records
from . import architecture, curves, cylinder, hero, responses, sim2mnist, svhn, unwrapping


def _digit(label: int) -> Tensor:
    """Returns the first digit of a class, (28, 28) in [0, 1]."""
    images, labels, _ = bundled_digits()
    return images[int((labels == label).nonzero()[0])].float() / 255


def _load(name: str, split: str, **options: object) -> Dataset:
    dataset = load_dataset(name, split, **options)
    assert isinstance(dataset, Dataset)
    return dataset


def _network(tag: str) -> PolarNetwork:
    model = load_model(tag)
    assert isinstance(model, PolarNetwork)
    return model


def _title(model: PolarNetwork) -> str:
    return model.config.name.upper().replace("_", "-").replace("RESNET", "ResNet")


def _architecture(path: Path) -> None:
    pose = Similarity(shift_px=(7.0, 7.0))
    image = similarity_warp(_digit(4)[None, None], pose, size=(42, 42), mode="bicubic").clamp(0, 1)[0]
    model = _network("ptn_s.quickstart")
    architecture.draw(model, image, path, title=_title(model))


def _sim2mnist(path: Path) -> None:
    model = _network("ptn_b.sim2mnist")
    test = _load("sim2mnist", "test", **model.metadata.get("dataset_options", {}))
    # The MNIST originals of 200 test digits, the first of them a 9.
    first = int((test.labels == 9).nonzero()[0])
    originals = torch.cat([_load("mnist", split).images for split in ("train", "test")])
    digits = originals[test.meta["mnist_index"][first : first + 200], 0].float() / 255
    sim2mnist.draw(model, test, digits, path, title=_title(model))


def _cylinder(path: Path) -> None:
    test = load_dataset("modelnet40", "test", size=64)
    assert isinstance(test, VoxelDataset)
    shapes = []
    for name in ("chair", "bench"):
        members = (test.labels == test.classes.index(name)) & ~test.meta["from_points"]
        row = int(members.nonzero()[1])
        surface = unpack_voxels(test.packed[row : row + 1], test.size)[0, 0].bool().numpy()
        shapes.append((name, torch.from_numpy(fill(surface)).float()))
    cylinder.draw(shapes, path)


def _pair() -> Pair:
    """Returns the released networks that were trained on upright digits."""
    return next(pair for pair in find_pairs() if pair.key == "ptn_b.mnist-anywhere")


def _upright(path: Path) -> None:
    if networks := curves.upright_networks(load_records()):
        curves.draw_upright(networks, path)
        return
    curves.draw_poses(_pair(), load_samples("digits"), path)


def _rotsvhn(path: Path) -> None:
    rotated, wide, shrunk = (
        _load("rotsvhn", "test", **options) for options in ({}, {"size": 48}, {"scale": (0.6, 1.0)})
    )
    svhn.draw_rotsvhn(_load("svhn", "test"), rotated, wide, shrunk, path)


def _origins(path: Path) -> None:
    model = _network("ptn_resnet32.rotsvhn")
    name = model.metadata["dataset"]
    digits = match_classes(_load(name, "test", **model.metadata.get("dataset_options", {})), model.classes or ())
    assert isinstance(digits, Dataset)
    svhn.draw_origins(model, f"{_title(model)} on {name.upper()}", digits, path)


def _quickstart(path: Path) -> None:
    test = _load("quickstart", "test")
    networks: list[Any] = [load_model(f"{name}.quickstart") for name in reversed(NETWORKS)]
    draw_networks([(_title(model), evaluate(model, test).error, model) for model in networks], test, path)


_AZIMUTH_LABELS = ("test shapes rotated about z by", "instance accuracy (%)")
_ANGLE_LABELS = ("test digits rotated by", "accuracy (%)")

# The function that draws each figure.
FIGURES: dict[str, Callable[[Path], None]] = {
    "logpolar": lambda path: draw_log_polar(_digit(3), path),
    "quickstart": _quickstart,
    "hero": lambda path: hero.draw(_pair(), load_samples("digits").images[0] / 255, path),
    "upright": _upright,
    "orbit": lambda path: responses.draw_orbit(_digit(4), path),
    "responses": lambda path: responses.draw_maps(_digit(4), path),
    "architecture": _architecture,
    "sim2mnist": _sim2mnist,
    "cylinder": _cylinder,
    "azimuth": partial(curves.draw, curves.AZIMUTH_PANELS, "azimuth", labels=_AZIMUTH_LABELS),
    "rotsvhn": _rotsvhn,
    "angles": partial(curves.draw, curves.ANGLE_PANELS, "angle", labels=_ANGLE_LABELS),
    "origins": _origins,
    "time": curves.draw_time,
    "grids": unwrapping.draw_grids,
    "registration": unwrapping.draw_registration,
    "segmentation": unwrapping.draw_segmentation,
}


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"{', '.join(FIGURES)}.", show_default="all")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path("out"),
) -> None:
    """Draw figures for light and for dark pages, from data, records and released networks, and print their paths.

    Without names, figures whose data are missing are skipped with a message.
    """
    for name in names or []:
        check_choice("figure", name, FIGURES)
    optional_module("matplotlib", "ptn[figures]")
    for name in names or FIGURES:
        try:
            for dark in (False, True):
                path = output / f"{name}{'.dark' * dark}.webp"
                with paper(dark=dark):
                    FIGURES[name](path)
                print(path)
        except InputError as error:
            if names:
                raise
            print(f"skipped {name}: {error}", file=sys.stderr)
