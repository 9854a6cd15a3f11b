"""One picture of many samples, to look at a data set before trusting it."""

from math import ceil, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from .dataset import Dataset, VoxelDataset, unpack_voxels

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

# Samples are enlarged by a whole factor to about this many pixels.
_CELL_PX = 144
_GAP_PX = 6
_CAPTION_PX = 18
_FONT_PX = 14
_CROSS_PX = 5
_BACKGROUND = (38, 40, 46)
_INK = (235, 235, 235)
_MARK = (40, 230, 90)


def contact_sheet(dataset: Dataset | VoxelDataset, *, count: int = 48) -> "Image":
    """Up to `count` samples, evenly spread over the data set, each above the name of its class.

    Where `meta["center"]` has the true centre of what is to be recognised, a cross marks it. Voxels are shown
    from the front (along +y) and, to the right of that, from above, nearer ones brighter.
    """
    from PIL import Image, ImageDraw, ImageFont

    if count < 1 or not len(dataset):
        raise InputError(f"{dataset.name} {dataset.split}: nothing to show, count {count} of {len(dataset)}")
    chosen = torch.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().long()
    pictures = _pictures(dataset, chosen)
    height, width = pictures.shape[-2:]
    factor = max(1, round(_CELL_PX / height))
    cell = (width * factor, height * factor)
    step = (cell[0] + _GAP_PX, cell[1] + _CAPTION_PX + _GAP_PX)
    columns = _columns(len(chosen), step[1] / step[0])
    rows = ceil(len(chosen) / columns)
    top = _CAPTION_PX + 2 * _GAP_PX

    font = ImageFont.load_default(_FONT_PX)
    title = _title(dataset)
    wide = max(columns * step[0], ceil(font.getlength(title)) + _GAP_PX) + _GAP_PX
    sheet = Image.new("RGB", (wide, rows * step[1] + top), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP_PX, _GAP_PX), title, fill=_INK, font=font)
    for place, index in enumerate(chosen.tolist()):
        left = _GAP_PX + place % columns * step[0]
        upper = top + place // columns * step[1]
        picture = Image.fromarray(pictures[place].permute(1, 2, 0).numpy())
        sheet.paste(picture.resize(cell, Image.Resampling.NEAREST), (left, upper))
        if "center" in dataset.meta:
            x, y = ((dataset.meta["center"][index] + 1) / 2 * torch.tensor(cell)).tolist()
            _draw_cross(draw, left + x, upper + y)
        name = dataset.classes[int(dataset.labels[index])]
        while font.getlength(name) > cell[0]:
            name = name.removesuffix("..")[:-1] + ".."
        draw.text((left, upper + cell[1] + 1), name, fill=_INK, font=font)
    return sheet


def _columns(count: int, aspect: float) -> int:
    """How many cells of height/width `aspect` a row has: about 3:2 in all, and the last row full if possible."""
    ideal = max(1, round(sqrt(1.5 * count * aspect)))
    near = range(max(1, ideal - 2), ideal + 3)
    return min(count, min(near, key=lambda columns: (-count % columns, abs(columns - ideal))))


def _draw_cross(draw: "ImageDraw", x: float, y: float) -> None:
    draw.line((x - _CROSS_PX, y, x + _CROSS_PX, y), fill=_MARK, width=2)
    draw.line((x, y - _CROSS_PX, x, y + _CROSS_PX), fill=_MARK, width=2)


def _title(dataset: Dataset | VoxelDataset) -> str:
    shape = dataset.images.shape[1:] if isinstance(dataset, Dataset) else (dataset.channels, *[dataset.size] * 3)
    parts = [f"{dataset.name} {dataset.split}", f"{len(dataset):,} images {'x'.join(map(str, shape))}"]
    parts += [str(dataset.meta[key])[:32] for key in ("source", "sha256") if key in dataset.meta]
    return "  ·  ".join(parts)


def _pictures(dataset: Dataset | VoxelDataset, chosen: Tensor) -> Tensor:
    """The chosen samples as RGB, uint8 (n, 3, h, w)."""
    if isinstance(dataset, Dataset):
        return dataset.images[chosen].expand(-1, 3, -1, -1)
    voxels = unpack_voxels(dataset.packed[chosen], dataset.size)[:, 0].bool()
    # [x, y, z], z up: rows go down, so the axis that points up is turned over.
    front = _depth(voxels.permute(0, 3, 1, 2).flip(1))
    above = _depth(voxels.permute(0, 2, 1, 3).flip(1, 3))
    line = torch.full((len(chosen), dataset.size, 1), 90, dtype=torch.uint8)
    return torch.cat((front, line, above), dim=2)[:, None].expand(-1, 3, -1, -1)


def _depth(voxels: Tensor) -> Tensor:
    """Seen along the last axis: bool (n, rows, columns, depth) -> uint8 (n, rows, columns), 0 where empty."""
    depth = voxels.shape[3]
    first = voxels.byte().argmax(dim=3)
    shade = 255 - 190 * first // depth
    return torch.where(voxels.any(dim=3), shade, 0).byte()
