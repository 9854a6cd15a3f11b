"""The images that come with the package."""

import pytest
import torch

from ptn.models.photograph import photograph, photograph_patches


def test_the_photograph_is_one():
    picture = photograph()
    assert picture.shape == (3, 128, 128)
    assert picture.min() < 0.2
    assert picture.max() > 0.8
    assert (picture[0] - picture[2]).abs().mean() > 0.05  # it has colours
    # and neighbouring pixels are alike, as in the world and not as in noise
    assert (picture[..., 1:] - picture[..., :-1]).abs().mean() < 0.3 * picture.std()


@pytest.mark.parametrize("shape", [(1, 20, 20), (3, 24, 40), (3, 200, 120), (5, 16, 16), (1, 12, 14, 16)])
def test_patches_have_the_shape_that_was_asked_for(shape):
    patches = photograph_patches(shape, 4)
    assert patches.shape == (4, *shape)
    assert 0 <= patches.min() < patches.max() <= 1
    assert len({float(patch.mean()) for patch in patches}) == 4
    assert torch.equal(patches, photograph_patches(shape, 4))
    assert not torch.equal(patches, photograph_patches(shape, 4, seed=1))


def test_a_relief_is_filled_from_below():
    volumes = photograph_patches((1, 12, 14, 16), 2)
    assert set(volumes.unique().tolist()) == {0.0, 1.0}
    assert (volumes[..., 1:] <= volumes[..., :-1]).all()
