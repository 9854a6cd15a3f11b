"""Dataset and VoxelDataset: indexing, subsets, concatenation."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ptn import InputError
from ptn.data import Dataset, VoxelDataset
from ptn.data.dataset import concatenate, subset, unpack_voxels


def make(split, values, **meta):
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None]
    classes = tuple(map(str, range(50)))
    return Dataset("toy", split, images, torch.tensor(values), classes, {"source": "x", "sha256": split, **meta})


def make_voxels(split, grids):
    meta = {"source": "x", "sha256": split}
    return VoxelDataset("toy", split, grids, 8, torch.zeros(len(grids)).long(), ("a",), meta)


def test_a_data_loader_reads_floats_and_labels():
    images, labels = next(iter(DataLoader(make("train", [0, 45, 3]), batch_size=3)))
    torch.testing.assert_close(images.flatten(), torch.tensor([0, 45 / 255, 3 / 255]))
    assert labels.tolist() == [0, 45, 3]
    assert repr(make("train", [0, 45, 3])) == "Dataset('toy', 'train', 3 of shape (1, 1, 1), 50 classes)"


def test_voxels_unpack_in_the_order_of_packbits():
    grids = np.random.default_rng(0).integers(0, 2, (3, 2, 8, 8, 8), dtype=np.uint8)
    packed = torch.from_numpy(np.packbits(grids.reshape(3, -1), axis=1))
    assert np.array_equal(unpack_voxels(packed, 8), grids)
    dataset = VoxelDataset("toy", "test", packed, 8, torch.zeros(3).long(), ("a",))
    assert repr(dataset) == "VoxelDataset('toy', 'test', 3 of shape (2, 8, 8, 8), 1 classes)"
    assert np.array_equal(dataset.images, grids)
    assert [label for _, label in dataset] == [0, 0, 0]  # iteration ends
    assert np.array_equal(dataset[1][0], grids[1])


@pytest.mark.parametrize(
    "labels", [torch.tensor([0]), torch.tensor([0.0, 1.0]), torch.tensor([0, 2]), torch.tensor([-1, 0])]
)
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(InputError, match=f"labels.*got .* from {labels.min()} to {labels.max()}$"):
        Dataset("toy", "train", torch.zeros(2, 1, 4, 4, dtype=torch.uint8), labels, ("a", "b"))


def test_a_subset_keeps_the_metadata_of_its_samples_in_order():
    whole = make("train", [2, 1, 0], names=["p", "q", "r"], pose=torch.arange(3), width=7)
    part = subset(whole, torch.tensor([2, 0]), split="valid")
    assert (part.split, part.labels.tolist(), part.images.flatten().tolist()) == ("valid", [0, 2], [0, 2])
    assert (part.meta["names"], part.meta["pose"].tolist(), part.meta["width"]) == (["r", "p"], [2, 0], 7)
    hashes = {whole.meta["sha256"], part.meta["sha256"], subset(whole, torch.tensor([0, 2])).meta["sha256"]}
    assert len(hashes) == 3
    grids = torch.arange(3 * 128, dtype=torch.uint8).reshape(3, 128)
    assert torch.equal(subset(make_voxels("test", grids), torch.tensor([1])).packed, grids[1:2])


def test_concatenation_joins_metadata_per_sample_and_keeps_what_agrees():
    first = make("train", [0, 1], seed=3, names=["p", "q"], pose=torch.tensor([1.0, 2.0]), width=7)
    second = make("valid", [2], seed=3, names=["r"], pose=torch.tensor([3.0]), width=8)
    both = concatenate([first, second])
    assert (both.split, both.labels.tolist()) == ("train+valid", [0, 1, 2])
    assert both.images.flatten().tolist() == [0, 1, 2]
    assert (both.meta["names"], both.meta["pose"].tolist(), both.meta["seed"]) == (["p", "q", "r"], [1, 2, 3], 3)
    assert "width" not in both.meta
    assert both.meta["sha256"] != concatenate([second, first]).meta["sha256"]
    grids = torch.arange(3 * 64, dtype=torch.uint8).reshape(3, 64)
    assert torch.equal(concatenate([make_voxels("train", grids[:2]), make_voxels("test", grids[2:])]).packed, grids)
