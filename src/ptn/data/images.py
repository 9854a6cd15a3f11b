"""Image files: reading at a given size, writing, polar images of files, and contact sheets."""

import json
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import build, check
from ..errors import InputError, nothing_at
from ..files import atomic_path, check_targets, parse_json
from ..geometry import (
    MAX_PIXELS,
    Mode,
    PolarGrid,
    Registration,
    check_options,
    polar_sample,
    polar_unsample,
    register,
    similarity_warp,
)
from .dataset import AnyDataset, Dataset
from .store import reading

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Fit = Literal["resize", "pad"]
IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
)
_FORMATS = ("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000", "AVIF")
LUMA = (0.299, 0.587, 0.114)

_POLAR_KEY = "ptn-polar"
_POLAR_SUFFIX = ".polar"
_MAX_VALUES = 3 * MAX_PIXELS
_MAX_POLAR_PIXELS = 25_000_000  # sampling takes about 60 bytes per pixel
_BANDS = {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I": 1, "I;16": 1, "F": 1}  # other modes are converted
_LARGE = threading.Lock()  # only one image of more than this many pixels is decoded at a time
_LARGE_PIXELS = 2**22
_CELLS, _COLUMNS = 48, 8
_CELL_PX = 192
_GAP_PX = 6
_BACKGROUND = "#26282e"


def open_image(path: Path) -> "Picture":
    """Open an image file of a known format with Pillow, which for others may start programs such as Ghostscript."""
    from PIL import Image

    Image.init()
    return Image.open(path, formats=[name for name in _FORMATS if name in Image.OPEN])


def read_image(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[Tensor, dict[str, str]]:
    """Read an image file: floats in [0, 1] (C, H, W), and the text entries stored in the file.

    Channels are gray, gray and alpha, RGB or RGBA, as in the file; palettes become RGB(A), other color spaces RGB.
    The EXIF orientation is applied. 16-bit values are divided by 65535; floats must be in [0, 1].
    """
    from PIL import ImageOps

    if not path.exists():
        raise nothing_at("file", path)
    with reading(path), open_image(path) as file:
        limit = min(max_pixels, _MAX_VALUES // _BANDS.get(file.mode[:4], 4))
        if file.width * file.height > limit:
            raise ValueError(f"{file.width}×{file.height} pixels are too many, more than {limit:,}")
        texts = {str(key): value for key, value in file.info.items() if isinstance(value, str)}
        ImageOps.exif_transpose(file, in_place=True)
        picture: Picture = file
        bounded = picture.mode != "F" or np.all((np.asarray(picture) >= 0) & (np.asarray(picture) <= 1))
        if not bounded or (picture.mode == "I" and file.format not in ("PNG", "PPM")):
            raise ValueError("the white level of 32-bit images is unknown; save it with 8 or 16 bits")
    # Pillow reads some 16-bit files with 32 bits.
    white = 1 if picture.mode == "F" else 65535 if picture.mode.startswith("I") else 255
    if white == 255 and picture.mode not in ("L", "LA", "RGB", "RGBA"):
        color = "RGBA" if picture.has_transparency_data else "RGB"
        picture = picture.convert("L" if picture.mode == "1" else color)
    values = np.asarray(picture)
    del file, picture  # up to 0.8 GB
    values = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
    values = np.divide(values, np.float32(white), dtype=np.float32, order="C", casting="unsafe")
    return torch.from_numpy(values), texts


def read_fitted(path: Path, size: tuple[int, int], channels: int, fit: Fit) -> Tensor:
    """Read an image file as `fit_image` returns it. In several threads, large images are read one after another."""
    if not path.exists():
        raise nothing_at("file", path)
    with reading(path), open_image(path) as file:
        large = file.width * file.height > _LARGE_PIXELS
    with _LARGE if large else nullcontext():
        return fit_image(read_image(path)[0], size, channels, fit)


def write_png(image: Tensor, path: Path, texts: dict[str, str] | None = None) -> None:
    """Write floats in [0, 1] (C, H, W), C from 1 to 4, as an 8-bit PNG with text entries."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    header = PngInfo()
    for key, value in (texts or {}).items():
        header.add_text(key, value)
    bytes_ = torch.stack([(channel.clamp(0, 1) * 255).round_().to(torch.uint8) for channel in image], dim=-1)
    values = bytes_.numpy()
    picture = Image.fromarray(values[:, :, 0] if len(image) == 1 else values)
    with atomic_path(path) as temporary:
        picture.save(temporary, format="PNG", pnginfo=header)


def fit_image(picture: Tensor, size: tuple[int, int], channels: int, fit: Fit) -> Tensor:
    """Convert floats in [0, 1] (C, H, W), C from 1 to 4, to uint8 (channels, *size), 1 or 3 channels.

    Transparent pixels are blended with white.

    Args:
        fit: "resize" changes the aspect ratio; "pad" keeps it and adds black borders.
    """
    height, width = picture.shape[1:]
    if len(picture) not in (1, channels):  # in parts, to save memory
        reduced = picture.new_empty(1 if len(picture) < 3 else channels, height, width)
        rows = max(1, _LARGE_PIXELS // width)
        for part, target in zip(picture.split(rows, dim=1), reduced.split(rows, dim=1), strict=True):
            target.copy_(_reduce_channels(part, channels))
        picture = reduced
    picture = picture.expand(channels, -1, -1)
    if (height, width) != size:
        scale = min(size[0] / height, size[1] / width)
        inner = size if fit == "resize" else (max(1, round(height * scale)), max(1, round(width * scale)))
        top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
        resized = F.interpolate(picture[None], inner, mode="bicubic", antialias=True, align_corners=False)
        picture = picture.new_zeros(len(picture), *size)
        picture[:, top : top + inner[0], left : left + inner[1]] = resized[0].clamp(0, 1)
    return (picture * 255).round().byte()


def _reduce_channels(picture: Tensor, channels: int) -> Tensor:
    """Blend with white by the alpha channel, if there is one, and convert color to gray if `channels` is 1."""
    if len(picture) in (2, 4):
        alpha = picture[-1:]
        picture = picture[:-1] * alpha + (1 - alpha)
    if len(picture) > channels:
        picture = (picture * picture.new_tensor(LUMA)[:, None, None]).sum(0, keepdim=True)
    return picture


@dataclass(frozen=True)
class _PolarInfo:
    """Metadata of a polar image file for the inverse: origin, (H, W) of the original image, and grid."""

    origin: tuple[float, float]
    size: tuple[int, int]
    grid: PolarGrid

    def __post_init__(self) -> None:
        check("origin", self.origin, all(map(math.isfinite, self.origin)), "finite")
        for name, size in (("size", self.size), ("polar size", (self.grid.angles, self.grid.radii))):
            valid = min(size) > 0 and math.prod(size) <= _MAX_POLAR_PIXELS
            check(name, size, valid, f"positive, with at most {_MAX_POLAR_PIXELS:,} pixels")


def to_polar(
    paths: Sequence[Path],
    folder: Path,
    *,
    origin: tuple[float, float] = (0.0, 0.0),
    angles: int | None = None,
    radii: int | None = None,
    mode: Mode = "bilinear",
    antialias: bool = False,
    **options: Any,
) -> list[Path]:
    """Write NAME.polar.png into `folder` for each image file, and return the paths.

    Args:
        angles, radii: height and width of the polar image, by default those of the image.
        antialias: as in `polar_sample`.
        options: other fields of `PolarGrid`.
    """
    check_options(mode, "zeros")
    targets = _targets(paths, folder, f"{_POLAR_SUFFIX}.png")
    for path, target in zip(paths, targets, strict=True):
        image, _ = read_image(path)
        height, width = image.shape[1:]
        rows, columns = (height if angles is None else angles), (width if radii is None else radii)
        grid = PolarGrid(rows, columns, **options)
        info = _PolarInfo(origin, (height, width), grid)
        center = torch.tensor([origin])
        polar = _by_channel(partial(polar_sample, origin=center, grid=grid, antialias=antialias, mode=mode), image)
        write_png(polar, target, {_POLAR_KEY: json.dumps(asdict(info))})
    return targets


def from_polar(paths: Sequence[Path], folder: Path, *, mode: Mode = "bilinear") -> list[Path]:
    """Write NAME.back.png into `folder` for each NAME.polar.png of `to_polar`, and return the paths."""
    check_options(mode, "zeros")
    targets = _targets(paths, folder, ".back.png")
    for path, target in zip(paths, targets, strict=True):
        polar, texts = read_image(path)
        if _POLAR_KEY not in texts:
            raise InputError(f"{path} has no polar grid: it was not written by `ptn polar`")
        with reading(path):
            info = build(_PolarInfo, parse_json(texts[_POLAR_KEY], _POLAR_KEY))
            options: Any = {"origin": torch.tensor([info.origin]), "grid": info.grid, "size": info.size}
            image = _by_channel(partial(polar_unsample, **options, mode=mode), polar)
        write_png(image, target)
    return targets


def _by_channel(function: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    """Return a function (1, 1, H, W) -> (1, 1, h, w) of each channel: it takes less memory than of all."""
    return torch.cat([function(channel[None])[0] for channel in image.split(1)])


def register_files(moving: Path, fixed: Path, overlay: Path, warped: Path | None = None) -> Registration:
    """Register two image files; write an overlay, `fixed` in green and `moving` in magenta, and `moving` warped."""
    check_targets((moving, fixed), [overlay] if warped is None else [overlay, warped])
    picture, other = (read_image(path, _MAX_POLAR_PIXELS)[0] for path in (moving, fixed))
    other = _reduce_channels(other, 1)
    result = register(_reduce_channels(picture, 1)[None], other[None])
    ours = result.warped[0]
    write_png(torch.cat((ours, other, ours)), overlay)
    if warped is not None:
        size = (other.shape[1], other.shape[2])
        write_png(_by_channel(partial(similarity_warp, pose=result.pose, size=size), picture), warped)
    return result


def _targets(paths: Sequence[Path], folder: Path, suffix: str) -> list[Path]:
    targets = [folder / f"{path.stem.removesuffix(_POLAR_SUFFIX)}{suffix}" for path in paths]
    check_targets(paths, targets)
    return targets


def contact_sheet(dataset: AnyDataset) -> "Picture":
    """Draw up to 48 samples, evenly spaced over the data set, each above the name of its class.

    A cross marks the true center where `meta["center"]` has it. Voxels are shown from above.
    """
    from PIL import Image

    from ..figures import overlay

    cells = []
    for index in np.linspace(0, len(dataset) - 1, min(_CELLS, len(dataset))).round().astype(int).tolist():
        picture, label = dataset[index]
        picture = (255 * picture).round().byte() if isinstance(dataset, Dataset) else view_from_above(picture)
        center = dataset.meta["center"][index].tolist() if "center" in dataset.meta else None
        cells.append(overlay(picture, center, caption=dataset.classes[label], side_px=_CELL_PX))
    width, height = cells[0].width + _GAP_PX, cells[0].height + _GAP_PX
    rows = math.ceil(len(cells) / _COLUMNS)
    sheet = Image.new("RGB", (min(len(cells), _COLUMNS) * width + _GAP_PX, rows * height + _GAP_PX), _BACKGROUND)
    for place, cell in enumerate(cells):
        sheet.paste(cell, (_GAP_PX + place % _COLUMNS * width, _GAP_PX + place // _COLUMNS * height))
    return sheet


def view_from_above(volume: Tensor) -> Tensor:
    """Return a height map of voxels (C, X, Y, Z), higher is brighter, rows y and columns x: uint8 (1, Y, X)."""
    voxels = volume.bool().any(dim=0).permute(1, 0, 2).flip(2)[None]
    shade = 255 - 190 * voxels.byte().argmax(dim=3) // voxels.shape[3]
    return torch.where(voxels.any(dim=3), shade, 0).byte()
