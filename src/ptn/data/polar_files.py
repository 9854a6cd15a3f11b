"""Image files to polar image files and back. A polar file carries what the way back needs."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from ..errors import InputError
from ..files import atomic_path
from ..geometry import PolarGrid, polar_sample, polar_unsample
from ..geometry.grid import Law
from ..geometry.interpolate import Interpolation, check_options
from .formats.image import read_image, write_png

_KEY = "ptn-polar"
_SUFFIX = ".polar"


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
    interpolation: Interpolation = "bilinear",
) -> list[Path]:
    """Write NAME.polar.png into `folder` for each image file: all of them, or none if one cannot be read."""
    check_options(interpolation, "zeros")

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
        polar = polar_sample(image[None], torch.tensor([origin]), grid, interpolation=interpolation)[0]
        return polar, {_KEY: json.dumps({"origin": origin, "size": size, "grid": asdict(grid)})}

    return _convert_all(paths, folder, lambda path: f"{path.stem}{_SUFFIX}.png", convert)


def from_polar(paths: Sequence[Path], folder: Path, *, interpolation: Interpolation = "bilinear") -> list[Path]:
    """Write NAME.png into `folder` for each NAME.polar.png that `to_polar` wrote: all of them, or none."""
    check_options(interpolation, "zeros")

    def convert(path: Path) -> tuple[Tensor, dict[str, str]]:
        polar, texts = read_image(path)
        if _KEY not in texts:
            raise InputError(f"{path} does not say what it is the polar image of: was it written by `ptn polar`?")
        facts = json.loads(texts[_KEY])
        grid = facts["grid"]
        image = polar_unsample(
            polar[None],
            torch.tensor([facts["origin"]], dtype=torch.float32),
            PolarGrid(grid.pop("angles"), grid.pop("radii"), **grid),
            tuple(facts["size"]),
            interpolation=interpolation,
        )
        return image[0], {}

    return _convert_all(paths, folder, lambda path: f"{path.stem.removesuffix(_SUFFIX)}.png", convert)


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
