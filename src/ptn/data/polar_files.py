"""Image files to polar image files and back. A polar file carries what the way back needs."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from ..errors import InputError
from ..files import atomic_path
from ..geometry import Law, Mode, PolarGrid, check_options, polar_sample, polar_unsample
from .formats.image import read_image, write_png

_KEY = "ptn-polar"
_SUFFIX = ".polar"
# Numbers in a result, channels and all: beyond any photograph, within the memory of a workstation.
_MOST_VALUES = 2**28


def to_polar(
    paths: Sequence[Path],
    folder: Path,
    *,
    origin: tuple[float, float] = (0.0, 0.0),
    angles: int | None = None,
    radii: int | None = None,
    law: Law = "log",
    r_min_px: float = 1.0,
    r_max_px: float | None = None,
    mode: Mode = "bilinear",
) -> list[Path]:
    """Write NAME.polar.png into `folder` for each image file: all of them, or none if one cannot be read."""
    check_options(mode, "zeros")

    def convert(path: Path) -> tuple[Tensor, dict[str, str]]:
        image, _ = read_image(path)
        size = (image.shape[1], image.shape[2])
        grid = PolarGrid(
            size[0] if angles is None else angles,
            size[1] if radii is None else radii,
            r_min_px=r_min_px,
            r_max_px=r_max_px,
            law=law,
        )
        _check_amount(path, len(image), (grid.angles, grid.radii))
        polar = polar_sample(image[None], torch.tensor([origin]), grid, mode=mode)[0]
        return polar, {_KEY: json.dumps({"origin": origin, "size": size, "grid": asdict(grid)})}

    return _convert_all(paths, folder, lambda path: f"{path.stem}{_SUFFIX}.png", convert)


def from_polar(paths: Sequence[Path], folder: Path, *, mode: Mode = "bilinear") -> list[Path]:
    """Write NAME.back.png into `folder` for each NAME.polar.png that `to_polar` wrote: all of them, or none."""
    check_options(mode, "zeros")

    def convert(path: Path) -> tuple[Tensor, dict[str, str]]:
        polar, texts = read_image(path)
        if _KEY not in texts:
            raise InputError(f"{path} does not say what it is the polar image of: was it written by `ptn polar`?")
        origin, size, grid = _parse_facts(path, texts[_KEY])
        if polar.shape[1:] != (grid.angles, grid.radii):
            found, told = "×".join(map(str, polar.shape[1:])), f"{grid.angles}×{grid.radii}"
            raise InputError(f"{path} is {found} but says that it is {told}: was it changed after `ptn polar`?")
        _check_amount(path, len(polar), size)
        image = polar_unsample(polar[None], torch.tensor([origin]), grid, size, mode=mode)
        return image[0], {}

    return _convert_all(paths, folder, lambda path: f"{path.stem.removesuffix(_SUFFIX)}.back.png", convert)


def _parse_facts(path: Path, text: str) -> tuple[tuple[float, float], tuple[int, int], PolarGrid]:
    """Origin, original size (H, W) and grid from what a polar file says of itself, and anyone may have written."""
    try:
        facts = json.loads(text)
        options = dict(facts["grid"])
        grid = PolarGrid(options.pop("angles"), options.pop("radii"), **options)
        x, y = (float(number) for number in facts["origin"])
        height, width = facts["size"]
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError("its origin is not finite")
        if not all(type(side) is int and side > 0 for side in (height, width)):
            raise ValueError("its size is not two whole numbers")
        grid.outer_radius((height, width))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        fault = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}: what it says of its polar grid makes no sense ({fault}): was it changed after `ptn polar`?"
        ) from error
    return (x, y), (height, width), grid


def _check_amount(path: Path, channels: int, size: tuple[int, int]) -> None:
    if channels * size[0] * size[1] > _MOST_VALUES:
        raise InputError(f"{path} would become {size[0]}×{size[1]} with {channels} channels: that is too large")


def _convert_all(
    paths: Sequence[Path],
    folder: Path,
    name_of: Callable[[Path], str],
    convert: Callable[[Path], tuple[Tensor, dict[str, str]]],
) -> list[Path]:
    targets = [folder / name_of(path) for path in paths]
    for index, target in enumerate(targets):
        if target in targets[:index]:
            twin = paths[targets.index(target)]
            raise InputError(f"{twin} and {paths[index]} would both become {target.name}: convert them apart")
        if any(target.exists() and path.exists() and target.samefile(path) for path in paths):
            raise InputError(f"{target} is one of the inputs: choose another output folder")
    with TemporaryDirectory(prefix="ptn-") as staging:
        staged = [Path(staging) / target.name for target in targets]
        for path, temporary in zip(paths, staged, strict=True):
            image, texts = convert(path)
            write_png(image, temporary, texts)
        for temporary, target in zip(staged, targets, strict=True):
            with atomic_path(target) as beside:
                shutil.copyfile(temporary, beside)
    return targets
