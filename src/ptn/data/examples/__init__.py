"""Examples of folders to train on, made from photographs that come with an installed package, scikit-image."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import InputError, check_choice
from ...files import atomic_path
from ..checks import check_seed
from . import coins, textures


@dataclass(frozen=True)
class Example:
    """`counts` are images of each class by split; `draw(name, split, count, generator)` makes those of one class,
    floats in [0, 1] (count, 64, 64)."""

    classes: tuple[str, ...]
    counts: dict[str, int]
    draw: Callable[[str, str, int, torch.Generator], Tensor]


EXAMPLES = {
    "coins": Example(tuple(coins.COINS), {"train": 100, "valid": 40, "test": 100}, coins.draw_coins),
    "textures": Example(textures.CLASSES, {"train": 200, "valid": 40, "test": 100}, textures.draw_textures),
}


def write_example(name: str, root: Path | str, *, seed: int = 0) -> Example:
    """Write root/train/<class>/000.png and so on, grey and 64×64. `root` must be new or empty."""
    check_choice("example", name, EXAMPLES)
    check_seed(seed)
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} is there already: name a folder that is new or empty")
    from PIL import Image

    example = EXAMPLES[name]
    generator = torch.Generator().manual_seed(seed)
    for split, count in example.counts.items():
        for kind in example.classes:
            images = (example.draw(kind, split, count, generator).clamp(0, 1) * 255).round().byte()
            for index, image in enumerate(images):
                with atomic_path(root / split / kind / f"{index:03}.png") as temporary:
                    Image.fromarray(image.numpy()).save(temporary, format="PNG")
    return example
