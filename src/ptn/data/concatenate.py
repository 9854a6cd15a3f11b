"""Several splits of one data set as one."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .dataset import Dataset, VoxelDataset
from .store import fingerprint


def concatenate(parts: Sequence[Dataset | VoxelDataset]) -> Dataset | VoxelDataset:
    """Splits of one data set, one after the other; `split` becomes "train+valid", say.

    Of `meta`, what all parts have per sample is joined, and what they agree on is kept.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    split = "+".join(part.split for part in parts)
    labels = torch.cat([part.labels for part in parts])
    meta = _join_meta([part.meta for part in parts])
    if isinstance(first, VoxelDataset):
        packed = torch.cat([part.packed for part in parts if isinstance(part, VoxelDataset)])
        return VoxelDataset(first.name, split, packed, first.size, labels, first.classes, meta)
    images = torch.cat([part.images for part in parts])
    return Dataset(first.name, split, images, labels, first.classes, meta)


def _join_meta(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for key in metas[0]:
        values: list[Any] = [meta.get(key) for meta in metas]
        kinds = {type(value) for value in values}
        if kinds == {Tensor}:
            joined[key] = torch.cat(values)
        elif kinds == {list}:
            joined[key] = list(chain(*values))
        elif Tensor not in kinds and all(value == values[0] for value in values):
            joined[key] = values[0]
    joined["source"] = " + ".join(dict.fromkeys(meta["source"] for meta in metas))
    joined["sha256"] = fingerprint(parts=[meta["sha256"] for meta in metas])
    return joined
