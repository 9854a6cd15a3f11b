"""The text form of rotated MNIST, its zip, and its npz form."""

import zipfile

import numpy as np
import pytest

from ptn.data.formats.amat import TEST_NAME, TRAIN_VALID_NAME, read_amat
from ptn.data.formats.arrays import read_rotated_npz
from ptn.errors import InputError

VALUES = np.random.default_rng(0).random((5, 784)).round(6)
LABELS = [7, 0, 9, 3, 3]


def rows_of(values: np.ndarray, labels: list[int], separator: str = " ") -> list[str]:
    return [separator.join([*map(str, row), str(float(label))]) for row, label in zip(values, labels, strict=True)]


@pytest.mark.parametrize("separator", [" ", "   ", "\t"])
def test_rows_become_images_row_by_row(tmp_path, separator):
    path = tmp_path / "some.amat"
    path.write_text("\n".join(rows_of(VALUES, LABELS, separator)) + "\n\n")
    images, labels = read_amat(path)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    assert labels.tolist() == LABELS
    assert np.allclose(images, VALUES.reshape(5, 28, 28), atol=1e-7)
    assert images[2, 1, 0] == np.float32(VALUES[2, 28])


@pytest.mark.parametrize("folder", ["", "mnist_rotation_new/"])
def test_both_files_are_read_out_of_their_zip(tmp_path, folder):
    path = tmp_path / "mnist_rotation_new.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(folder + TRAIN_VALID_NAME, "\n".join(rows_of(VALUES[:3], LABELS[:3])))
        archive.writestr(folder + TEST_NAME, "\n".join(rows_of(VALUES[3:], LABELS[3:])))
    assert read_amat(path, member=TRAIN_VALID_NAME)[1].tolist() == LABELS[:3]
    images, labels = read_amat(path, member=TEST_NAME)
    assert labels.tolist() == LABELS[3:]
    assert np.allclose(images, VALUES[3:].reshape(-1, 28, 28), atol=1e-7)
    with pytest.raises(InputError, match=r"holds no other.amat"):
        read_amat(path, member="other.amat")


def spoil(row: int, column: int, text: str) -> str:
    cells = [row.split() for row in rows_of(VALUES, LABELS)]
    cells[row][column] = text
    return "\n".join(map(" ".join, cells))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("1 2 3\n4 5 6\n", "has 3 columns, not 784 values and a label"),
        ("\n".join(rows_of(VALUES, LABELS))[:-300], "cannot read"),
        (spoil(1, 5, "abc"), "cannot read"),
        (spoil(1, 5, "1.5"), "row 2 has values outside [0, 1]"),
        (spoil(3, 783, "nan"), "row 4 has values outside [0, 1]"),
        (spoil(2, 784, "10"), "row 3 has a label that is no digit"),
        (spoil(0, 784, "2.5"), "row 1 has a label that is no digit"),
        ("\x89PNG\r\n\x1a\n" + "é" * 50, "is no text file"),
    ],
)
def test_a_bad_amat_file_is_named_with_its_fault(tmp_path, content, words):
    path = tmp_path / "some.amat"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_amat(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_zip_is_named(tmp_path):
    path = tmp_path / "rotation.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(TEST_NAME, "\n".join(rows_of(VALUES, LABELS)))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(200) + whole[300:])
    with pytest.raises(InputError, match=r"rotation.zip"):
        read_amat(path, member=TEST_NAME)
    path.write_bytes(whole[:-50])
    with pytest.raises(InputError, match=r"rotation.zip"):
        read_amat(path, member=TEST_NAME)


@pytest.mark.parametrize("label_type", [np.int64, np.float32])
def test_the_npz_form_is_the_same_data(tmp_path, label_type):
    path = tmp_path / "rotated_train.npz"
    np.savez(path, x=VALUES.astype(np.float32), y=np.array(LABELS, dtype=label_type))
    images, labels = read_rotated_npz(path)
    assert np.allclose(images, VALUES.reshape(5, 28, 28), atol=1e-7)
    assert labels.tolist() == LABELS


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": VALUES}, "has no array 'y'; it has x"),
        ({"x": VALUES, "y": LABELS[:4]}, "5 images but labels of shape (4,)"),
        ({"x": VALUES[:, :700], "y": LABELS}, "x is float64 (5, 700)"),
        ({"x": VALUES * 255, "y": LABELS}, "x has values outside [0, 1]"),
        ({"x": VALUES, "y": [1, 2, 3, 4, 11]}, "y has labels that are no digits"),
        ({"x": np.array([{}] * 5), "y": LABELS}, "cannot read"),
    ],
)
def test_a_bad_npz_file_is_named_with_its_fault(tmp_path, arrays, words):
    path = tmp_path / "rotated_train.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        read_rotated_npz(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_truncated_npz_file_is_named(tmp_path):
    path = tmp_path / "rotated_train.npz"
    np.savez(path, x=VALUES, y=LABELS)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"rotated_train.npz"):
        read_rotated_npz(path)


def test_an_npy_file_is_no_npz_file(tmp_path):
    path = tmp_path / "rotated_train.npz"
    with path.open("wb") as stream:
        np.save(stream, VALUES)
    with pytest.raises(InputError, match=r"rotated_train.npz is no npz file"):
        read_rotated_npz(path)
