"""SVHN's MATLAB 5 files, as scipy writes them."""

import numpy as np
import pytest
import scipy.io

from ptn.data.formats.mat import read_svhn_mat
from ptn.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
LABELS = np.array([[1], [10], [9], [10]], dtype=np.uint8)


@pytest.mark.parametrize("compressed", [False, True])
def test_images_become_channels_first_and_ten_is_zero(tmp_path, compressed):
    path = tmp_path / "train_32x32.mat"
    scipy.io.savemat(path, {"X": IMAGES, "y": LABELS}, do_compression=compressed)
    images, labels = read_svhn_mat(path)
    assert images.shape == (4, 3, 32, 32)
    assert images.flags.c_contiguous
    assert images[2, 1, 5, 7] == IMAGES[5, 7, 1, 2]
    assert labels.tolist() == [1, 0, 9, 0]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"X": IMAGES}, "has no variable 'y'"),
        ({"X": IMAGES, "y": LABELS[:3]}, "4 images but 3 labels"),
        ({"X": IMAGES[:28], "y": LABELS}, "X is uint8 (28, 32, 3, 4)"),
        ({"X": IMAGES / 255, "y": LABELS}, "X is float64"),
        ({"X": IMAGES, "y": LABELS * 0}, "y has labels outside 1 to 10"),
    ],
)
def test_a_mat_file_of_something_else_is_named(tmp_path, variables, words):
    path = tmp_path / "train_32x32.mat"
    scipy.io.savemat(path, variables)
    with pytest.raises(InputError) as caught:
        read_svhn_mat(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("kept", [0, 60, 200, 6000])
def test_a_truncated_mat_file_is_named(tmp_path, kept):
    path = tmp_path / "train_32x32.mat"
    scipy.io.savemat(path, {"X": IMAGES, "y": LABELS})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"train_32x32.mat"):
        read_svhn_mat(path)


def test_a_missing_mat_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.mat"):
        read_svhn_mat(tmp_path / "nowhere.mat")
