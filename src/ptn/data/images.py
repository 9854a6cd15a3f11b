"""Image files: reading at a given size, writing, polar images of files, and contact sheets."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..config import build, check
from ..errors import InputError, nothing_at
from ..files import atomic_path
from ..geometry import Law, Mode, PolarGrid, check_options, polar_sample, polar_unsample
from .dataset import Dataset, VoxelDataset, unpack_voxels
from .store import first_line

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Fit = Literal["resize", "pad"]
FITS: tuple[Fit, ...] = ("resize", "pad")
IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
)
LUMA = (0.299, 0.587, 0.114)

_MODES = ("L", "LA", "RGB", "RGBA")
_POLAR_KEY = "ptn-polar"
_POLAR_SUFFIX = ".polar"
_MAX_VALUES = 2**28
_CELL_PX = 192
_GAP_PX = 6
_BACKGROUND = "#26282e"


def read_image(path: Path) -> tuple[Tensor, dict[str, str]]:
    """Read an image file: floats in [0, 1] (C, H, W), and the text entries stored in the file.

    Channels are gray, gray and alpha, RGB or RGBA, as in the file; palettes become RGB(A), other color spaces RGB.
    The EXIF orientation is applied. 16-bit integers are divided by 65535; floats must be in [0, 1].
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            texts = {str(key): value for key, value in file.info.items() if isinstance(value, str)}
            file.load()
            file_format = file.format
            picture = ImageOps.exif_transpose(file)
    except FileNotFoundError:
        raise nothing_at("file", path) from None
    except UnidentifiedImageError:
        raise InputError(f"{path}: not an image") from None
    except Exception as error:  # decoders raise exceptions of many types
        raise InputError(f"{path}: cannot be read as an image: {first_line(error)}") from error
    values: NDArray[np.floating]
    if picture.mode == "F":
        values = np.array(picture, dtype=np.float32)
        if not (values.min() >= 0 and values.max() <= 1):
            raise InputError(f"{path}: floats must be in [0, 1]; save it with 8 or 16 bits")
    elif picture.mode == "I" and file_format not in ("PNG", "PPM"):
        raise InputError(f"{path}: the white level of 32-bit integers is unknown; save it with 8 or 16 bits")
    elif picture.mode.startswith("I"):  # Pillow reads some 16-bit files with 32 bits
        values = np.asarray(picture).astype(np.float32) / 65535
    else:
        if picture.mode not in _MODES:
            color = "RGBA" if picture.has_transparency_data else "RGB"
            picture = picture.convert("L" if picture.mode == "1" else color)
        values = np.asarray(picture).astype(np.float32) / 255
    tensor = torch.from_numpy(values)
    return (tensor[None] if tensor.dim() == 2 else tensor.permute(2, 0, 1).contiguous()), texts


def write_png(image: Tensor, path: Path, texts: dict[str, str] | None = None) -> None:
    """Write floats in [0, 1] (C, H, W), C from 1 to 4, as an 8-bit PNG with text entries."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    header = PngInfo()
    for key, value in (texts or {}).items():
        header.add_text(key, value)
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(values[:, :, 0] if len(image) == 1 else values)
    with atomic_path(path) as temporary:
        picture.save(temporary, format="PNG", pnginfo=header)


def fit_image(picture: Tensor, size: tuple[int, int], channels: int, fit: Fit) -> Tensor:
    """Convert floats in [0, 1] (C, H, W), C from 1 to 4, to uint8 (channels, *size), 1 or 3 channels.

    Transparent pixels are blended with white.

    Args:
        fit: "resize" changes the aspect ratio; "pad" keeps it and adds black borders.
    """
    if len(picture) in (2, 4):
        alpha = picture[-1:]
        picture = picture[:-1] * alpha + (1 - alpha)
    if channels == 3:
        picture = picture.expand(3, -1, -1)
    elif len(picture) == 3:
        picture = (picture * picture.new_tensor(LUMA)[:, None, None]).sum(0, keepdim=True)
    height, width = picture.shape[1:]
    if (height, width) != size:
        scale = min(size[0] / height, size[1] / width)
        inner = size if fit == "resize" else (max(1, round(height * scale)), max(1, round(width * scale)))
        top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
        resized = F.interpolate(picture[None], inner, mode="bicubic", antialias=True, align_corners=False)
        picture = picture.new_zeros(len(picture), *size)
        picture[:, top : top + inner[0], left : left + inner[1]] = resized[0].clamp(0, 1)
    return (picture * 255).round().byte()


@dataclass(frozen=True)
class _PolarInfo:
    """Metadata of a polar image file for the inverse: origin, (H, W) of the original image, and grid."""

    origin: tuple[float, float]
    size: tuple[int, int]
    grid: PolarGrid

    def __post_init__(self) -> None:
        check("origin", self.origin, all(map(math.isfinite, self.origin)), "finite")
        check("size", self.size, min(self.size) > 0, "positive")
        self.grid.outer_radius(self.size)


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
    """Write NAME.polar.png into `folder` for each image file, and return the paths.

    Args:
        angles, radii: height and width of the polar image, by default those of the image.
    """
    check_options(mode, "zeros")
    targets = _targets(paths, folder, f"{_POLAR_SUFFIX}.png")
    for path, target in zip(paths, targets, strict=True):
        image, _ = read_image(path)
        height, width = image.shape[1:]
        rows, columns = (height if angles is None else angles), (width if radii is None else radii)
        grid = PolarGrid(rows, columns, r_min_px=r_min_px, r_max_px=r_max_px, law=law)
        info = json.dumps(asdict(_PolarInfo(origin, (height, width), grid)))
        _check_amount(path, (len(image), rows, columns))
        polar = polar_sample(image[None], torch.tensor([origin]), grid, mode=mode)[0]
        write_png(polar, target, {_POLAR_KEY: info})
    return targets


def from_polar(paths: Sequence[Path], folder: Path, *, mode: Mode = "bilinear") -> list[Path]:
    """Write NAME.back.png into `folder` for each NAME.polar.png of `to_polar`, and return the paths."""
    check_options(mode, "zeros")
    targets = _targets(paths, folder, ".back.png")
    for path, target in zip(paths, targets, strict=True):
        polar, texts = read_image(path)
        if _POLAR_KEY not in texts:
            raise InputError(f"{path} has no polar grid: it was not written by `ptn polar`")
        try:
            info = build(_PolarInfo, json.loads(texts[_POLAR_KEY]))
        except (ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{path} has a damaged polar grid: {first_line(error)}") from error
        if polar.shape[1:] != (info.grid.angles, info.grid.radii):
            raise InputError(f"{path} is {tuple(polar.shape[1:])}, which does not match its {info.grid}")
        _check_amount(path, (len(polar), *info.size))
        write_png(
            polar_unsample(polar[None], torch.tensor([info.origin]), info.grid, info.size, mode=mode)[0], target
        )
    return targets


def _check_amount(path: Path, shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _MAX_VALUES:
        raise InputError(f"{path} would become an image of shape {shape}: that is too large")


def _targets(paths: Sequence[Path], folder: Path, suffix: str) -> list[Path]:
    targets = [folder / f"{path.stem.removesuffix(_POLAR_SUFFIX)}{suffix}" for path in paths]
    for index, target in enumerate(targets):
        if target in targets[:index]:
            other = paths[targets.index(target)]
            raise InputError(f"{other} and {paths[index]} would both become {target.name}: convert them separately")
        if any(target.exists() and path.exists() and target.samefile(path) for path in paths):
            raise InputError(f"{target} is one of the inputs: choose another output folder")
    return targets


def contact_sheet(dataset: Dataset | VoxelDataset, *, count: int = 48) -> "Picture":
    """Draw up to `count` samples, evenly spaced over the data set, each above the name of its class.

    A cross marks the true center where `meta["center"]` has it. Voxels are shown from the front (along +y) and, to
    the right, from above; nearer voxels are brighter.
    """
    from PIL import Image, ImageDraw, ImageFont

    from ..figures import overlay

    if count < 1 or not len(dataset):
        raise InputError(f"{dataset.name} {dataset.split}: nothing to show, count {count} of {len(dataset)}")
    chosen = torch.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().long()
    cells = []
    for index, picture in zip(chosen.tolist(), _pictures(dataset, chosen), strict=True):
        center = dataset.meta["center"][index].tolist() if "center" in dataset.meta else None
        caption = dataset.classes[int(dataset.labels[index])]
        cells.append(overlay(picture, center, caption=caption, side_px=_CELL_PX))
    width, height = cells[0].width + _GAP_PX, cells[0].height + _GAP_PX
    columns = min(len(cells), max(1, round(math.sqrt(1.5 * len(cells) * height / width))))
    title = f"{dataset.name} {dataset.split}  ·  {len(dataset):,} samples"
    for key in ("source", "sha256"):
        title += f"  ·  {str(dataset.meta[key])[:32]}" if key in dataset.meta else ""
    font = ImageFont.load_default(16)
    top = 20 + 2 * _GAP_PX
    sheet_width = max(columns * width, math.ceil(font.getlength(title)) + _GAP_PX) + _GAP_PX
    sheet = Image.new("RGB", (sheet_width, math.ceil(len(cells) / columns) * height + top), _BACKGROUND)
    ImageDraw.Draw(sheet).text((_GAP_PX, _GAP_PX), title, fill="white", font=font)
    for place, cell in enumerate(cells):
        sheet.paste(cell, (_GAP_PX + place % columns * width, top + place // columns * height))
    return sheet


def _pictures(dataset: Dataset | VoxelDataset, chosen: Tensor) -> Tensor:
    """Return the chosen samples as RGB, uint8 (n, 3, h, w)."""
    if isinstance(dataset, Dataset):
        return dataset.images[chosen].expand(-1, 3, -1, -1)
    voxels = unpack_voxels(dataset.packed[chosen], dataset.size)[:, 0].bool()
    front = _depth(voxels.permute(0, 3, 1, 2).flip(1))  # [x, y, z] with z up, while rows count downwards
    above = _depth(voxels.permute(0, 2, 1, 3).flip(1, 3))
    line = torch.full((len(chosen), dataset.size, 1), 90, dtype=torch.uint8)
    return torch.cat((front, line, above), dim=2)[:, None].expand(-1, 3, -1, -1)


def view_from_above(volume: Tensor) -> Tensor:
    """Return a height map of voxels (C, X, Y, Z), higher is brighter, rows y and columns x: uint8 (1, Y, X)."""
    return _depth(volume.bool().any(dim=0).permute(1, 0, 2).flip(2)[None])


def _depth(voxels: Tensor) -> Tensor:
    """View voxels along the last axis: bool (n, rows, columns, depth) -> uint8 (n, rows, columns), 0 if empty."""
    shade = 255 - 190 * voxels.byte().argmax(dim=3) // voxels.shape[3]
    return torch.where(voxels.any(dim=3), shade, 0).byte()
