"""MNIST from either kind of file, and the real one."""

import gzip
import struct

import numpy as np
import pytest
import torch

from ptn.data import mnist as mnist_module
from ptn.data.catalog import load_dataset
from ptn.data.mnist import IDX_NAMES, load_mnist
from ptn.errors import InputError

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    "y_train": np.array([5, 0, 4, 1, 9], dtype=np.uint8),
    "x_test": RANDOM.integers(0, 256, (3, 28, 28), dtype=np.uint8),
    "y_test": np.array([7, 2, 1], dtype=np.uint8),
}


@pytest.fixture
def few(store, monkeypatch):
    """A store, in which MNIST is a set of 5 and 3 images."""
    monkeypatch.setattr(mnist_module, "COUNTS", (5, 3))
    return store


def write_idx(folder, arrays, *, compress=True):
    folder.mkdir(exist_ok=True)
    for name, array in zip(IDX_NAMES, arrays.values(), strict=True):
        content = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)


def write_npz(folder, arrays):
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "mnist.npz", **arrays)


def test_every_kind_of_file_gives_the_same_digits_and_hash(few):
    folder = few.data / "mnist"
    loaded = []
    for write in (write_npz, write_idx, lambda *args: write_idx(*args, compress=False)):
        write(folder, ARRAYS)
        loaded.append(load_mnist())
        for path in folder.iterdir():
            path.unlink()
    assert len({mnist.sha256 for mnist in loaded}) == 1
    for mnist in loaded:
        for tensor, array in zip(mnist[:4], ARRAYS.values(), strict=True):
            assert np.array_equal(tensor.numpy(), array)
        assert mnist.train_images.dtype == torch.uint8
        assert mnist.train_labels.dtype == torch.int64


def test_one_changed_pixel_changes_the_hash(few):
    write_npz(few.data / "mnist", ARRAYS)
    before = load_mnist().sha256
    changed = ARRAYS["x_test"].copy()
    changed[2, 27, 27] ^= 1
    write_npz(few.data / "mnist", ARRAYS | {"x_test": changed})
    assert load_mnist().sha256 != before


def test_without_files_the_error_says_how_to_get_them(store):
    with pytest.raises(InputError, match=r"ptn data fetch mnist$"):
        load_mnist()


def test_one_missing_idx_file_is_named(store):
    write_idx(store.data / "mnist", ARRAYS)
    (store.data / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"no mnist/t10k-labels-idx1-ubyte.gz .* ptn data fetch mnist$"):
        load_mnist()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"y_train": ARRAYS["y_train"][:4]}, r"holds uint8 \(4,\); .* 5 images"),
        ({"x_test": ARRAYS["x_test"][:, :27]}, r"holds uint8 \(3, 27, 28\), not uint8"),
        ({"y_test": ARRAYS["y_test"] + 5}, "has the label 12, which is no digit"),
    ],
)
@pytest.mark.parametrize("write", [write_npz, write_idx])
def test_labels_and_images_that_do_not_match_are_named(few, changed, words, write):
    write(few.data / "mnist", ARRAYS | changed)
    with pytest.raises(InputError, match=words) as caught:
        load_mnist()
    assert str(few.data / "mnist") in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "words"),
    [((60_000, 3), "has 5 images, not the 60,000"), ((5, 10_000), "has 3 images, not the 10,000")],
)
@pytest.mark.parametrize("write", [write_npz, write_idx])
def test_a_part_of_mnist_is_not_taken_for_mnist(store, monkeypatch, counts, words, write):
    assert mnist_module.COUNTS == (60_000, 10_000)
    monkeypatch.setattr(mnist_module, "COUNTS", counts)
    write(store.data / "mnist", ARRAYS)
    with pytest.raises(InputError, match=words) as caught:
        load_dataset("mnist", "train")
    assert str(store.data / "mnist") in str(caught.value)
    assert "ptn data fetch mnist" in str(caught.value)


def test_the_real_mnist_has_its_known_counts(real_data):
    mnist = load_mnist()
    assert mnist.train_images.shape == (60000, 28, 28)
    assert mnist.test_images.shape == (10000, 28, 28)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train_labels.bincount().tolist() == train
    assert mnist.test_labels.bincount().tolist() == test
    for images in (mnist.train_images, mnist.test_images):
        assert (images.min(), images.max()) == (0, 255)
    assert mnist.train_images.float().mean().item() == pytest.approx(33.3184, abs=1e-3)
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
