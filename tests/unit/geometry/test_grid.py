"""PolarGrid: the points of the paper's equation."""

import math

import pytest
import torch

from ptn import InputError, PolarGrid
from ptn.geometry import GridPose, origin_px


@pytest.mark.parametrize(("r_min", "r_max"), [(1.0, None), (0.5, 8.0)])
def test_the_log_grid_is_the_equation_of_the_paper(r_min, r_max):
    x, y = PolarGrid(12, 8, r_min_px=r_min, r_max_px=r_max).offsets_px((28, 20), dtype=torch.float64)
    r_max = r_max or 0.5 * math.hypot(28, 20)
    for row in range(12):
        for column in range(8):
            radius = r_min * (r_max / r_min) ** (column / 8)
            assert x[row, column].item() == pytest.approx(radius * math.cos(2 * math.pi * row / 12))
            assert y[row, column].item() == pytest.approx(radius * math.sin(2 * math.pi * row / 12))


def test_the_linear_law_starts_at_the_origin_and_excludes_r_max():
    radii = PolarGrid(4, 5, law="linear", r_max_px=10).radius_at(torch.arange(5.0), (28, 28))
    assert radii.tolist() == pytest.approx([0, 2, 4, 6, 8])


@pytest.mark.parametrize("r_min_px", [None, 3.0])
@pytest.mark.parametrize("law", ["log", "linear"])
def test_column_at_inverts_radius_at(law, r_min_px):
    grid = PolarGrid(4, 16, law=law, r_min_px=r_min_px)
    assert grid.radius_at(torch.zeros(1), (30, 40)).item() == pytest.approx(grid.inner_radius)
    columns = torch.linspace(0.5, 15.5, 31, dtype=torch.float64)
    assert torch.allclose(grid.column_at(grid.radius_at(columns, (30, 40)), (30, 40)), columns)


@pytest.mark.parametrize("turns", [0, 1, -(10**6), 10**9])
def test_phase_rotates_the_grid_modulo_360_degrees(turns):
    phase = 2 * math.pi * (3 / 8 + turns)
    rotated = PolarGrid(8, 4).offsets_px((28, 28), GridPose(phase))
    for a, b in zip(rotated, PolarGrid(8, 4).offsets_px((28, 28)), strict=True):
        assert torch.allclose(a, b.roll(-3, 0), atol=1e-4)


def test_origin_px_has_pixel_centres_at_integers():
    corner = torch.tensor([[1 / 30 - 1, 1 / 20 - 1], [0.0, 0.0]])
    assert torch.allclose(origin_px(corner, (20, 30)), torch.tensor([[0.0, 0.0], [14.5, 9.5]]), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "options", "word"),
    [
        ((0, 8), {}, "angles"),
        ((8, 2.5), {}, "radii"),
        ((8, 8), {"law": "lin"}, "'linear'"),
        ((8, 8), {"r_min_px": 0.0}, "r_min_px"),
        ((8, 8), {"r_max_px": math.nan}, "r_max_px"),
        ((8, 8), {"r_max_px": 0.5}, "exceed r_min"),
        ((8, 8), {"law": "linear", "r_min_px": -1.0}, "r_min_px"),
        ((8, 8), {"law": "linear", "r_min_px": 9.0, "r_max_px": 8.0}, "exceed r_min"),
        ((8, 8), {"start": math.inf}, "start"),
        ((8, 8), {"sweep": 0.0}, "sweep"),
        ((8, 8), {"sweep": 360}, "radians"),
        ((8, 8), {"aspect": 0.0}, "aspect"),
        ((8, 8), {"tilt": torch.zeros(())}, "tilt"),
        ((8, 8), {"aspect": torch.tensor(0.8)}, "polar_sample"),
        ((8, 8), {"outer_px": (torch.tensor(1.0), 0.0)}, "polar_sample"),
        ((8, 8), {"outer_px": 3.0}, "outer_px"),
        ((8, 8), {"outer_px": (5.0, 5.0), "r_max_px": 8.0}, "inside"),
    ],
)
def test_bad_grids_are_refused(arguments, options, word):
    with pytest.raises(InputError, match=word):
        PolarGrid(*arguments, **options)


def test_an_image_smaller_than_r_min_is_refused():
    with pytest.raises(InputError, match="larger image"):
        PolarGrid(8, 8, r_min_px=30).outer_radius((28, 28))
