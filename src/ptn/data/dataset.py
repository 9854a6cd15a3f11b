"""What `load_dataset` returns: images as bytes, labels, class names, and where they came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError


@dataclass(frozen=True)
class Dataset:
    """One split of a data set, resident in memory.

    `images` uint8 (N, C, H, W), `labels` int64 (N,), `classes` the label names in order.
    `meta` holds what is known beyond that: "source", "sha256" (of source bytes, seed, parameters and
    generator version), and per-sample arrays (poses, "mnist_index") as tensors of length N.
    """

    name: str
    split: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_labels(self.name, self.split, len(self.images), self.labels, self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Image (C, H, W) as floats in [0, 1], and its label."""
        return self.images[index].float() / 255, int(self.labels[index])


@dataclass(frozen=True)
class VoxelDataset:
    """One split of voxel grids, kept packed: bit b of byte k of a row is voxel 8k+b in [channel, x, y, z] order.

    `packed` uint8 (N, channels·size³/8), most significant bit first as `numpy.packbits` has it.
    """

    name: str
    split: str
    packed: Tensor
    size: int
    labels: Tensor
    classes: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_labels(self.name, self.split, len(self.packed), self.labels, self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Voxels (channels, X, Y, Z) as floats 0 or 1, and their label."""
        return unpack_voxels(self.packed[index][None], self.size)[0].float(), int(self.labels[index])

    @property
    def channels(self) -> int:
        """How many grids each shape has."""
        return count_grids(self.packed, self.size)

    @property
    def images(self) -> Tensor:
        """The voxels unpacked, uint8 0 or 1, (N, channels, X, Y, Z). Costs eight times the packed memory."""
        return unpack_voxels(self.packed, self.size)


def unpack_voxels(packed: Tensor, size: int) -> Tensor:
    """Packed bits (N, C·size³/8) -> uint8 0 or 1 (N, C, size, size, size), on the device of `packed`."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    bits = (packed[:, :, None] >> shifts) & 1
    return bits.reshape(len(packed), count_grids(packed, size), size, size, size)


def count_grids(packed: Tensor, size: int) -> int:
    """How many grids of size³ voxels lie one after the other in each row of packed bits."""
    return packed.shape[1] * 8 // size**3


def _check_labels(name: str, split: str, count: int, labels: Tensor, classes: tuple[str, ...]) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        shape = tuple(labels.shape)
        raise InputError(f"{name} {split}: {count} images but labels are {labels.dtype} {shape}")
    if count and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        worst = int(labels.max()) if int(labels.min()) >= 0 else int(labels.min())
        raise InputError(f"{name} {split}: label {worst} is outside the {len(classes)} classes")
