"""Textures: patches of brick, grass and gravel, at any angle and size. They have no middle to find."""

import torch
from torch import Tensor

from .photographs import GROUNDS, STRIPS, cut_patches, photograph

CLASSES = GROUNDS


def draw_textures(name: str, split: str, count: int, generator: torch.Generator) -> Tensor:
    """`count` patches (count, 64, 64) of one photograph, from the part of it that belongs to `split`."""
    return cut_patches(photograph(name), count, STRIPS[split], generator)
