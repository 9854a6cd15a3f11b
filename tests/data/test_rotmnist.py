"""Rotated MNIST: the original files in each of their forms, and the set made from MNIST in their absence."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from ptn.data import rotmnist
from ptn.data.catalog import load_dataset
from ptn.data.formats.amat import TEST_NAME, TRAIN_VALID_NAME
from ptn.data.mnist import Mnist, load_mnist
from ptn.data.rotmnist import load_rotmnist
from ptn.errors import InputError

SPLITS = {"train": 6, "valid": 3, "test": 8}
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (17, 784)).astype(np.uint8)
LABELS = RANDOM.integers(0, 10, 17)
ROWS = {"train": slice(0, 6), "valid": slice(6, 9), "test": slice(9, 17)}


@pytest.fixture
def originals(store, monkeypatch):
    """The folder for original files, of a set with few images."""
    monkeypatch.setattr(rotmnist, "SPLITS", SPLITS)
    folder = store.data / "rotmnist"
    folder.mkdir()
    return folder


def write_amat(folder):
    for name, rows in ((TRAIN_VALID_NAME, slice(0, 9)), (TEST_NAME, ROWS["test"])):
        np.savetxt(folder / name, np.column_stack((IMAGES[rows] / 255, LABELS[rows])), fmt="%.6f")


def write_zip(folder):
    write_amat(folder)
    with zipfile.ZipFile(folder / "mnist_rotation_new.zip", "w") as archive:
        for name in (TRAIN_VALID_NAME, TEST_NAME):
            archive.write(folder / name, name)
            (folder / name).unlink()


def write_npz(folder):
    for split, rows in ROWS.items():
        np.savez(folder / f"rotated_{split}.npz", x=(IMAGES[rows] / 255).astype(np.float32), y=LABELS[rows])


@pytest.mark.parametrize("write", [write_amat, write_zip, write_npz])
def test_every_form_of_the_original_is_read(originals, write):
    write(originals)
    for split, rows in ROWS.items():
        dataset = load_rotmnist(split)
        assert dataset.meta["source"] == "original"
        assert torch.equal(dataset.images, torch.from_numpy(IMAGES[rows]).reshape(-1, 1, 28, 28))
        assert dataset.labels.tolist() == LABELS[rows].tolist()
        assert dataset.meta["mnist_index"].tolist() == [-1] * SPLITS[split]


def test_the_hash_of_an_original_tells_splits_apart(originals):
    write_amat(originals)
    hashes = {load_rotmnist(split).meta["sha256"] for split in SPLITS}
    assert len(hashes) == 3


def test_an_original_of_the_wrong_length_is_named(originals, monkeypatch):
    write_amat(originals)
    monkeypatch.setattr(rotmnist, "SPLITS", SPLITS | {"valid": 4})
    with pytest.raises(InputError, match=rf"{TRAIN_VALID_NAME} has 9 images for valid, not 10"):
        load_rotmnist("valid")


@pytest.mark.parametrize("alone", list(SPLITS))
@pytest.mark.parametrize("split", list(SPLITS))
@pytest.mark.parametrize("source", ["any", "original"])
def test_original_splits_are_never_joined_by_regenerated_ones(originals, alone, split, source):
    write_npz(originals)
    for path in originals.iterdir():
        if alone not in path.name:
            path.unlink()
    with pytest.raises(InputError, match=f"rotated_{alone}.npz is there but not") as caught:
        load_rotmnist(split, source=source)
    message = str(caught.value)
    for other in SPLITS:
        assert (f"rotmnist/rotated_{other}.npz" in message.partition(" not ")[2]) == (other != alone)
    assert "ptn data fetch rotmnist" in message
    assert "source='regenerated'" in message


def test_the_test_file_alone_is_no_original(originals):
    write_amat(originals)
    (originals / TRAIN_VALID_NAME).unlink()
    with pytest.raises(
        InputError, match=rf"{TEST_NAME} is there but not .*rotated_train.npz and .*rotated_valid.npz"
    ):
        load_rotmnist("train")


def test_beside_a_part_of_the_original_the_regenerated_set_can_be_asked_for(originals, monkeypatch):
    write_npz(originals)
    (originals / "rotated_test.npz").unlink()
    images, labels = torch.from_numpy(IMAGES).reshape(-1, 28, 28), torch.from_numpy(LABELS)
    few = Mnist(images[:10], labels[:10], images[10:], labels[10:], "0" * 64)
    monkeypatch.setattr(rotmnist, "load_mnist", lambda: few)
    monkeypatch.setattr(rotmnist, "SPECS", {"rotmnist": replace(rotmnist.SPECS["rotmnist"], splits=SPLITS)})
    assert {load_rotmnist(split, source="regenerated").meta["source"] for split in SPLITS} == {"regenerated"}


def test_without_any_file_the_error_says_how_to_get_one(store):
    with pytest.raises(InputError, match="ptn data fetch mnist"):
        load_rotmnist("test")
    with pytest.raises(InputError, match="ptn data fetch rotmnist"):
        load_rotmnist("test", source="original")


def test_unknown_sources_and_splits_are_named():
    with pytest.raises(InputError, match="did you mean 'original'"):
        load_rotmnist("test", source="orginal")
    with pytest.raises(InputError, match="did you mean 'test'"):
        load_rotmnist("tset")


def test_the_regenerated_set_has_the_counts_and_classes_it_should(real_data):
    expected = {
        "train": [1005, 1165, 1005, 1003, 994, 860, 989, 1028, 948, 1003],
        "valid": [213, 210, 189, 205, 194, 168, 189, 209, 205, 218],
        "test": [4902, 5642, 4980, 5092, 4858, 4557, 4902, 5251, 4873, 4943],
    }
    mnist = load_mnist()
    labels = torch.cat((mnist.train_labels, mnist.test_labels))
    index = []
    for split, histogram in expected.items():
        dataset = load_rotmnist(split, source="regenerated")
        assert dataset.images.shape == (sum(histogram), 1, 28, 28)
        assert (int(dataset.images.min()), int(dataset.images.max())) == (0, 255)
        assert dataset.labels.bincount().tolist() == histogram
        assert dataset.meta["source"] == "regenerated"
        assert torch.equal(dataset.labels, labels[dataset.meta["mnist_index"]])
        assert dataset.meta["rotation"].min() >= 0
        assert dataset.meta["rotation"].max() <= 2 * torch.pi
        index.append(dataset.meta["mnist_index"])
    assert len(torch.cat(index).unique()) == 62_000


def test_train_and_valid_together_are_the_papers_12000(real_data):
    merged = load_dataset("rotmnist", "train+valid", source="regenerated")
    assert len(merged) == 12_000
    assert torch.equal(merged.images[10_000:], load_dataset("rotmnist", "valid", source="regenerated").images)
