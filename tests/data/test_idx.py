"""idx files, written here byte by byte as the format is described."""

import gzip
import struct

import numpy as np
import pytest

from ptn.data.formats.idx import read_idx
from ptn.errors import InputError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
HEADER = struct.pack(">I3I", 0x00000803, 2, 3, 4)
CONTENT = HEADER + IMAGES.tobytes()
ZIPPED = gzip.compress(CONTENT, mtime=0)


@pytest.mark.parametrize("content", [CONTENT, ZIPPED], ids=["plain", "gzipped"])
def test_an_idx_file_has_the_shape_of_its_header(tmp_path, content):
    path = tmp_path / "images"
    path.write_bytes(content)
    array = read_idx(path)
    assert array.dtype == np.uint8
    assert np.array_equal(array, IMAGES)


FAULTS = {
    "empty": (b"", "is truncated"),
    "half a header": (CONTENT[:10], "is truncated inside its header"),
    "a byte short": (CONTENT[:-1], "is truncated: its header announces (2, 3, 4), 24 bytes; it holds 23"),
    "a byte long": (CONTENT + b"\0", "has bytes left over"),
    "of floats": (b"\x00\x00\x0d\x03" + CONTENT[4:], "its magic number is 0x00000d03"),
    "a picture": (b"\x89PNG" + CONTENT, "its magic number is 0x89504e47"),
    "truncated gzip": (ZIPPED[:-12], "is truncated: the gzip data stop early"),
    "wrong checksum": (ZIPPED[:-8] + b"\0" * 8, "cannot read"),
    "no gzip": (b"\x1f\x8b" + b"\xff" * 30, "cannot read"),
}


@pytest.mark.parametrize(("content", "words"), FAULTS.values(), ids=FAULTS)
def test_a_bad_idx_file_is_named_with_its_fault(tmp_path, content, words):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_header_that_announces_too_much_takes_no_memory(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">I3I", 0x00000803, 2**31, 2**31, 2**31))
    with pytest.raises(InputError, match=r"is truncated"):
        read_idx(path)


def test_a_missing_idx_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere"):
        read_idx(tmp_path / "nowhere")
