"""The sets made from MNIST by turning, scaling, shifting and clutter, whole and on real digits."""

import pytest
import torch

from ptn.data.catalog import load_dataset
from ptn.data.digits import SIM2MNIST
from ptn.data.mnist import load_mnist

TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
SIM2 = {
    "train": [1005, 1165, 1005, 1003, 994, 860, 989, 1028, 948, 1003],
    "valid": [493, 568, 503, 493, 484, 432, 465, 529, 504, 529],
    "test": [4920, 5611, 4973, 5115, 4871, 4558, 4935, 5245, 4885, 4887],
}


def check_images(dataset, size, histogram):
    assert dataset.images.dtype == torch.uint8
    assert dataset.images.shape == (sum(histogram), 1, size, size)
    assert (int(dataset.images.min()), int(dataset.images.max())) == (0, 255)
    assert dataset.labels.bincount().tolist() == histogram
    mnist = load_mnist()
    labels = torch.cat((mnist.train_labels, mnist.test_labels))
    assert torch.equal(dataset.labels, labels[dataset.meta["mnist_index"]])


def check_range(values, low, high):
    """All of `values` in [low, high], and some of them close to each end."""
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    assert values.min() < low + 0.01 * (high - low)
    assert values.max() > high - 0.01 * (high - low)


@pytest.mark.parametrize(("split", "histogram"), [("train", TRAIN), ("test", TEST)])
def test_mnist_r_is_all_of_mnist_turned_by_up_to_90_degrees(real_data, split, histogram):
    dataset = load_dataset("mnist-r", split)
    check_images(dataset, 28, histogram)
    check_range(dataset.meta["rotation"], -torch.pi / 2, torch.pi / 2)
    assert (dataset.meta["center"] == 0).all()
    first = 0 if split == "train" else 60_000
    assert torch.equal(dataset.meta["mnist_index"], torch.arange(first, first + len(dataset)))


@pytest.mark.parametrize(("split", "histogram"), [("train", TRAIN), ("test", TEST)])
def test_mnist_rts_is_all_of_mnist_turned_scaled_and_shifted(real_data, split, histogram):
    dataset = load_dataset("mnist-rts", split)
    check_images(dataset, 42, histogram)
    check_range(dataset.meta["rotation"], -torch.pi / 4, torch.pi / 4)
    check_range(dataset.meta["scale"], 0.7, 1.2)
    reach = dataset.meta["center"].abs() * 21 + 14 * dataset.meta["scale"][:, None]
    assert reach.max() <= 21.001
    assert (dataset.meta["center"].abs() * 21).max() > 10


@pytest.mark.slow
@pytest.mark.parametrize("split", SIM2)
def test_sim2mnist_has_the_counts_classes_and_poses_it_should(real_data, split):
    dataset = load_dataset("sim2mnist", split)
    check_images(dataset, 96, SIM2[split])
    check_range(dataset.meta["rotation"], 0, 2 * torch.pi)
    check_range(dataset.meta["scale"], 1.0, 2.4)
    assert dataset.meta["clutter"] == SIM2MNIST.clutter
    assert dataset.meta["center"].abs().max() < 1
    assert dataset.meta["center"].abs().max() > 0.8
    ink = (dataset.images > 0).float().mean()
    assert 0.06 < ink < 0.3


@pytest.mark.slow
def test_no_digit_of_sim2mnist_is_in_two_splits(real_data):
    index = torch.cat([load_dataset("sim2mnist", split).meta["mnist_index"] for split in SIM2])
    assert len(index.unique()) == 65_000


@pytest.mark.slow
def test_the_stored_center_is_on_the_digit(real_data):
    clean = load_dataset("sim2mnist", "valid", clutter=0)
    light = clean.images[:, 0].float()
    places = (2 * torch.arange(96) + 1) / 96 - 1
    mass = light.sum(dim=(1, 2))
    found = torch.stack(((light.sum(1) * places).sum(1), (light.sum(2) * places).sum(1)), dim=1) / mass[:, None]
    distance = (found - clean.meta["center"]).norm(dim=1) * 48 / clean.meta["scale"]
    # MNIST puts the centre of mass on the pixel (14, 14), half a pixel right of and below the middle of the tile.
    assert distance.mean() < 0.9
    assert distance.max() < 1.6


@pytest.mark.slow
def test_without_clutter_the_digits_are_where_they_were(real_data):
    cluttered, clean = load_dataset("sim2mnist", "valid"), load_dataset("sim2mnist", "valid", clutter=0)
    for name in ("center", "rotation", "scale", "mnist_index"):
        assert torch.equal(cluttered.meta[name], clean.meta[name])
    assert (cluttered.images >= clean.images).all()
    assert cluttered.meta["sha256"] != clean.meta["sha256"]


@pytest.mark.slow
def test_the_sets_beyond_training_have_the_same_digits_in_other_poses(real_data):
    whole = load_dataset("sim2mnist", "valid")
    larger, turned = (load_dataset(f"sim2mnist-{name}", "valid") for name in ("larger", "turned"))
    for dataset in (larger, turned):
        check_images(dataset, 96, SIM2["valid"])
        assert torch.equal(dataset.meta["mnist_index"], whole.meta["mnist_index"])
    check_range(larger.meta["scale"], 1.0, 1.6)
    assert torch.equal(larger.meta["rotation"], whole.meta["rotation"])
    assert (turned.meta["rotation"] == 0).all()
    assert torch.equal(turned.meta["scale"], whole.meta["scale"])
