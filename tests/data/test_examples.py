"""The example folders: patches of real photographs, their places and poses, what is written, and mistakes."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

import ptn
from ptn.data import examples
from ptn.data.examples import EXAMPLES, photographs, write_example
from ptn.data.examples.photographs import STRIPS, cut_patches


@pytest.fixture
def _small(monkeypatch):
    """Examples of a few images each."""
    pytest.importorskip("skimage", reason="photographs: pip install 'ptn[examples]'")
    for name, example in EXAMPLES.items():
        few = replace(example, counts={"train": 3, "valid": 2, "test": 2})
        monkeypatch.setitem(examples.EXAMPLES, name, few)


def ramp(height=512, width=512):
    """A photograph whose brightness is its column."""
    return (torch.arange(width, dtype=torch.float64) / width).expand(height, width)


def test_patches_come_from_their_strip_and_from_nowhere_else():
    for strip in STRIPS.values():
        patches = cut_patches(ramp(), 50, strip, torch.Generator().manual_seed(0))
        assert patches.shape == (50, 64, 64)
        columns = patches * 512
        assert columns.min() > strip[0] - 1
        assert columns.max() < strip[1] + 1
        assert columns.max() - columns.min() > 0.7 * (strip[1] - strip[0])


def test_patches_are_turned_all_around_and_enlarged():
    patches = cut_patches(ramp(), 200, (0, 512), torch.Generator().manual_seed(0)) * 512
    slope_x = (patches[:, :, 32:] - patches[:, :, :32]).mean(dim=(1, 2)) / 32
    slope_y = (patches[:, 32:] - patches[:, :32]).mean(dim=(1, 2)) / 32
    angle = torch.atan2(slope_y, slope_x)
    assert torch.histc(angle, 8, -math.pi, math.pi).min() > 5
    scale = 1 / torch.hypot(slope_x, slope_y)
    assert scale.min() > 0.97
    assert scale.max() < 2.06
    assert scale.std() > 0.2


def test_the_strips_do_not_touch_and_patches_fit():
    strips = sorted(STRIPS.values())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(strips))
    diagonal = math.sqrt(2) * photographs.SIZE / photographs.SCALES[0]
    assert all(end - start > diagonal + 4 for start, end in strips)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_that_can_be_trained_on_and_repeats(name, tmp_path):
    classes = write_example(name, tmp_path / "a").classes
    write_example(name, tmp_path / "b")
    data = [ptn.load_folder(tmp_path / folder, "train", image_size=64) for folder in "ab"]
    assert torch.equal(data[0].images, data[1].images)
    assert data[0].images.shape == (3 * len(classes), 1, 64, 64)
    assert data[0].classes == classes
    test = ptn.load_folder(tmp_path / "a", "test", image_size=64)
    assert test.labels.tolist() == [label for label in range(len(classes)) for _ in range(2)]
    write_example(name, tmp_path / "c", seed=1)
    assert not torch.equal(ptn.load_folder(tmp_path / "c", "train", image_size=64).images, data[0].images)


@pytest.mark.usefixtures("_small")
def test_what_is_there_is_not_written_over(tmp_path):
    (tmp_path / "mine.png").write_bytes(b"")
    with pytest.raises(ptn.InputError, match="new or empty"):
        write_example("coins", tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_scikit_image_it_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.setattr(photographs.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ptn.InputError, match=r"pip install 'ptn\[examples\]'"):
        write_example(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_example_that_is_not_there_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ptn.InputError, match="did you mean 'coins'"):
        write_example("coin", tmp_path / "new")
