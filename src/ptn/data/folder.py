"""Folders of images, one folder per class, as data sets.

    root/train/<class>/…   root/valid/<class>/… (or val)   root/test/<class>/…      or      root/<class>/…

A split without a folder of its own is drawn from the training images, class by class; the choice depends only on
file names and the seed. Hidden files and files without an image suffix are ignored. Images that cannot be read are
skipped, with a warning and an entry in `meta["skipped"]`.
"""

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..config import check, check_options
from ..errors import InputError, check_choice, nothing_at
from ..files import LOG
from .dataset import Dataset
from .images import IMAGE_SUFFIXES, Fit, open_image, read_fitted
from .store import fingerprint, reading, sha256_of_file

SPLITS = ("train", "valid", "test")
OPTIONS = ("root", "image_size", "channels", "fit", "valid_fraction", "test_fraction", "seed")
DEFAULT_SIZE = 64
_GRAY_MODES = ("1", "L", "LA", "La", "I", "F")

Listing = dict[str, list[Path]]  # the image files of each class


def load_folder(
    root: Path | str,
    split: str,
    *,
    image_size: int | tuple[int, int],
    channels: Literal[1, 3] | None = None,
    fit: Fit = "resize",
    valid_fraction: float = 0.15,
    test_fraction: float = 0.15,
    seed: int = 0,
) -> Dataset:
    """Load a split ("train", "valid" or "test") of the images under `root`, all at one size.

    Args:
        root: a folder with one folder per class, or with the folders "train" and "test" of such folders.
        split: "train", "valid" or "test".
        image_size: height and width of the images, or one number for both.
        channels: 1 for gray, 3 for color; None for color if any image of any split has it.
        fit: "resize" changes the aspect ratio; "pad" keeps it and adds black borders.
        valid_fraction: share of the training images if there is no folder "valid".
        test_fraction: share of the training images if there is no folder "test".
        seed: seed of that choice.

    `meta` has "files" and "skipped" (paths relative to `root`), "source" and "sha256".
    """
    check_choice("split", split, SPLITS)
    options: dict[str, Any] = {"root": root, "image_size": image_size, "channels": channels, "fit": fit}
    options |= {"valid_fraction": valid_fraction, "test_fraction": test_fraction, "seed": seed}
    checked = check_options(load_folder, options, OPTIONS, "option of folder")
    root, image_size, channels = Path(checked["root"]), checked["image_size"], checked["channels"]
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    check("image_size", image_size, 0 < min(height, width) <= max(height, width) <= 4096, "from 1 to 4,096 pixels")
    fractions = {"valid": valid_fraction, "test": test_fraction}
    valid = min(fractions.values()) >= 0 and sum(fractions.values()) < 1
    check("valid_fraction and test_fraction", fractions, valid, "at least 0 and less than 1 together")

    listings = list_images(root)
    classes = tuple(listings["train"])
    channels = channels or _find_channels(listings)
    chosen = _choose(root, listings, split, fractions, seed)
    files = [path for paths in chosen.values() for path in paths]
    images = _read_all(files, (height, width), channels, fit)
    names = {path: path.relative_to(root).as_posix() for path in files}
    labels = [classes.index(name) for name, paths in chosen.items() for path in paths if path in images]
    empty = set(range(len(classes))) - set(labels) if split == "train" else set()
    if not images or empty:
        kind = f"class {classes[min(empty)]}" if empty else split
        raise InputError(f"{root}: no image of {kind} can be read")
    hashes = {names[path]: sha256_of_file(path) for path in images}
    meta = {
        "source": "folder",
        "sha256": fingerprint(files=hashes, size=[height, width], channels=channels, fit=fit, labels=labels),
        "files": tuple(hashes),
        "skipped": tuple(name for path, name in names.items() if path not in images),
    }
    stacked = torch.stack(list(images.values()))
    return Dataset(root.resolve().name, split, stacked, torch.tensor(labels), classes, meta)


def list_images(root: Path) -> dict[str, Listing]:
    """Return the image files of each split that has a folder, by class; "train" is among them, with all classes."""
    folders = split_folders(root)
    listings = {split: _list_classes(folder) for split, folder in folders.items()}
    train = listings["train"]
    if len(train) < 2:
        raise InputError(f"{folders['train']} must have one folder per class, at least two; it has {len(train)}")
    for name in (str(root.absolute()), *train):  # weights and records contain it
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InputError(f"{name}: the name of a folder must be Unicode: rename it")
    for name, files in train.items():
        if not files:
            raise InputError(f"{folders['train'] / name} has no images: every class needs some")
    for split, listing in listings.items():
        if unknown := sorted(listing.keys() - train.keys()):
            raise InputError(f"{folders[split] / unknown[0]} is a class that {folders['train']} does not have")
    return listings


def split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split, in which every folder is a class; "train" is among them."""
    if not root.is_dir():
        raise nothing_at("folder", root)
    valid = root / "valid" if (root / "valid").is_dir() else root / "val"
    folders = {"train": root / "train", "valid": valid, "test": root / "test"}
    folders = {split: folder for split, folder in folders.items() if folder.is_dir()} or {"train": root}
    if "train" not in folders:
        raise InputError(f"{root} has a folder {next(iter(folders.values())).name} but no folder train")
    return folders


def list_files(root: Path) -> list[Path]:
    """Return all files under a folder, sorted, without hidden files and folders."""
    paths = (path for path in root.rglob("*") if not any(p.startswith(".") for p in path.relative_to(root).parts))
    return sorted(path for path in paths if path.is_file())


def list_flat(root: Path) -> list[Path]:
    """Return the images directly in a folder, sorted; none if it has folders, which are classes."""
    if not root.is_dir():
        raise nothing_at("folder", root)
    entries = [path for path in root.iterdir() if not path.name.startswith(".")]
    if any(path.is_dir() for path in entries):
        return []
    return sorted(path for path in entries if _is_image(path) and path.is_file())


def read_flat(files: Sequence[Path], size: tuple[int, int], channels: Literal[1, 3], fit: Fit) -> Tensor:
    """Read image files as `load_folder` does: uint8 (N, C, H, W). Files that cannot be read are skipped."""
    images = _read_all(files, size, channels, fit)
    if not images:
        raise InputError(f"none of {len(files)} images can be read, {files[0]} for example")
    return torch.stack(list(images.values()))


def _read_all(files: Sequence[Path], size: tuple[int, int], channels: int, fit: Fit) -> dict[Path, Tensor]:
    """Return the images of the files that can be read, in order; the others are reported."""

    def read(path: Path) -> Tensor | None:
        try:
            return read_fitted(path, size, channels, fit)
        except InputError as error:
            LOG.warning("skipped %s", error)
            return None

    with ThreadPoolExecutor() as pool:
        images = zip(files, pool.map(read, files), strict=True)
        return {path: image for path, image in images if image is not None}


def _list_classes(folder: Path) -> Listing:
    """Return the images under each class folder, at any depth, sorted."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {path.name: [file for file in list_files(path) if _is_image(file)] for path in classes}


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _choose(
    root: Path, listings: dict[str, Listing], split: str, fractions: dict[str, float], seed: int
) -> Listing:
    """Return the files of a split by class: those of its folder, or its share of the training images."""
    if split in listings and split != "train":
        return listings[split]
    shares = {name: fraction for name, fraction in fractions.items() if name not in listings}
    chosen = {}
    for name, files in listings["train"].items():
        rest = sorted(files, key=lambda path: fingerprint(seed=seed, file=path.relative_to(root).as_posix()))
        parts = {}
        for part, share in shares.items():
            count = min(round(share * len(files)), len(rest) - 1)  # at least one training image per class
            parts[part], rest = rest[:count], rest[count:]
        chosen[name] = sorted(parts.get(split, []) if split != "train" else rest)
    if not any(chosen.values()):
        raise InputError(f"{root} has no images for {split}: add images, or folders train and {split}")
    return chosen


def median_side(files: Sequence[Path]) -> float:
    """Return the median of the shorter sides of images in pixels, of up to 200 files; only headers are read."""
    sides = []
    for path in files[:: max(1, len(files) // 200)]:
        with suppress(InputError), reading(path), open_image(path) as image:  # reported when it is read
            sides.append(min(image.size))
    return float(statistics.median(sides)) if sides else float(DEFAULT_SIZE)


def _find_channels(listings: dict[str, Listing]) -> Literal[1, 3]:
    """Return 3 if any image has colors or a palette, else 1; only headers are read."""
    for path in (path for listing in listings.values() for files in listing.values() for path in files):
        with suppress(InputError), reading(path), open_image(path) as image:  # reported when it is read
            if image.mode not in _GRAY_MODES and not image.mode.startswith("I;16"):
                return 3
    return 1
