"""Real images to try things out on."""

import pytest
import torch

from ptn.models.sample_images import sample_images, sheet_of_digits


def test_the_sheet_has_digits_on_black():
    sheet = sheet_of_digits()
    assert sheet.shape == (1, 140, 140)
    assert float(sheet.max()) == 1
    assert 0.7 < float((sheet == 0).float().mean()) < 0.9
    tiles = sheet[0].unfold(0, 28, 28).unfold(1, 28, 28).reshape(25, -1)
    assert len(tiles.unique(dim=0)) == 25


@pytest.mark.parametrize("shape", [(1, 20, 20), (3, 24, 40), (3, 200, 120), (5, 16, 16), (1, 12, 14, 16)])
def test_patches_have_the_shape_that_was_asked_for(shape):
    patches = sample_images(shape, 4)
    assert patches.shape == (4, *shape)
    assert 0 <= patches.min() < patches.max() <= 1
    assert len({float(patch.mean()) for patch in patches}) == 4
    assert torch.equal(patches, sample_images(shape, 4))
    assert not torch.equal(patches, sample_images(shape, 4, seed=1))


def test_a_relief_is_filled_from_below():
    volumes = sample_images((1, 12, 14, 16), 2)
    assert set(volumes.unique().tolist()) == {0.0, 1.0}
    assert (volumes[..., 1:] <= volumes[..., :-1]).all()
