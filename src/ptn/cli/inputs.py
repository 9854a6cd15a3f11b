"""What `evaluate`, `audit` and `export` share: the images that a network is tried on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..data import Dataset, VoxelDataset
    from ..evaluation import Weights

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        "--dataset",
        help="A data set of `ptn data list`; by default what was trained on.",
        show_default=False,
    ),
]
FolderOption = Annotated[
    Path | None, typer.Option(help="A folder of images instead, one folder a class.", show_default=False)
]
SplitOption = Annotated[str, typer.Option(help="Which part of it; train+valid+test is all.")]

# What the splits of a folder depend on, where the weights say how they were drawn in training.
_FOLDER_OPTIONS = ("valid_fraction", "test_fraction", "seed")


def load_for(weights: "Weights", data: str | None, folder: Path | None, split: str) -> "Dataset | VoxelDataset":
    """The data set that was asked for, or else what the weights were trained on, as it was loaded then."""
    from ..data.catalog import dataset_info, load_dataset
    from .progress import show_progress

    if folder is not None and data is not None:
        raise InputError("--data and --folder are two data sets: give one of them")
    name = "folder" if folder is not None else data or weights.dataset
    if name is None:
        raise InputError(f"{weights.name} does not say what it was trained on: give --data or --folder")
    if name == "folder":
        root = folder or weights.dataset_options.get("root")
        if root is None:
            raise InputError(f"{weights.name} was trained on a folder of images: say where it is with --folder")
        return _load_folder(weights, Path(root), split)
    options = weights.dataset_options if name == weights.dataset else {}
    with show_progress(f"loading {name} {split}") as report:
        if "progress" in dataset_info(name).options:
            options = {**options, "progress": report}
        return load_dataset(name, split, **options)


def _load_folder(weights: "Weights", folder: Path, split: str) -> "Dataset | VoxelDataset":
    """Images in class folders, as the network takes them."""
    from ..data.dataset import concatenate
    from ..data.folder import load_folder

    size, channels = picture_shape(weights)
    drawn = {key: weights.dataset_options[key] for key in _FOLDER_OPTIONS if key in weights.dataset_options}
    return concatenate(
        [
            load_folder(
                folder,
                part,
                image_size=size,
                channels=channels,
                fit=weights.fit,
                **drawn,
            )
            for part in split.split("+")
        ]
    )


def picture_shape(weights: "Weights") -> tuple[tuple[int, int], Literal[1, 3]]:
    """The size and the channels of the pictures that a network takes; an error if it takes anything else."""
    channels, *size = weights.model.input_shape
    if len(size) != 2 or channels not in (1, 3):
        raise InputError(f"{weights.name} takes {weights.model.input_shape}, which no image file holds")
    return (size[0], size[1]), 3 if channels == 3 else 1
