"""Some samples of a data set as a data set, and the rest as another."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import InputError
from .dataset import Dataset, VoxelDataset
from .store import fingerprint

AnyDataset = TypeVar("AnyDataset", bound=Dataset | VoxelDataset)


def subset(dataset: AnyDataset, rows: Tensor, *, split: str | None = None) -> AnyDataset:
    """The samples `rows` (int64, in that order) of `dataset`, called `split`, with what `meta` knows of each."""
    count = len(dataset)

    def of_rows(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == count:
            return value[rows]
        if isinstance(value, list) and len(value) == count:
            return [value[row] for row in rows.tolist()]
        return value

    meta = {key: of_rows(value) for key, value in dataset.meta.items()}
    if "sha256" in meta:
        meta["sha256"] = fingerprint(whole=meta["sha256"], rows=rows.tolist())
    changes: dict[str, Any] = {"split": split or dataset.split, "labels": dataset.labels[rows], "meta": meta}
    if isinstance(dataset, VoxelDataset):
        return replace(dataset, packed=dataset.packed[rows], **changes)
    return replace(dataset, images=dataset.images[rows], **changes)


def hold_out(dataset: AnyDataset, count: int, *, seed: int) -> tuple[AnyDataset, AnyDataset]:
    """`dataset` without `count` samples that `seed` draws, and those, called "valid"; both keep their order."""
    if not 0 < count < len(dataset):
        raise InputError(
            f"{dataset.name} {dataset.split} has {len(dataset):,} samples: between 1 and {len(dataset) - 1:,} of "
            f"them can be held out; got {count!r}"
        )
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    held, kept = drawn[:count].sort().values, drawn[count:].sort().values
    return subset(dataset, kept), subset(dataset, held, split="valid")
