"""similarity_warp: the direction, centre and composition of turns, scales and shifts."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError, PolarGrid, Similarity, polar_sample, similarity_warp
from ptn.geometry import measure_shift

MODES = ["nearest", "bilinear", "bicubic"]


@pytest.mark.parametrize("mode", MODES)
def test_the_identity_changes_nothing(mode):
    images = torch.rand(2, 3, 11, 14)
    assert torch.allclose(similarity_warp(images, Similarity(), mode=mode), images, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_quarter_turns_are_exact_and_carry_x_to_y(mode, quarters):
    images = torch.rand(2, 1, 12, 12)
    turned = similarity_warp(images, Similarity(quarters * math.pi / 2), mode=mode)
    assert torch.allclose(turned, images.rot90(-quarters, (2, 3)), atol=1e-4)


@given(x=st.integers(-5, 5), y=st.integers(-5, 5))
@settings(max_examples=20, deadline=None)
def test_whole_pixel_shifts_move_pixels(x, y):
    images = torch.zeros(1, 1, 20, 24)
    images[..., 6:12, 7:15] = torch.rand(6, 8)
    shifted = similarity_warp(images, Similarity(shift_px=(float(x), float(y))))
    assert torch.allclose(shifted, images.roll((y, x), (2, 3)), atol=1e-5)


def test_a_point_lands_where_the_formula_says():
    """p -> scale·R·p + shift, measured from the middle of the input and of the larger output."""
    images = torch.zeros(1, 1, 21, 21, dtype=torch.float64)
    span = torch.arange(21, dtype=torch.float64) - 10
    images[0, 0] = torch.exp(-((span[None] - 5) ** 2 + (span[:, None] + 3) ** 2) / 2)
    angle, scale, shift = 0.7, 1.9, torch.tensor([[4.0, -6.0]], dtype=torch.float64)
    out = similarity_warp(images, Similarity(angle, scale, shift), size=(61, 71))[0, 0]
    mass = out / out.sum()
    x = (mass.sum(0) * (torch.arange(71) - 35)).sum().item()
    y = (mass.sum(1) * (torch.arange(61) - 30)).sum().item()
    assert x == pytest.approx(scale * (5 * math.cos(angle) + 3 * math.sin(angle)) + 4, abs=0.02)
    assert y == pytest.approx(scale * (5 * math.sin(angle) - 3 * math.cos(angle)) - 6, abs=0.02)


def test_each_image_gets_its_own_parameters():
    images = torch.rand(3, 1, 10, 10)
    angles, scales = torch.tensor([0.3, 1.0, -2.0]), torch.tensor([0.8, 1.0, 1.3])
    together = similarity_warp(images, Similarity(angles, scales))
    for i in range(3):
        alone = similarity_warp(images[i : i + 1], Similarity(float(angles[i]), float(scales[i])))
        assert torch.allclose(together[i : i + 1], alone, atol=1e-5)


def test_turning_an_image_rolls_its_polar_image_downwards():
    span = torch.arange(64, dtype=torch.float64) - 31.5
    image = torch.exp(-((span[None] - 9) ** 2 + (span[:, None] - 4) ** 2) / 40)[None, None]
    grid = PolarGrid(72, 32)
    origin = torch.zeros(1, 2, dtype=torch.float64)
    turned = similarity_warp(image, Similarity(math.radians(35)), mode="bicubic")
    shift = measure_shift(polar_sample(image, origin, grid), polar_sample(turned, origin, grid))[0]
    assert shift[0].item() == pytest.approx(7, abs=0.05)
    assert shift[1].item() == pytest.approx(0, abs=0.05)


def test_parameters_have_gradients():
    images = torch.rand(2, 1, 7, 8, dtype=torch.float64, requires_grad=True)
    rotation = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([1.1, 0.9], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.2, 0.3], [-0.4, 0.1]], dtype=torch.float64, requires_grad=True)

    def warp(i, r, s, t):
        return similarity_warp(i, Similarity(r, s, t), size=(6, 5))

    assert torch.autograd.gradcheck(warp, (images, rotation, scale, shift))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_a_broken_parameter_gives_nan_and_spares_the_others(mode, padding_mode):
    options = {"mode": mode, "padding_mode": padding_mode}
    nan = torch.tensor([0.0, math.nan])
    for parameters in ({"rotation": nan}, {"scale": 1 + nan}, {"shift_px": torch.stack((nan, nan), 1)}):
        warped = similarity_warp(torch.rand(2, 1, 6, 6), Similarity(**parameters), **options)
        assert torch.isfinite(warped[0]).all()
        assert torch.isnan(warped[1]).all()


def test_nothing_is_left_at_scale_zero():
    with pytest.raises(InputError, match="scale must not be 0"):
        similarity_warp(torch.rand(1, 1, 5, 5), Similarity(scale=0.0))


@pytest.mark.parametrize("size", [5, (5,), (0, 5), (5.0, 5)])
def test_a_size_is_a_pair_of_whole_numbers(size):
    with pytest.raises(InputError, match="size must be"):
        similarity_warp(torch.rand(1, 1, 5, 5), Similarity(), size=size)


def test_parameters_of_the_wrong_shape_are_named():
    with pytest.raises(InputError, match=r"rotation must be a number or have shape \(2,\); got \(3,\)"):
        similarity_warp(torch.rand(2, 1, 5, 5), Similarity(torch.zeros(3)))


def test_every_slice_of_a_volume_is_warped_like_an_image():
    volumes = torch.rand(2, 3, 10, 8, 4)
    angle = torch.tensor([0.4, -1.1])
    warped = similarity_warp(volumes, Similarity(angle), size=(6, 9))
    assert warped.shape == (2, 3, 9, 6, 4)
    for z in range(4):
        image = similarity_warp(volumes[..., z].transpose(2, 3), Similarity(angle), size=(6, 9))
        assert torch.allclose(warped[..., z].transpose(2, 3), image, atol=1e-6)
