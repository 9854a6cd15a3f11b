"""Augmentation: exactly what the random numbers say, for images and volumes."""

import math

import pytest
import torch

from ptn import InputError, Similarity, similarity_warp
from ptn.data.augment import augment, noise_per_image


def test_the_middle_of_the_noise_changes_nothing():
    images = torch.rand(2, 1, 9, 9)
    noise = torch.full((2, 4), 0.5)
    same = augment(images, noise, rotation_deg=180, scale=(0.5, 2), shift_px=3)
    assert torch.allclose(same, images, atol=1e-5)


def test_noise_is_turn_log_scale_and_shift():
    images = torch.rand(1, 2, 16, 16)
    noise = torch.tensor([[1.0, 0.25, 0.0, 0.75]])
    out = augment(images, noise, rotation_deg=90, scale=(0.5, 2.0), shift_px=4, mode="bicubic")
    expected = similarity_warp(
        images,
        Similarity(math.pi / 2, 2**-0.5, (-4.0, 2.0)),
        mode="bicubic",
    )
    assert torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_a_half_turn_is_exact(mode):
    images = torch.rand(1, 1, 10, 10)
    noise = torch.tensor([[1.0, 0.5, 0.5, 0.5]])
    out = augment(images, noise, rotation_deg=180, mode=mode)
    assert torch.allclose(out, images.rot90(2, (2, 3)), atol=1e-4)


def test_volumes_turn_about_z():
    volumes = torch.rand(1, 1, 8, 8, 3)
    noise = torch.tensor([[1.0, 0.5, 0.5, 0.5]])
    out = augment(volumes, noise, rotation_deg=90)
    assert torch.allclose(out, volumes.rot90(1, (2, 3)), atol=1e-5)


def neutral(*shape, **changed):
    """Noise that changes nothing, but for the numbers at these places: turn, size, right, down, flip, depth, up."""
    names = ("turn", "size", "right", "down", "flip", "depth", "up")
    noise = torch.full(shape, 0.5)
    for name, value in changed.items():
        noise[:, names.index(name)] = value
    return noise


def test_every_other_image_is_mirrored_along_x():
    noise = torch.cat((neutral(1, 7, flip=0.2), neutral(1, 7, flip=0.7)))
    for shape, axis in (((2, 3, 5, 6), 3), ((2, 2, 6, 5, 4), 2)):
        images = torch.rand(shape)
        out = augment(images, noise, mirror=True)
        assert torch.allclose(out[:1], images[:1].flip(axis), atol=1e-5)
        assert torch.allclose(out[1:], images[1:], atol=1e-5)


def test_volumes_are_scaled_and_moved_along_z():
    z = torch.arange(33.0) - 16
    volumes = torch.exp(-((z - 2) ** 2) / 18).expand(1, 1, 4, 4, 33)
    out = augment(volumes, neutral(1, 7, depth=1.0, up=0.0), z_scale=(0.8, 1.25), z_shift_px=3)
    expected = torch.exp(-(((z + 3) / 1.25 - 2) ** 2) / 18)
    assert torch.allclose(out[0, 0, 1, 1], expected, atol=0.02)
    still = augment(volumes, neutral(1, 7), z_scale=(0.8, 1.25), z_shift_px=3)
    assert torch.allclose(still, volumes, atol=1e-5)


def test_what_moves_out_along_z_is_gone_and_nothing_comes_in():
    volumes = torch.ones(1, 1, 2, 2, 8)
    out = augment(volumes, neutral(1, 7, up=1.0), z_shift_px=3)
    assert torch.allclose(out[0, 0, 0, 0], torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 1]))


def test_images_are_stretched_along_x_alone():
    x, y = torch.arange(33.0) - 16, torch.arange(9.0)[:, None]
    images = (torch.exp(-((x - 2) ** 2) / 18) * (1 + y)).expand(1, 1, 9, 33)
    out = augment(images, neutral(1, 7, depth=1.0), stretch=(0.8, 1.25), mode="bicubic")
    expected = torch.exp(-((x / 1.25 - 2) ** 2) / 18) * (1 + y)
    assert float(((out[0, 0] - expected) / (1 + y)).abs().max()) < 0.02
    still = augment(images, neutral(1, 7), stretch=(0.8, 1.25), mode="bicubic")
    assert torch.allclose(still, images, atol=1e-5)
    with pytest.raises(InputError, match="only images can be stretched"):
        augment(torch.rand(1, 1, 8, 8, 8), neutral(1, 7), stretch=(0.8, 1.25))


def test_stretching_reads_between_pixels_as_bicubic_interpolation_does():
    images = torch.rand(1, 1, 4, 12)
    out = augment(images, neutral(1, 7, depth=1.0), stretch=(1.0, 2.0), mode="bicubic")
    wide = torch.nn.functional.interpolate(images, size=(4, 24), mode="bicubic", align_corners=False)
    assert torch.allclose(out[..., 1:-1], wide[..., 7:17], atol=1e-5)


def test_images_have_no_z():
    with pytest.raises(InputError, match="only volumes can be scaled and moved along z"):
        augment(torch.rand(1, 1, 8, 8), neutral(1, 7), z_shift_px=1)


def test_jitter_leaves_out_its_share_of_voxels_in_all_channels_at_once():
    volumes = torch.ones(2, 2, 16, 16, 16)
    count = noise_per_image(volumes.shape[1:], jitter=0.3)
    assert count == 7 + 16**3
    noise = torch.cat((neutral(2, 7), torch.rand(2, 16**3)), dim=1)
    out = augment(volumes, noise, jitter=0.3)
    assert torch.equal(out[:, 0], out[:, 1])
    assert 0.27 < float((out < 0.5).float().mean()) < 0.33
    assert torch.allclose(out[0, 0], (noise[0, 7:] >= 0.3).float().view(16, 16, 16), atol=1e-4)


def test_only_what_is_asked_for_takes_random_numbers():
    shape = (2, 8, 8, 8)
    assert noise_per_image(shape) == 4
    assert noise_per_image(shape, mirror=True) == noise_per_image(shape, z_shift_px=1.0) == 7
    assert noise_per_image((1, 8, 8), stretch=(0.9, 1.1)) == 7
    assert noise_per_image(shape, z_scale=(0.9, 1.1), jitter=0.1) == 7 + 512
