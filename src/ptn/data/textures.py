"""An example of a folder to train on: patches of real photographs, at any angle and size, one folder a class.

The photographs, brick, grass and gravel, come with the package scikit-image. Patches to train, to choose by and to
test on are cut from parts of a photograph that do not touch.
"""

import importlib.util
import math
from pathlib import Path

import torch
from torch import Tensor

from ..errors import InputError
from ..files import atomic_path
from ..geometry import similarity_warp
from .checks import check_seed
from .formats.image import read_image

CLASSES = ("brick", "grass", "gravel")
PATCHES = {"train": 200, "valid": 40, "test": 100}
"""How many of each class."""

SIZE = 64
SCALES = (1.0, 2.0)

_STRIPS = {"train": (0, 292), "valid": (292, 402), "test": (402, 512)}  # columns of a photograph
_SIDE = 512


def write_textures(root: Path | str, *, seed: int = 0) -> int:
    """Write root/train/brick/000.png and so on, grey and 64×64; returns how many. `root` must be new or empty."""
    check_seed(seed)
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} is there already: name a folder that is new or empty")
    from PIL import Image

    photographs = {name: _photograph(name) for name in CLASSES}
    generator = torch.Generator().manual_seed(seed)
    for split, count in PATCHES.items():
        for name, photograph in photographs.items():
            patches = cut_patches(photograph, count, _STRIPS[split], generator)
            for index, patch in enumerate(patches):
                with atomic_path(root / split / name / f"{index:03}.png") as temporary:
                    Image.fromarray(patch.numpy()).save(temporary, format="PNG")
    return sum(PATCHES.values()) * len(CLASSES)


def cut_patches(photograph: Tensor, count: int, strip: tuple[int, int], generator: torch.Generator) -> Tensor:
    """`count` patches uint8 (count, 64, 64) of a `photograph` (H, W) in [0, 1], turned by any angle and enlarged by
    1 to 2, from between two columns of it."""
    height, width = photograph.shape
    draws = torch.rand(4, count, generator=generator, dtype=torch.float64)
    rotation = 2 * math.pi * draws[0]
    scale = SCALES[0] * (SCALES[1] / SCALES[0]) ** draws[1]
    reach = (
        math.ceil(SIZE / SCALES[0] / math.sqrt(2)) + 2
    )  # from the middle of a patch to its corners, and a little
    x = strip[0] + reach + (strip[1] - strip[0] - 2 * reach) * draws[2] - (width - 1) / 2
    y = reach + (height - 2 * reach) * draws[3] - (height - 1) / 2
    # what is at (x, y) comes to the middle
    cos, sin = scale * rotation.cos(), scale * rotation.sin()
    shift = torch.stack((sin * y - cos * x, -sin * x - cos * y), dim=1)
    patches = similarity_warp(
        photograph.double().expand(count, 1, height, width),
        rotation=rotation,
        scale=scale,
        shift_px=shift,
        size=(SIZE, SIZE),
        interpolation="bicubic",
    )
    return (patches[:, 0].clamp(0, 1) * 255).round().byte()


def _photograph(name: str) -> Tensor:
    """A photograph (512, 512) in [0, 1] out of scikit-image, which is found without importing it."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise InputError("the photographs are in the package scikit-image: pip install 'ptn[examples]'")
    path = Path(spec.origin).parent / "data" / f"{name}.png"
    if not path.is_file():
        raise InputError(f"this scikit-image has no {path}: pip install --force-reinstall scikit-image")
    image, _ = read_image(path)
    if tuple(image.shape) != (1, _SIDE, _SIDE):
        raise InputError(f"{path} is {tuple(image.shape)}, not a grey photograph of {_SIDE}×{_SIDE}")
    return image[0]
