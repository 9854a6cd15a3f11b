"""One reader a file format: plain functions from a path to numpy arrays. A bad file is one clear error."""

from .amat import TEST_NAME, TRAIN_VALID_NAME, read_amat
from .archive import unpack
from .arrays import read_npz, read_rotated_npz
from .digit_struct import DigitBoxes, read_digit_struct
from .idx import read_idx
from .mat import read_svhn_mat

__all__ = [
    "TEST_NAME",
    "TRAIN_VALID_NAME",
    "DigitBoxes",
    "read_amat",
    "read_digit_struct",
    "read_idx",
    "read_npz",
    "read_rotated_npz",
    "read_svhn_mat",
    "unpack",
]
