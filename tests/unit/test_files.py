"""Files: atomic writes, and safetensors that are equal byte for byte."""

import stat

import pytest
import torch

from ptn import InputError
from ptn.files import atomic_path, make_folder, read_tensors, save_tensors

TENSORS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(3, dtype=torch.float16)}
METADATA = {"seed": "0", "classes": '["ä", "\\n\\u0001", "\\""]', "fit": "pad", "dataset": "x\ty\x01"}


def test_equal_tensors_and_metadata_are_equal_bytes(tmp_path):
    path = tmp_path / "file.safetensors"
    contents = set()
    for trial in range(8):  # safetensors writes metadata in arbitrary order
        save_tensors(path, TENSORS, dict(sorted(METADATA.items(), reverse=bool(trial % 2))))
        contents.add(path.read_bytes())
    assert len(contents) == 1
    tensors, metadata = read_tensors(path)
    assert metadata == METADATA
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("content", [b"", b"text", b"\x08\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"weights\.safetensors is not a weights file"):
        read_tensors(path, "weights file")
    with pytest.raises(InputError, match="no weights file at"):
        read_tensors(tmp_path / "none.safetensors", "weights file")


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("old")
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        temporary.write_text({}["half"])
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o044  # readable by others, unlike a temporary file


def test_a_path_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot create folder"):
        make_folder(tmp_path / "file" / "folder")
    with pytest.raises(InputError, match="cannot write"), atomic_path(tmp_path):
        pass
