"""The photographs that come with scikit-image, and patches of them.

Patches to train, to choose by and to test on are cut from parts of a photograph that do not touch.
"""

import importlib.util
import math
from pathlib import Path

import torch
from torch import Tensor

from ...errors import InputError
from ...geometry import Similarity, similarity_warp
from ..images import read_image

GROUNDS = ("brick", "grass", "gravel")
STRIPS = {"train": (0, 292), "valid": (292, 402), "test": (402, 512)}
"""The columns of a photograph of a ground that patches come from."""

SIZE = 64
SCALES = (1.0, 2.0)

_SHAPES = {"brick": (512, 512), "grass": (512, 512), "gravel": (512, 512), "coins": (303, 384)}


def photograph(name: str) -> Tensor:
    """A photograph (H, W) in [0, 1] out of scikit-image, which is found without importing it."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise InputError("the photographs are in the package scikit-image: pip install 'ptn[examples]'")
    path = Path(spec.origin).parent / "data" / f"{name}.png"
    if not path.is_file():
        raise InputError(f"this scikit-image has no {path}: pip install --force-reinstall scikit-image")
    image, _ = read_image(path)
    height, width = _SHAPES[name]
    if tuple(image.shape) != (1, height, width):
        raise InputError(f"{path} is {tuple(image.shape)}, not a grey photograph of {height}×{width}")
    return image[0]


def cut_patches(ground: Tensor, count: int, strip: tuple[int, int], generator: torch.Generator) -> Tensor:
    """`count` patches (count, 64, 64) of a photograph (H, W), turned by any angle and enlarged by 1 to 2, from
    between two columns of it."""
    height, width = ground.shape
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    rotation = 2 * math.pi * draws[0]
    scale = SCALES[0] * (SCALES[1] / SCALES[0]) ** draws[1]
    # from the middle of a patch to its corners, and a little
    reach = math.ceil(SIZE / SCALES[0] / math.sqrt(2)) + 2
    x = strip[0] + reach + (strip[1] - strip[0] - 2 * reach) * draws[2] - (width - 1) / 2
    y = reach + (height - 2 * reach) * draws[3] - (height - 1) / 2
    # what is at (x, y) comes to the middle
    cos, sin = scale * rotation.cos(), scale * rotation.sin()
    shift = torch.stack((sin * y - cos * x, -sin * x - cos * y), dim=1)
    patches = similarity_warp(
        ground.double().expand(count, 1, height, width),
        Similarity(rotation, scale, shift),
        size=(SIZE, SIZE),
        mode="bicubic",
    )
    return patches[:, 0]
