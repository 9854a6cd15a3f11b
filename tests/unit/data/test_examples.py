"""Example folders: texture patches, coins, and the files that are written."""

from dataclasses import replace

import pytest
import torch

import ptn
from ptn.data import examples
from ptn.data.examples import EXAMPLES, FONTS, STRIPS, draw_digits, draw_textures, write_example


@pytest.fixture
def _ramp(monkeypatch):
    """Photographs of textures whose brightness is the column."""
    ramp = (torch.arange(512, dtype=torch.float64) / 512).expand(512, 512)
    monkeypatch.setattr(examples, "load_photograph", lambda name: ramp)


@pytest.mark.usefixtures("_ramp")
@pytest.mark.parametrize("split", STRIPS)
def test_patches_come_from_the_strip_of_their_split(split):
    start, end = STRIPS[split]
    columns = draw_textures("brick", split, 50, torch.Generator().manual_seed(0)) * 512
    assert columns.shape == (50, 64, 64)
    assert start - 1 < columns.min()
    assert columns.max() < end + 1
    assert columns.max() - columns.min() > 0.7 * (end - start)


def test_digits_of_a_split_have_fonts_that_no_other_has(monkeypatch):
    used = {split: set() for split in FONTS}

    def record(character, font):
        used[split].add(font)
        return torch.ones(40, 30, dtype=torch.float64), 25.0

    monkeypatch.setattr(examples, "draw_glyph", record)
    monkeypatch.setattr(examples, "load_photograph", lambda name: torch.zeros(512, 512))
    for split in FONTS:
        assert len(list(draw_digits("3", split, 4, torch.Generator().manual_seed(0)))) == 4
    assert all(len(used[split]) >= 4 for split in FONTS)
    assert not used["train"] & used["test"] | used["train"] & used["valid"] | used["valid"] & used["test"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_folder_that_loads_and_depends_on_the_seed(name, tmp_path, monkeypatch):
    pytest.importorskip("skimage", reason="photographs: pip install 'ptn[examples]'")
    counts = {"train": 3, "valid": 2, "test": 2}
    monkeypatch.setitem(EXAMPLES, name, replace(EXAMPLES[name], counts=counts))
    classes = write_example(name, tmp_path / "a").classes
    write_example(name, tmp_path / "b")
    write_example(name, tmp_path / "c", seed=1)
    first, same, other = (ptn.load_folder(tmp_path / folder, "train", image_size=64) for folder in "abc")
    channels = 3 if name == "symbols" else 1
    assert (first.images.shape, first.classes) == ((3 * len(classes), channels, 64, 64), classes)
    assert torch.equal(first.images, same.images)
    assert not torch.equal(first.images, other.images)
    assert len(ptn.load_folder(tmp_path / "a", "test", image_size=64)) == 2 * len(classes)
    with pytest.raises(ptn.InputError, match="new or empty"):
        write_example(name, tmp_path / "a")


def test_a_missing_package_and_an_unknown_example_are_explained(tmp_path, monkeypatch):
    with pytest.raises(ptn.InputError, match="did you mean 'coins'"):
        write_example("coin", tmp_path / "new")
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(ptn.InputError, match=r"pip install 'ptn\[examples\]'"):
        write_example("coins", tmp_path / "new")
    assert not (tmp_path / "new").exists()
