"""cylindrical_sample: one polar transform for all slices, with x, y and angles as in images."""

import pytest
import torch

from ptn import InputError, PolarGrid, cylindrical_sample, polar_sample
from ptn.geometry import fold_slices


def test_each_slice_is_the_polar_image_of_that_slice():
    volumes = torch.rand(2, 3, 12, 10, 4)
    axis = torch.tensor([[0.1, -0.3], [0.0, 0.2]])
    grid = PolarGrid(8, 6, law="linear", r_max_px=5)
    cylinder = cylindrical_sample(volumes, axis, grid)
    assert cylinder.shape == (2, 3, 8, 6, 4)
    for z in range(4):
        slices = volumes[..., z].transpose(2, 3)  # rows are y, columns are x
        assert torch.allclose(cylinder[..., z], polar_sample(slices, axis, grid), atol=1e-6)


def test_angle_zero_is_along_x_and_a_quarter_along_y():
    volume = torch.zeros(1, 1, 9, 9, 2)
    volume[0, 0, 7, 4, 0] = 1  # x = +3 from the middle
    volume[0, 0, 4, 7, 1] = 1  # y = +3
    cylinder = cylindrical_sample(volume, torch.zeros(1, 2), PolarGrid(4, 5, law="linear", r_max_px=5))
    assert cylinder[0, 0, 0, 3, 0] == pytest.approx(1, abs=1e-5)
    assert cylinder[0, 0, 1, 3, 1] == pytest.approx(1, abs=1e-5)
    assert cylinder.sum() == pytest.approx(2, abs=1e-4)


def test_a_quarter_rotation_about_z_rolls_the_cylinder():
    volumes = torch.rand(1, 2, 16, 16, 3, dtype=torch.float64)
    grid = PolarGrid(12, 8, law="linear", r_max_px=8)
    axis = torch.zeros(1, 2, dtype=torch.float64)
    rotated = cylindrical_sample(volumes.rot90(1, (2, 3)), axis, grid)
    assert torch.allclose(rotated, cylindrical_sample(volumes, axis, grid).roll(3, 2), atol=1e-9)


def test_gradients_are_correct():
    volumes = torch.rand(1, 1, 6, 7, 2, dtype=torch.float64, requires_grad=True)
    axis = torch.tensor([[0.07, -0.11]], dtype=torch.float64, requires_grad=True)
    grid = PolarGrid(5, 4, law="linear", r_max_px=3.1)
    assert torch.autograd.gradcheck(lambda v, a: cylindrical_sample(v, a, grid), (volumes, axis))


def test_fold_slices_moves_z_into_the_channels():
    volumes = torch.arange(2 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6)
    folded = fold_slices(volumes)
    assert folded.shape == (2, 18, 5, 4)
    assert folded[1, 2 * 6 + 5, 3, 1] == volumes[1, 2, 1, 3, 5]


def test_images_are_refused():
    with pytest.raises(InputError, match=r"\(N, C, X, Y, Z\)"):
        cylindrical_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), PolarGrid(4, 4))
