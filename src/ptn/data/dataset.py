"""Data sets in memory: images or packed voxels, labels, class names and metadata."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, InputTypeError
from .store import fingerprint


class _Split(ABC):
    """Checks, length and description of both kinds of data sets."""

    name: str
    split: str
    labels: Tensor
    classes: tuple[str, ...]

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image (C, H, W) or voxel grid (C, X, Y, Z)."""

    def __post_init__(self) -> None:
        _check_labels(self)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        names, classes = f"{self.name!r}, {self.split!r}", len(self.classes)
        return f"{type(self).__name__}({names}, {len(self)} of shape {self.image_shape}, {classes} classes)"


@dataclass(frozen=True, repr=False)
class Dataset(_Split):
    """One split of a data set. Can be passed to `torch.utils.data.DataLoader`.

    Args:
        name: of the data set.
        split: "train", "valid" or "test".
        images: uint8 (N, C, H, W).
        labels: int64 (N,).
        classes: names of the classes, in the order of the labels.
        meta: "source", "sha256" (of source bytes, seed, parameters and generator version), and per-sample values
            (poses, "mnist_index") as tensors or lists of length N.
    """

    name: str
    split: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return an image, float (C, H, W) in [0, 1], and its label."""
        return self.images[index].float() / 255, int(self.labels[index])

    @property
    def image_shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[1:])


@dataclass(frozen=True, repr=False)
class VoxelDataset(_Split):
    """One split of voxel grids, stored as bits.

    Bit b of byte k of a row is voxel 8k + b in [channel, x, y, z] order, most significant bit first, as in
    `numpy.packbits`.

    Args:
        packed: uint8 (N, channels·size³/8).
        size: side of the grid in voxels.
        labels, classes, meta: as in `Dataset`.
    """

    name: str
    split: str
    packed: Tensor
    size: int
    labels: Tensor
    classes: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the voxels of a shape, float 0 or 1 (channels, X, Y, Z), and its label."""
        return unpack_voxels(self.packed[index][None], self.size)[0].float(), int(self.labels[index])

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.packed.shape[1] * 8 // self.size**3, self.size, self.size, self.size

    @property
    def images(self) -> Tensor:
        """All voxels, uint8 0 or 1 (N, channels, X, Y, Z): eight times the memory of `packed`."""
        return unpack_voxels(self.packed, self.size)


AnyDataset = Dataset | VoxelDataset
SameDataset = TypeVar("SameDataset", bound=AnyDataset)


def unpack_voxels(packed: Tensor, size: int) -> Tensor:
    """Unpack bits: (N, C·size³/8) -> uint8 0 or 1 (N, C, size, size, size), on the device of `packed`."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    bits = (packed[:, :, None] >> shifts) & 1
    return bits.reshape(len(packed), -1, size, size, size)


def subset(dataset: SameDataset, rows: Tensor, *, split: str | None = None) -> SameDataset:
    """Return the samples at `rows` (int64, in this order), with their values of `meta`; `split` renames them."""
    count = len(dataset)

    def select(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == count:
            return value[rows]
        if isinstance(value, list) and len(value) == count:
            return [value[row] for row in rows.tolist()]
        return value

    meta = {key: select(value) for key, value in dataset.meta.items()}
    if "sha256" in meta:
        meta["sha256"] = fingerprint(whole=meta["sha256"], rows=rows.tolist())
    storage = _storage(dataset)
    images: dict[str, Any] = {storage: getattr(dataset, storage)[rows]}
    return replace(dataset, split=split or dataset.split, labels=dataset.labels[rows], meta=meta, **images)


def split_names(split: str) -> list[str]:
    """Return the parts of a split such as "train+valid"."""
    names = split.split("+") if isinstance(split, str) else []
    if not names or len(set(names)) < len(names):
        raise InputError(f"a split must be a sum of different ones, such as train+valid; got {split!r}")
    return names


def concatenate(parts: Sequence[AnyDataset]) -> AnyDataset:
    """Join splits of one data set; the split is called "train+valid", for example.

    Per-sample values of `meta` are joined; other values are kept if all parts agree.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    storage = _storage(first)
    images: dict[str, Any] = {storage: torch.cat([getattr(part, storage) for part in parts])}
    labels = torch.cat([part.labels for part in parts])
    split, meta = "+".join(part.split for part in parts), _join_meta([part.meta for part in parts])
    return replace(first, split=split, labels=labels, meta=meta, **images)


def data_sha256(dataset: AnyDataset) -> str:
    """Return `meta["sha256"]`; of a data set without one, `content_sha256`."""
    return str(dataset.meta.get("sha256") or content_sha256(dataset))


def content_sha256(dataset: AnyDataset) -> str:
    """Return the hash of the images and labels."""
    digest = hashlib.sha256()
    for tensor in (getattr(dataset, _storage(dataset)), dataset.labels):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()


def _storage(dataset: _Split) -> str:
    return "packed" if isinstance(dataset, VoxelDataset) else "images"


def _join_meta(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for key, first in metas[0].items():
        values: list[Any] = [meta[key] for meta in metas if key in meta]
        if len(values) < len(metas):
            continue
        if isinstance(first, Tensor):
            joined[key] = torch.cat(values)
        elif isinstance(first, list):
            joined[key] = [item for value in values for item in value]
        elif all(value == first for value in values):
            joined[key] = first
    joined["source"] = " + ".join(dict.fromkeys(meta["source"] for meta in metas))
    joined["sha256"] = fingerprint(parts=[meta["sha256"] for meta in metas])
    return joined


def _check_labels(dataset: _Split) -> None:
    for name in (_storage(dataset), "labels"):
        if not isinstance(value := getattr(dataset, name), Tensor) or not value.dim():
            raise InputTypeError(f"{name} must be a tensor with at least one axis; got {value!r}")
    if not isinstance(dataset.classes, Sequence):
        raise InputTypeError(f"classes must be a list of names; got {dataset.classes!r}")
    count, labels, classes = len(getattr(dataset, _storage(dataset))), dataset.labels, len(dataset.classes)
    valid = labels.dtype == torch.int64 and labels.shape == (count,)
    if not valid or (count and not 0 <= int(labels.min()) <= int(labels.max()) < classes):
        values = f" from {labels.min().item()} to {labels.max().item()}" if labels.numel() else ""
        raise InputError(
            f"{dataset.name} {dataset.split}: labels of {count} images must be int64 ({count},), from 0 to "
            f"{classes - 1}; got {labels.dtype} {tuple(labels.shape)}{values}"
        )
