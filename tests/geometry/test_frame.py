"""frame_before_warp: the polar image of a warped image is one resampling of the image itself."""

import math

import pytest
import torch

from ptn import InputError, PolarGrid, polar_sample, similarity_warp
from ptn.geometry import frame_before_warp, origin_px

GRID = PolarGrid(24, 20, r_max_px=25)
POSE = {
    "rotation": torch.tensor([0.7, -2.5], dtype=torch.float64),
    "scale": torch.tensor([1.4, 0.8], dtype=torch.float64),
    "shift_px": torch.tensor([[3.0, -5.5], [-2.0, 4.0]], dtype=torch.float64),
}
ORIGIN = torch.tensor([[0.1, -0.15], [-0.12, 0.2]], dtype=torch.float64)


def points_px(origin, size, **options):
    dx, dy = GRID.offsets_px(size, dtype=origin.dtype, **options)
    x, y = origin_px(origin, size).unbind(dim=1)
    return x[:, None, None] + dx, y[:, None, None] + dy


@pytest.mark.parametrize("size", [(96, 96), (80, 121)])
def test_its_points_are_those_of_the_warped_image_carried_back(size):
    """Exactly: so a function of the plane, warped or not, is read at the same points."""
    frame = frame_before_warp(ORIGIN, size, **POSE)
    x, y = points_px(frame.origin, size, phase=frame.phase, dilation=frame.dilation)
    middle_x, middle_y = (size[1] - 1) / 2, (size[0] - 1) / 2
    cos, sin = ((POSE["scale"] * turn(POSE["rotation"]))[:, None, None] for turn in (torch.cos, torch.sin))
    dx, dy = x - middle_x, y - middle_y
    forth_x = cos * dx - sin * dy + POSE["shift_px"][:, 0, None, None] + middle_x
    forth_y = sin * dx + cos * dy + POSE["shift_px"][:, 1, None, None] + middle_y
    there_x, there_y = points_px(ORIGIN, size)
    assert torch.allclose(forth_x, there_x, atol=1e-10)
    assert torch.allclose(forth_y, there_y, atol=1e-10)


def test_an_image_that_interpolation_does_not_change_gives_the_same_either_way():
    """A ramp: read between its pixels it is still a ramp, however often."""
    y, x = torch.arange(110, dtype=torch.float64), torch.arange(120, dtype=torch.float64)
    images = (0.3 * x[None, :] - 0.2 * y[:, None] + 7).expand(2, 1, 110, 120)
    twice = polar_sample(similarity_warp(images, **POSE), ORIGIN, GRID)
    frame = frame_before_warp(ORIGIN, (110, 120), **POSE)
    once = polar_sample(images, frame.origin, GRID, phase=frame.phase, dilation=frame.dilation)
    assert torch.allclose(once, twice, atol=1e-9)
    assert once.std() > 1


def test_photographs_give_the_same_polar_image_but_for_interpolation(photographs):
    """Once is sharper than twice; blurred alike, they agree to a grey level of 255 or so."""
    pose = {key: value.float() for key, value in POSE.items()}
    origin, size = ORIGIN.float(), (photographs.shape[-2], photographs.shape[-1])
    blurred = torch.nn.functional.avg_pool2d(photographs, 5, stride=1, padding_mode=2)
    twice = polar_sample(similarity_warp(blurred, **pose, mode="bicubic"), origin, GRID)
    frame = frame_before_warp(origin, size, **pose)
    once = polar_sample(blurred, frame.origin, GRID, phase=frame.phase, dilation=frame.dilation)
    assert (once - twice).abs().mean() * 255 < 1
    elsewhere = polar_sample(blurred, origin, GRID)
    assert (elsewhere - twice).abs().mean() * 255 > 20


def test_numbers_do_for_all_and_gradients_flow():
    origin = ORIGIN.clone().requires_grad_()
    frame = frame_before_warp(origin, (96, 96), rotation=math.pi / 2, scale=2.0)
    assert torch.allclose(frame.origin, torch.stack((ORIGIN[:, 1], -ORIGIN[:, 0]), dim=1) / 2)
    assert torch.equal(frame.dilation, torch.full((2,), 0.5, dtype=torch.float64))
    inputs = (origin, *(value.clone().requires_grad_() for value in POSE.values()))

    def frame_of(origin, rotation, scale, shift):
        return tuple(frame_before_warp(origin, (80, 121), rotation=rotation, scale=scale, shift_px=shift))

    assert torch.autograd.gradcheck(frame_of, inputs)


def test_bad_input_gets_one_clear_line():
    with pytest.raises(InputError, match=r"origin must be a tensor \(N, 2\); got \(2,\)"):
        frame_before_warp(torch.zeros(2), (9, 9))
    with pytest.raises(InputError, match=r"scale must be a number or have shape \(2,\)"):
        frame_before_warp(torch.zeros(2, 2), (9, 9), scale=torch.ones(3))
