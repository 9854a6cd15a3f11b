"""Real images for whatever has to be tried out on some: patches of a sheet of handwritten digits."""

import torch
from torch import Tensor

from ..bundled import SIDE, digit_rows, digits_file
from ..geometry import Similarity, similarity_warp

# the sheet is this many digits wide and high, and a patch shows at least so many of its pixels
_DIGITS = 5
_SMALLEST_PATCH = 48


def sheet_of_digits() -> Tensor:
    """Digits of all classes side by side, floats in [0, 1] (1, 140, 140)."""
    rows = digit_rows(digits_file())
    chosen = rows[:: len(rows) // _DIGITS**2][: _DIGITS**2]
    values = torch.tensor([[int(value) for value in row.split(",")[:-1]] for row in chosen])
    tiles = values.view(_DIGITS, _DIGITS, SIDE, SIDE).permute(0, 2, 1, 3)
    return tiles.reshape(1, _DIGITS * SIDE, _DIGITS * SIDE) / 255


def sample_images(input_shape: tuple[int, ...], count: int, *, seed: int = 0) -> Tensor:
    """Patches of the sheet at any angle, size and place: (count, *input_shape), floats in [0, 1].

    `input_shape` is (C, H, W); all channels are the same. (C, X, Y, Z) are reliefs of such patches: a voxel is
    filled where the patch is brighter than the voxel is high.
    """
    channels, *size = input_shape
    width, height = (size[0], size[1]) if len(size) == 3 else (size[1], size[0])
    sheet = sheet_of_digits()
    side = sheet.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    angle, extent, x, y = torch.rand(4, count, generator=generator)
    shown = _SMALLEST_PATCH + extent * (side - _SMALLEST_PATCH)
    scale = max(height, width) / shown
    room = (side - shown) / 2 * scale  # how far the sheet may move before its border shows
    patches = similarity_warp(
        sheet.expand(count, -1, -1, -1),
        Similarity(
            angle * 2 * torch.pi, scale, torch.stack(((2 * x - 1) * room, (2 * y - 1) * room), dim=1)
        ),
        size=(height, width),
        padding_mode="border",
    )
    patches = patches.expand(-1, channels, -1, -1).contiguous()
    if len(size) == 2:
        return patches
    heights = (torch.arange(size[2]) + 0.5) / size[2]
    return (patches.transpose(2, 3)[..., None] > heights).float()
