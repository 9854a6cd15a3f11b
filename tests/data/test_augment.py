"""Augmentation: exactly what the random numbers say, for images and volumes."""

import math

import pytest
import torch

from ptn import similarity_warp
from ptn.data.augment import augment


def test_the_middle_of_the_noise_changes_nothing():
    images = torch.rand(2, 1, 9, 9)
    noise = torch.full((2, 4), 0.5)
    same = augment(images, noise, rotation_deg=180, scale=(0.5, 2), shift_px=3)
    assert torch.allclose(same, images, atol=1e-5)


def test_noise_is_turn_log_scale_and_shift():
    images = torch.rand(1, 2, 16, 16)
    noise = torch.tensor([[1.0, 0.25, 0.0, 0.75]])
    out = augment(images, noise, rotation_deg=90, scale=(0.5, 2.0), shift_px=4, interpolation="bicubic")
    expected = similarity_warp(
        images,
        rotation=math.pi / 2,
        scale=2**-0.5,
        shift_px=torch.tensor([[-4.0, 2.0]]),
        interpolation="bicubic",
    )
    assert torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_a_half_turn_is_exact(interpolation):
    images = torch.rand(1, 1, 10, 10)
    noise = torch.tensor([[1.0, 0.5, 0.5, 0.5]])
    out = augment(images, noise, rotation_deg=180, interpolation=interpolation)
    assert torch.allclose(out, images.rot90(2, (2, 3)), atol=1e-4)


def test_volumes_turn_about_z():
    volumes = torch.rand(1, 1, 8, 8, 3)
    noise = torch.tensor([[1.0, 0.5, 0.5, 0.5]])
    out = augment(volumes, noise, rotation_deg=90)
    assert torch.allclose(out, volumes.rot90(1, (2, 3)), atol=1e-5)
