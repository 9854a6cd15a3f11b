"""Contact sheets: the right sample, label and centre in the right place."""

import numpy as np
import pytest
import torch

from ptn.data.contact_sheet import _pictures, contact_sheet
from ptn.data.dataset import Dataset, VoxelDataset
from ptn.errors import InputError

GREEN = np.array([40, 230, 90])


def dataset(images, **meta):
    count = len(images)
    return Dataset("toy", "test", images, torch.arange(count) % 2, ("cat", "dog"), {"source": "made", **meta})


def pixels(sheet):
    return np.asarray(sheet).astype(int)


def test_every_sample_is_drawn_enlarged_and_unblurred():
    colours = torch.tensor([[255, 0, 0], [0, 0, 255], [250, 250, 0], [0, 250, 250]], dtype=torch.uint8)
    sheet = pixels(contact_sheet(dataset(colours[:, :, None, None].expand(-1, -1, 8, 8))))
    for colour in colours.numpy().astype(int):
        assert (sheet == colour).all(axis=2).sum() == 144 * 144


def test_a_cross_marks_the_true_center():
    images = torch.zeros(1, 1, 48, 48, dtype=torch.uint8)
    images[0, 0, 12, 36] = 255  # the pixel around (x, y) = (36.5, 12.5) of 48
    center = torch.tensor([[2 * 36.5 / 48 - 1, 2 * 12.5 / 48 - 1]])
    unmarked, marked = pixels(contact_sheet(dataset(images))), pixels(contact_sheet(dataset(images, center=center)))
    bright = np.argwhere((unmarked[30:-24] == 255).all(axis=2)).mean(axis=0)
    green = np.argwhere((marked[30:-24] == GREEN).all(axis=2)).mean(axis=0)
    assert len(np.argwhere((marked == GREEN).all(axis=2))) > 20
    assert np.abs(bright - green).max() <= 1
    assert not (unmarked == GREEN).all(axis=2).any()


def test_the_class_stands_below_its_sample():
    black = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    first = pixels(contact_sheet(dataset(black)))
    second = pixels(
        contact_sheet(Dataset("toy", "test", black, torch.tensor([0, 0]), ("cat", "dog"), {"source": "made"}))
    )
    changed = np.argwhere((first != second).any(axis=2))
    assert len(changed)
    assert changed[:, 0].min() > 140  # below the picture
    assert changed[:, 1].min() > 140  # of the second sample alone


def test_samples_are_spread_over_the_whole_set():
    images = torch.arange(100, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
    sheet = pixels(contact_sheet(dataset(images), count=3))
    shown = [grey for grey in range(100) if (sheet == grey).all(axis=2).sum() >= 144 * 144]
    assert shown == [0, 50, 99]


def test_more_samples_than_there_are_is_all_of_them():
    few = dataset(torch.zeros(3, 1, 28, 28, dtype=torch.uint8))
    assert contact_sheet(few, count=40).size == contact_sheet(few, count=3).size


def test_long_class_names_are_cut_to_their_cell():
    images = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    names = ("a" * 200, "b" * 200)
    sheet = contact_sheet(Dataset("toy", "test", images, torch.tensor([0, 1]), names, {"source": "made"}))
    assert sheet.size == contact_sheet(dataset(images)).size


def test_nothing_to_show_is_an_error():
    with pytest.raises(InputError, match="nothing to show"):
        contact_sheet(dataset(torch.zeros(0, 1, 28, 28, dtype=torch.uint8)))
    with pytest.raises(InputError, match="count 0"):
        contact_sheet(dataset(torch.zeros(1, 1, 28, 28, dtype=torch.uint8)), count=0)


def test_voxels_are_seen_from_the_front_and_from_above():
    voxels = np.zeros((1, 32, 32, 32), dtype=np.uint8)
    voxels[0, 3, 0, 30] = 1  # left, in front, high up
    voxels[0, 20, 31, 5] = 1  # right, behind, low
    packed = torch.from_numpy(np.packbits(voxels.reshape(1, -1), axis=1))
    shapes = VoxelDataset("toy", "test", packed, 32, torch.tensor([0]), ("shape",), {"source": "made"})
    picture = _pictures(shapes, torch.tensor([0]))[0, 0].numpy()
    assert picture.shape == (32, 65)
    front, above = picture[:, :32], picture[:, 33:]
    assert np.argwhere(front).tolist() == [[1, 3], [26, 20]]
    assert np.argwhere(above).tolist() == [[0, 20], [31, 3]]
    assert front[1, 3] > front[26, 20] > 0
    assert above[31, 3] > above[0, 20] > 0
    assert contact_sheet(shapes).size[0] > 65
