"""polar_unsample inverts polar_sample: a stated PSNR, no seam, `fill` outside."""

import math

import pytest
import torch

from ptn import InputError, PolarGrid, polar_sample, polar_unsample


def band_limited(size, period_px):
    """Smooth random images (4, 2, size, size) in [0, 1] without detail finer than `period_px`."""
    side = max(3, round(2 * size / period_px))
    images = torch.nn.functional.interpolate(torch.rand(4, 2, side, side).double(), (size, size), mode="bicubic")
    return images.clamp(0, 1)


@pytest.mark.parametrize(("law", "decibels"), [("log", 38), ("linear", 42)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_it_restores_band_limited_images(law, decibels, mode):
    images = band_limited(64, period_px=16)
    origin = torch.tensor([[0.0, 0.0], [0.1, -0.2], [0.015625, 0.015625], [-0.3, 0.3]], dtype=torch.float64)
    grid = PolarGrid(256, 128, r_max_px=64, law=law)
    polar = polar_sample(images, origin, grid, padding_mode="border", mode=mode)
    restored = polar_unsample(polar, origin, grid, (64, 64), mode=mode)
    assert -10 * math.log10((restored - images).square().mean().item()) > decibels


def test_a_polar_image_that_varies_along_the_seam_is_continuous():
    grid = PolarGrid(16, 8, r_max_px=20)
    rows = torch.cos(2 * math.pi * torch.arange(16, dtype=torch.float64) / 16)
    polar = rows[None, None, :, None].expand(1, 1, 16, 8)
    image = polar_unsample(polar, torch.zeros(1, 2, dtype=torch.float64), grid, (41, 41))[0, 0]
    assert (image[19, 30:38] - image[21, 30:38]).abs().max() < 1e-6
    assert (image[20, 30:38] - 1).abs().max() < 1e-6


def test_outside_r_max_is_fill():
    grid = PolarGrid(8, 8, r_max_px=6)
    image = polar_unsample(torch.ones(1, 1, 8, 8), torch.zeros(1, 2), grid, (20, 20), fill=0.25)[0, 0]
    y, x = torch.meshgrid(torch.arange(20) - 9.5, torch.arange(20) - 9.5, indexing="ij")
    inside = x**2 + y**2 <= 36
    assert torch.allclose(image[inside], torch.tensor(1.0))
    assert (image[~inside] == 0.25).all()


def test_inside_r_min_it_blends_to_the_mean_of_the_innermost_circle():
    grid = PolarGrid(16, 8, r_min_px=8.0, r_max_px=20)
    polar = torch.arange(16, dtype=torch.float64)[None, None, :, None].expand(1, 1, 16, 8)
    image = polar_unsample(polar, torch.zeros(1, 2, dtype=torch.float64), grid, (41, 41))[0, 0]
    assert image[20, 20].item() == pytest.approx(7.5)
    assert image[24, 20].item() == pytest.approx((4 + 7.5) / 2)  # half way along the ray of row 4
    assert image[28, 20].item() == pytest.approx(4)


def test_gradients_are_correct_and_finite_at_an_origin_on_a_pixel():
    grid = PolarGrid(6, 5)
    polar = torch.rand(1, 1, 6, 5, dtype=torch.float64, requires_grad=True)
    origin = torch.tensor([[0.13, -0.21]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p, o: polar_unsample(p, o, grid, (7, 9)), (polar, origin))
    on_pixel = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    polar_unsample(polar, on_pixel, grid, (7, 7)).sum().backward()
    assert torch.isfinite(on_pixel.grad).all()
    assert torch.isfinite(polar.grad).all()


def test_a_polar_image_of_another_grid_is_refused():
    with pytest.raises(InputError, match="grid is"):
        polar_unsample(torch.ones(1, 1, 8, 8), torch.zeros(1, 2), PolarGrid(8, 9), (20, 20))
