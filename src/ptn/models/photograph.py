"""Real images that come with the package, for whatever has to be tried out on some: patches of a photograph.

`photograph.jpg` is a part of "Chelsea" by Stefan van der Walt, CC0.
"""

from pathlib import Path

import torch
from torch import Tensor

from ..geometry import similarity_warp

_FILE = Path(__file__).with_name("photograph.jpg")
# a patch shows at least this many pixels of the photograph, and at most all of it
_SMALLEST_PATCH = 48


def photograph() -> Tensor:
    """The photograph, floats in [0, 1] (3, 128, 128)."""
    import numpy as np
    from PIL import Image

    with Image.open(_FILE) as file:
        return torch.from_numpy(np.array(file.convert("RGB"))).permute(2, 0, 1).float() / 255


def photograph_patches(input_shape: tuple[int, ...], count: int, *, seed: int = 0) -> Tensor:
    """Patches of the photograph at any angle, size and place: (count, *input_shape), floats in [0, 1].

    `input_shape` is (C, H, W); one channel is grey, more than three repeat the colours. (C, X, Y, Z) are
    reliefs of such patches: a voxel is filled where the patch is brighter than the voxel is high.
    """
    channels, *size = input_shape
    width, height = (size[0], size[1]) if len(size) == 3 else (size[1], size[0])
    picture = photograph()
    side = picture.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    angle, extent, x, y = torch.rand(4, count, generator=generator)
    shown = _SMALLEST_PATCH + extent * (side - _SMALLEST_PATCH)
    scale = max(height, width) / shown
    room = (side - shown) / 2 * scale  # how far the photograph may move before its border shows
    patches = similarity_warp(
        picture.expand(count, -1, -1, -1),
        rotation=angle * 2 * torch.pi,
        scale=scale,
        shift_px=torch.stack(((2 * x - 1) * room, (2 * y - 1) * room), dim=1),
        size=(height, width),
        padding="border",
    )
    if channels == 1:
        patches = patches.mean(dim=1, keepdim=True)
    elif channels != 3:
        patches = patches[:, torch.arange(channels) % 3]
    if len(size) == 2:
        return patches
    heights = (torch.arange(size[2]) + 0.5) / size[2]
    return (patches.transpose(2, 3)[..., None] > heights).float()
