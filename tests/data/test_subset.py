"""Some samples of a data set, with all that is known of each."""

import pytest
import torch

from ptn import InputError
from ptn.data import Dataset, VoxelDataset
from ptn.data.subset import hold_out, subset


def test_samples_keep_their_labels_and_facts_in_the_order_asked_for():
    meta = {"source": "x", "sha256": "0", "names": ["p", "q", "r"], "pose": torch.arange(3), "width": 7}
    images = torch.arange(3, dtype=torch.uint8)[:, None, None, None]
    whole = Dataset("toy", "train", images, torch.tensor([2, 1, 0]), ("a", "b", "c"), meta)
    part = subset(whole, torch.tensor([2, 0]), split="valid")
    assert (part.split, part.classes) == ("valid", whole.classes)
    assert part.images.flatten().tolist() == [2, 0]
    assert part.labels.tolist() == [0, 2]
    assert (part.meta["names"], part.meta["pose"].tolist(), part.meta["width"]) == (["r", "p"], [2, 0], 7)
    assert part.meta["sha256"] != whole.meta["sha256"]
    assert subset(whole, torch.tensor([0, 2])).meta["sha256"] != part.meta["sha256"]


def test_voxels_stay_packed():
    grids = torch.arange(3 * 128, dtype=torch.uint8).reshape(3, 128)
    whole = VoxelDataset("toy", "test", grids, 8, torch.zeros(3).long(), ("a",))
    part = subset(whole, torch.tensor([1]))
    assert (part.split, part.channels) == ("test", 2)
    assert torch.equal(part.packed, grids[1:2])
    assert part.images.shape == (1, 2, 8, 8, 8)


def test_a_seed_holds_samples_out_and_the_rest_is_the_rest():
    images = torch.arange(50, dtype=torch.uint8)[:, None, None, None]
    whole = Dataset("toy", "train", images, torch.arange(50), tuple(map(str, range(50))), {"sha256": "0"})
    kept, held = hold_out(whole, 10, seed=1)
    assert (kept.split, len(kept), held.split, len(held)) == ("train", 40, "valid", 10)
    assert torch.cat((kept.labels, held.labels)).sort().values.tolist() == list(range(50))
    assert torch.equal(held.images.flatten().long(), held.labels)
    assert held.labels.tolist() != list(range(40, 50))
    assert torch.equal(hold_out(whole, 10, seed=1)[1].labels, held.labels)
    assert not torch.equal(hold_out(whole, 10, seed=2)[1].labels, held.labels)
    for count in (0, 50):
        with pytest.raises(InputError, match="between 1 and 49 of them can be held out"):
            hold_out(whole, count, seed=0)
