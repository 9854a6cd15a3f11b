"""Pictures of every depth: what is white is known, or the file is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from ptn.data.formats.image import read_image
from ptn.errors import InputError


def saved(tmp_path, values, suffix):
    path = tmp_path / f"picture.{suffix}"
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bits_are_shares_of_65535(tmp_path, suffix):
    values = np.array([[0, 1, 255], [256, 40_000, 65_535]], dtype=np.uint16)
    image, _ = read_image(saved(tmp_path, values, suffix))
    torch.testing.assert_close(image, torch.from_numpy(values / np.float32(65535))[None])


def test_a_16_bit_file_stays_dark_even_where_pillow_gives_32(tmp_path):
    path = saved(tmp_path, np.full((2, 3), 200, dtype=np.uint16), "pgm")
    with Image.open(path) as picture:
        assert picture.mode == "I"
    assert read_image(path)[0].flatten().tolist() == pytest.approx([200 / 65535] * 6)


def test_32_bit_integers_in_the_range_of_16_are_taken_as_16(tmp_path):
    path = saved(tmp_path, np.array([[0, 65_535]], dtype=np.int32), "tif")
    assert read_image(path)[0].flatten().tolist() == [0, 1]


def test_floats_from_0_to_1_are_taken_as_they_are(tmp_path):
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    image, _ = read_image(saved(tmp_path, values, "tif"))
    assert torch.equal(image, torch.from_numpy(values)[None])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([[0, 255]], dtype=np.float32), "mode F, 32-bit floats, from 0 to 255"),
        (np.array([[-0.1, 1]], dtype=np.float32), "mode F, 32-bit floats, from -0.1 to 1"),
        (np.array([[np.nan, 1]], dtype=np.float32), "mode F, 32-bit floats, from nan"),
        (np.array([[0, 65_536]], dtype=np.int32), "mode I, 32-bit integers, from 0 to 65536"),
        (np.array([[-1, 300]], dtype=np.int32), "mode I, 32-bit integers, from -1 to 300"),
        (np.array([[0, 255]], dtype=np.int32), "mode I, 32-bit integers, from 0 to 255"),
    ],
    ids=["floats to 255", "negative floats", "not a number", "beyond 16 bits", "negative integers", "8 bits in 32"],
)
def test_other_numbers_of_32_bits_are_refused_in_one_line(tmp_path, values, words):
    path = saved(tmp_path, values, "tif")
    with pytest.raises(InputError, match=words) as caught:
        read_image(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith("save it with 8 or 16 bits, or as floats in [0, 1]")
    assert "\n" not in message
