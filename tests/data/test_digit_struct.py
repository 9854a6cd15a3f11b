"""The HDF5 file that says where the digits of SVHN's photos are."""

import h5py
import numpy as np
import pytest

from ptn.data.formats.digit_struct import read_digit_struct
from ptn.errors import InputError

PHOTOS = {
    "1.png": [(11.0, 6.0, 20.0, 30.0, 5.0)],
    "2.png": [(1.0, 1.0, 8.0, 9.0, 10.0), (9.0, -2.0, 7.0, 10.0, 3.0), (17.0, 1.0, 8.0, 9.5, 1.0)],
}


def test_boxes_come_photo_by_photo_with_corners_at_zero_and_ten_as_zero(tmp_path, write_digit_struct):
    path = tmp_path / "digitStruct.mat"
    write_digit_struct(path, PHOTOS)
    digits = read_digit_struct(path)
    assert digits.names == ("1.png", "2.png")
    assert digits.photo.tolist() == [0, 1, 1, 1]
    assert digits.labels.tolist() == [5, 0, 3, 1]
    expected = [[10, 5, 20, 30], [0, 0, 8, 9], [8, -3, 7, 10], [16, 0, 8, 9.5]]
    assert digits.boxes.tolist() == expected


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((1.0, 1.0, 0.0, 9.0, 5.0), "boxes without a size"),
        ((1.0, np.nan, 5.0, 9.0, 5.0), "boxes without a size"),
        ((1.0, 1.0, 5.0, 9.0, 11.0), "labels outside 1 to 10"),
    ],
)
def test_boxes_that_make_no_sense_are_refused(tmp_path, write_digit_struct, box, words):
    path = tmp_path / "digitStruct.mat"
    write_digit_struct(path, PHOTOS | {"3.png": [box]})
    with pytest.raises(InputError, match=f"digitStruct.mat has {words}"):
        read_digit_struct(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_named(tmp_path, write_digit_struct, share):
    path = tmp_path / "digitStruct.mat"
    write_digit_struct(path, PHOTOS)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"cannot read .*digitStruct.mat") as caught:
        read_digit_struct(path)
    assert "\n" not in str(caught.value)


def test_an_hdf5_file_of_something_else_is_named(tmp_path):
    path = tmp_path / "digitStruct.mat"
    with h5py.File(path, "w") as file:
        file["other"] = 1
    with pytest.raises(InputError, match=r"cannot read .*digitStruct.mat"):
        read_digit_struct(path)
