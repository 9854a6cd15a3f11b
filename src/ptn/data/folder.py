"""A folder of images, one folder a class, as a data set.

    root/train/<class>/…   root/valid/<class>/… (or val)   root/test/<class>/…      or      root/<class>/…

A split without a folder of its own is drawn from the training images, by seed and class by class. Which ones
it gets depends on their names and the seed alone, not on the order in which a file system lists them.

Images may have any size, format and mode that Pillow reads. What is transparent is laid on white, as viewers
show it; 16 bits become 8; the camera's orientation is applied. Hidden files, and files that are no images by
their suffix, are passed over. An image that cannot be read is named in the log and in `meta["skipped"]`.
"""

import hashlib
import operator
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, SupportsIndex

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, check_choice, nothing_at
from .checks import check_seed
from .dataset import Dataset
from .formats.image import read_image
from .store import LOG, fingerprint

SPLITS = ("train", "valid", "test")
FITS = ("resize", "pad")
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
)
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
LUMA = (0.299, 0.587, 0.114)

Fit = Literal["resize", "pad"]
# The image files of each class.
Listing = dict[str, list[Path]]


class FittedImage(NamedTuple):
    """What became of one file: its image, uint8 (C, H, W), and the sha256 of its bytes, or the fault it has."""

    image: Tensor | None
    sha256: str
    fault: str


def load_folder(
    root: Path | str,
    split: str,
    *,
    image_size: SupportsIndex | tuple[SupportsIndex, SupportsIndex],
    channels: Literal[1, 3] | None = None,
    fit: Fit = "resize",
    valid_fraction: float = 0.15,
    test_fraction: float = 0.15,
    seed: int = 0,
) -> Dataset:
    """A split ("train", "valid" or "test") of the images under `root`, all of one size.

    Args:
        image_size: height and width of the images, or one number for both.
        channels: 1 for grey, 3 for colour; None for colour if any image of any split has it.
        fit: "resize" stretches an image to `image_size`; "pad" keeps its shape and adds black around it.
        valid_fraction: how much of the training images is for validation, if that has no folder.
        test_fraction: the same for testing.
        seed: which images those are.

    `meta` has "files" and "skipped" (paths under `root`), "source" and "sha256".
    """
    root = Path(root)
    check_choice("split", split, SPLITS)
    check_choice("fit", fit, FITS)
    check_seed(seed)
    height, width = _height_and_width(image_size)
    if channels not in (None, 1, 3):
        raise InputError(f"channels must be 1 or 3; got {channels}")
    if not (valid_fraction >= 0 and test_fraction >= 0 and valid_fraction + test_fraction < 1):
        raise InputError(f"fractions must leave images to train on; got {valid_fraction} and {test_fraction}")

    listings = list_images(root)
    classes = tuple(listings["train"])
    colours = channels or _decide_channels(listings)
    chosen = _choose(root, listings, split, {"valid": valid_fraction, "test": test_fraction}, seed)
    files = [path for paths in chosen.values() for path in paths]
    labels = [classes.index(name) for name, paths in chosen.items() for _ in paths]
    results = _read_all(files, (height, width), colours, fit)

    images, kept, digests, skipped = [], [], {}, []
    for index, (path, result) in enumerate(zip(files, results, strict=True)):
        name = path.relative_to(root).as_posix()
        if result.image is None:
            LOG.warning("skipped %s", result.fault)
            skipped.append(name)
        else:
            images.append(result.image)
            kept.append(labels[index])
            digests[name] = result.sha256
    empty = sorted(set(range(len(classes))) - set(kept)) if split == "train" else []
    if not images or empty:
        what = f"class {classes[empty[0]]}" if images else split
        raise InputError(f"{root}: no image of {what} can be read; {len(skipped)} files of {split} are damaged")
    meta = {
        "source": "folder",
        "sha256": fingerprint(files=digests, size=[height, width], channels=colours, fit=fit, labels=kept),
        "files": tuple(digests),
        "skipped": tuple(skipped),
    }
    return Dataset(root.resolve().name, split, torch.stack(images), torch.tensor(kept), classes, meta)


def list_flat(root: Path) -> list[Path]:
    """The images that lie in a folder itself, in order of name; none where it has folders, which are classes."""
    if not root.is_dir():
        raise nothing_at("folder", root)
    entries = [path for path in root.iterdir() if not path.name.startswith(".")]
    if any(path.is_dir() for path in entries):
        return []
    return sorted(path for path in entries if _is_image(path) and path.is_file())


def list_files(root: Path) -> list[Path]:
    """All files under a folder, at any depth, in order of name, but hidden ones and those in hidden folders."""
    return sorted(path for path in root.rglob("*") if _is_visible(path, root) and path.is_file())


def read_flat(files: Sequence[Path], size: tuple[int, int], channels: Literal[1, 3], fit: Fit) -> Tensor:
    """The images in files, uint8 (N, C, H, W), as `load_folder` has them; what cannot be read is in the log."""
    images = []
    for result in _read_all(files, size, channels, fit):
        if result.image is None:
            LOG.warning("skipped %s", result.fault)
        else:
            images.append(result.image)
    if not images:
        raise InputError(f"none of {len(files)} images can be read, {files[0]} to begin with")
    return torch.stack(images)


def _read_all(files: Sequence[Path], size: tuple[int, int], channels: int, fit: Fit) -> list[FittedImage]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda path: read_fitted(path, size, channels, fit), files))


def _height_and_width(image_size: object) -> tuple[int, int]:
    try:
        given = tuple(image_size) if isinstance(image_size, Iterable) else (image_size, image_size)
        height, width = (operator.index(side) for side in given if not isinstance(side, bool))
    except (TypeError, ValueError):
        whole = "a whole number, or two: height and width"
        raise InputError(f"image_size must be {whole}; got {image_size!r}") from None
    if min(height, width) < 1:
        raise InputError(f"image_size must be positive; got {image_size!r}")
    return height, width


def list_images(root: Path) -> dict[str, Listing]:
    """The files of the splits that have folders; "train" is among them, and has every class."""
    if not root.is_dir():
        raise nothing_at("folder", root)
    valid = root / "valid" if (root / "valid").is_dir() else root / "val"
    folders = {"train": root / "train", "valid": valid, "test": root / "test"}
    present = {split: folder for split, folder in folders.items() if folder.is_dir()}
    if present and "train" not in present:
        raise InputError(f"{root} has {next(iter(present.values())).name} but no folder train beside it")
    listings = {split: _list_classes(folder) for split, folder in (present or {"train": root}).items()}
    top = present.get("train", root)
    train = listings["train"]
    if len(train) < 2:
        found = f"only the class {next(iter(train))}" if train else "no class"
        raise InputError(f"{top} has {found}: put the images into a folder for each class, at least two")
    for name, files in train.items():
        if not files:
            raise InputError(f"{top / name} has no images: every class needs some")
    for split, listing in listings.items():
        if unknown := sorted(listing.keys() - train.keys()):
            raise InputError(f"{present[split] / unknown[0]} is a class that {top} does not have")
    return listings


def _list_classes(folder: Path) -> Listing:
    """The images under each class folder, at any depth, in order of name."""
    tops = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {top.name: [path for path in list_files(top) if _is_image(path)] for top in tops}


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _is_visible(path: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _choose(
    root: Path, listings: dict[str, Listing], split: str, fractions: dict[str, float], seed: int
) -> Listing:
    """The files of one split, class by class: those of its folder, or its share of the training images."""
    if split in listings and split != "train":
        return listings[split]
    shares = {name: fraction for name, fraction in fractions.items() if name not in listings}
    chosen = {}
    for name, files in listings["train"].items():
        rest = sorted(files, key=lambda path: fingerprint(seed=seed, file=path.relative_to(root).as_posix()))
        parts = {}
        for part, share in shares.items():
            count = min(round(share * len(files)), len(rest) - 1)  # each class keeps an image to train on
            parts[part], rest = rest[:count], rest[count:]
        chosen[name] = sorted(parts.get(split, []) if split != "train" else rest)
    if not any(chosen.values()):
        raise InputError(f"{root} has no images for {split}: add a folder {split}, or raise {split}_fraction")
    return chosen


def _decide_channels(listings: dict[str, Listing]) -> Literal[1, 3]:
    """3 if the header of any image says that it has colours or a palette, else 1."""
    from PIL import Image

    for listing in listings.values():
        for path in (path for files in listing.values() for path in files):
            try:
                with Image.open(path) as image:
                    grey = image.mode in GREY_MODES or image.mode.startswith("I;16")
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                continue  # reported when it is read
            if not grey:
                return 3
    return 1


def read_fitted(path: Path, size: tuple[int, int], channels: int, fit: Fit) -> FittedImage:
    """The image in a file, brought to `size` and `channels` as `load_folder` does."""
    try:
        picture, _ = read_image(path)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except InputError as error:
        return FittedImage(None, "", str(error))
    # A damaged file can fail anywhere in a decoder, with whatever exception its bytes lead to.
    except Exception as error:
        return FittedImage(None, "", f"{path}: {(str(error) or type(error).__name__).splitlines()[0]}")
    picture = _fit(_with_channels(picture, channels), size, fit)
    return FittedImage((picture * 255).round().byte(), digest, "")


def _with_channels(picture: Tensor, channels: int) -> Tensor:
    """Grey, grey and alpha, RGB or RGBA -> grey or RGB, (C, H, W) in [0, 1]."""
    if len(picture) in (2, 4):
        alpha = picture[-1:]
        picture = picture[:-1] * alpha + (1 - alpha)
    if channels == 3:
        return picture.expand(3, -1, -1)
    if len(picture) == 1:
        return picture
    return (picture * picture.new_tensor(LUMA)[:, None, None]).sum(0, keepdim=True)


def _fit(picture: Tensor, size: tuple[int, int], fit: Fit) -> Tensor:
    """(C, H, W) -> (C, *size)."""
    height, width = picture.shape[1:]
    if (height, width) == size:
        return picture
    if fit == "resize":
        return _resize(picture, size)
    scale = min(size[0] / height, size[1] / width)
    inner = (max(1, round(height * scale)), max(1, round(width * scale)))
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    canvas = picture.new_zeros(len(picture), *size)
    canvas[:, top : top + inner[0], left : left + inner[1]] = _resize(picture, inner)
    return canvas


def _resize(picture: Tensor, size: tuple[int, int]) -> Tensor:
    resized = F.interpolate(picture[None], size, mode="bicubic", antialias=True, align_corners=False)
    return resized[0].clamp(0, 1)
