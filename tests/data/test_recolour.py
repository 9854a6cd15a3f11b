"""Photographs in another light: exactly what the random numbers say."""

import pytest
import torch

from ptn import InputError
from ptn.data.recolour import NUMBERS, recolour

NAMES = ("light", "spread", "colour", "flip", "right", "down")


def noise(count=1, **changed):
    """Noise that changes nothing, but for the numbers at these places."""
    numbers = torch.full((count, NUMBERS), 0.5)
    for name, value in changed.items():
        numbers[:, NAMES.index(name)] = torch.as_tensor(value)
    return numbers


def test_the_middle_of_the_noise_changes_nothing():
    images = torch.rand(3, 3, 8, 8)
    same = recolour(images, noise(3), brightness=0.4, contrast=0.5, saturation=0.5, invert=0.5)
    assert torch.allclose(same, images, atol=1e-6)


def test_brightness_is_added_and_values_stay_between_black_and_white():
    images = torch.full((2, 1, 4, 4), 0.7)
    out = recolour(images, noise(2, light=[1.0, 0.0]), brightness=0.4)
    assert torch.allclose(out[0], torch.tensor(1.0))
    assert torch.allclose(out[1], torch.tensor(0.3))


def test_contrast_is_about_the_mean_of_the_image():
    images = torch.tensor([0.4, 0.6]).view(1, 1, 1, 2)
    out = recolour(images, noise(spread=1.0), contrast=0.5)
    assert torch.allclose(out.flatten(), torch.tensor([0.35, 0.65]))


def test_without_saturation_colours_become_grey_of_their_own_brightness():
    images = torch.tensor([1.0, 0.5, 0.0]).view(1, 3, 1, 1)
    out = recolour(images, noise(colour=0.0), saturation=1.0)
    assert torch.allclose(out.flatten(), torch.tensor(0.299 + 0.587 / 2))
    assert torch.equal(recolour(images[:, :1], noise(colour=0.0), saturation=1.0), images[:, :1])  # grey already


def test_its_share_of_images_is_inverted():
    images = torch.rand(2, 3, 4, 4)
    out = recolour(images, noise(2, flip=[0.1, 0.9]), invert=0.2)
    assert torch.allclose(out[0], 1 - images[0])
    assert torch.equal(out[1], images[1])


def test_a_square_is_cut_out_of_all_channels_even_across_the_border():
    images = torch.zeros(2, 3, 9, 12)
    out = recolour(images, noise(2, right=[0.5, 0.0], down=[0.5, 0.99]), cutout_px=4)
    expected = torch.zeros(2, 9, 12)
    expected[0, 2:6, 4:8] = 0.5
    expected[1, 6:9, 0:2] = 0.5
    assert torch.equal(out, expected[:, None].expand_as(out))


def test_noise_of_another_shape_is_refused():
    with pytest.raises(InputError, match="noise"):
        recolour(torch.rand(1, 3, 4, 4), torch.rand(1, 4), brightness=0.1)
