"""PolarGrid is the paper's equations to the letter."""

import math

import pytest
import torch

from ptn import InputError, PolarGrid


def test_default_grid_is_the_papers_equation():
    x, y = PolarGrid(12, 8).offsets_px((28, 20), dtype=torch.float64)
    r = 0.5 * math.hypot(28, 20)
    for row in range(12):
        for column in range(8):
            radius = r ** (column / 8)
            assert x[row, column].item() == pytest.approx(radius * math.cos(2 * math.pi * row / 12))
            assert y[row, column].item() == pytest.approx(radius * math.sin(2 * math.pi * row / 12))


def test_r_min_scales_the_exponential():
    grid = PolarGrid(4, 10, r_min_px=0.5, r_max_px=8)
    radii = grid.radius_at(torch.arange(10.0), (28, 28))
    expected = [0.5 * 16 ** (i / 10) for i in range(10)]
    assert radii.tolist() == pytest.approx(expected)


def test_linear_law_starts_at_the_origin_and_excludes_r_max():
    radii = PolarGrid(4, 5, law="linear", r_max_px=10).radius_at(torch.arange(5.0), (28, 28))
    assert radii.tolist() == pytest.approx([0, 2, 4, 6, 8])


@pytest.mark.parametrize("law", ["log", "linear"])
def test_column_at_inverts_radius_at(law):
    grid = PolarGrid(4, 16, law=law)
    columns = torch.linspace(0.5, 15.5, 31, dtype=torch.float64)
    assert torch.allclose(grid.column_at(grid.radius_at(columns, (30, 40)), (30, 40)), columns)


def test_phase_turns_the_grid():
    turned = PolarGrid(8, 4).offsets_px((28, 28), phase=2 * math.pi * 3 / 8, dtype=torch.float64)
    plain = PolarGrid(8, 4).offsets_px((28, 28), dtype=torch.float64)
    for a, b in zip(turned, plain, strict=True):
        assert torch.allclose(a, b.roll(-3, 0))


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((0, 8), {}, "angles must be a whole number of at least 1; got 0"),
        ((8, -1), {}, "radii must be a whole number"),
        ((8, 2.5), {}, "radii must be a whole number"),
        ((True, 8), {}, "angles must be a whole number"),
        ((8, 8), {"law": "lin"}, "did you mean 'linear'"),
        ((8, 8), {"r_min_px": 0.0}, "r_min_px must be a positive number"),
        ((8, 8), {"r_max_px": math.nan}, "r_max_px must be a positive number"),
        ((8, 8), {"r_max_px": 0.5}, "must exceed r_min"),
        ((8, 8), {"law": "linear", "r_min_px": 2.0}, "starts at radius 0"),
    ],
)
def test_bad_grids_say_what_is_wrong(arguments, options, says):
    with pytest.raises(InputError, match=says):
        PolarGrid(*arguments, **options)


def test_an_image_smaller_than_r_min_says_so():
    with pytest.raises(InputError, match="use a larger image or a smaller r_min_px"):
        PolarGrid(8, 8, r_min_px=30).outer_radius((28, 28))
