"""One function per figure, which draws it from data, records or a released network into a file."""

from pathlib import Path

import torch
from torch import Tensor

from ptn.data import Dataset, VoxelDataset, load_dataset
from ptn.data.dataset import unpack_voxels
from ptn.data.mnist import bundled_digits
from ptn.data.voxelize import fill
from ptn.evaluation import match_classes
from ptn.figures import draw_log_polar
from ptn.geometry import Similarity, similarity_warp
from ptn.models import PolarNetwork, load_model

from ..tables import load_records
from . import architecture as _architecture
from . import curves as _curves
from . import cylinder as _cylinder
from . import moving as _moving
from . import responses as _responses
from . import sim2mnist as _sim2mnist
from . import svhn as _svhn


def logpolar(path: Path) -> None:
    draw_log_polar(_digit(3), path)


def responses(path: Path) -> None:
    _responses.draw(_digit(4), path)


def architecture(path: Path) -> None:
    pose = Similarity(shift_px=(7.0, 7.0))
    image = similarity_warp(_digit(4)[None, None], pose, size=(42, 42), mode="bicubic").clamp(0, 1)[0]
    model = _network("ptn_s.quickstart")
    _architecture.draw(model, image, path, title=_title(model))


def moving(path: Path) -> None:
    _moving.draw(_digit(4), _network("ptn_s.quickstart"), path)


def sim2mnist(path: Path) -> None:
    model = _network("ptn_b.sim2mnist")
    test = _load("sim2mnist", "test", **model.metadata.get("dataset_options", {}))
    # The MNIST originals of 200 test digits, the first of them a 9.
    first = int((test.labels == 9).nonzero()[0])
    originals = torch.cat([_load("mnist", split).images for split in ("train", "test")])
    digits = originals[test.meta["mnist_index"][first : first + 200], 0].float() / 255
    _sim2mnist.draw(model, test, digits, path, title=_title(model))


def cylinder(path: Path) -> None:
    test = load_dataset("modelnet40", "test", size=64)
    assert isinstance(test, VoxelDataset)
    shapes = []
    for name in ("chair", "bench"):
        members = (test.labels == test.classes.index(name)) & ~test.meta["from_points"]
        row = int(members.nonzero()[1])
        surface = unpack_voxels(test.packed[row : row + 1], test.size)[0, 0].bool().numpy()
        shapes.append((name, torch.from_numpy(fill(surface)).float()))
    _cylinder.draw(shapes, path)


def azimuth(path: Path) -> None:
    labels = ("test shapes rotated about z by", "instance accuracy (%)")
    _curves.draw(_curves.AZIMUTH_PANELS, load_records(), "azimuth", path, labels)


def rotsvhn(path: Path) -> None:
    rotated, wide, shrunk = (
        _load("rotsvhn", "test", **options) for options in ({}, {"size": 48}, {"scale": (0.6, 1.0)})
    )
    _svhn.draw_rotsvhn(_load("svhn", "test"), rotated, wide, shrunk, path)


def angles(path: Path) -> None:
    _curves.draw(_curves.ANGLE_PANELS, load_records(), "angle", path, ("test digits rotated by", "accuracy (%)"))


def origins(path: Path) -> None:
    model = _network("ptn_resnet32.rotsvhn")
    name = model.metadata["dataset"]
    digits = match_classes(_load(name, "test", **model.metadata.get("dataset_options", {})), model.classes or ())
    assert isinstance(digits, Dataset)
    _svhn.draw_origins(model, f"{_title(model)} on {name.upper()}", digits, path)


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
