"""Sectors, annuli, ellipses, two circles and antialiasing: an independent implementation, gradients, inverse."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ptn import InputError, PolarGrid, PolarTransformer, polar_sample, polar_unsample
from ptn.geometry.grid import cached_points

SECTOR = PolarGrid(9, 7, start=-2.5, sweep=2.0)
ANNULUS = PolarGrid(8, 6, law="linear", r_min_px=3.0, r_max_px=9.0)
ELLIPSE = PolarGrid(10, 7, aspect=0.6, tilt=0.4)
CIRCLES = PolarGrid(11, 6, law="linear", r_min_px=2.0, r_max_px=9.0, outer_px=(3.0, -2.0))
ALL = PolarGrid(
    9, 6, law="log", r_min_px=2.0, r_max_px=9.0, start=1.0, sweep=4.0, aspect=1.3, tilt=-0.8, outer_px=(1.0, 2.0)
)
GRIDS = {"sector": SECTOR, "annulus": ANNULUS, "ellipse": ELLIPSE, "circles": CIRCLES, "all": ALL}


def numpy_points(grid, size, phase, dilation):
    """The points of a grid in pixels from the origin, point by point from the definitions in its documentation."""
    r_min, r_max = grid.inner_radius, grid.outer_radius(size)
    points = np.empty((grid.angles, grid.radii, 2))
    for row in range(grid.angles):
        angle = grid.start + phase + grid.sweep * row / grid.angles
        for column in range(grid.radii):
            share = column / grid.radii
            radius = r_min * (r_max / r_min) ** share if grid.law == "log" else r_min + (r_max - r_min) * share
            outward = (radius - r_min) / (r_max - r_min)  # 0 on the inner circle, 1 on the outer one
            point = np.array([radius * np.cos(angle), radius * np.sin(angle)]) + outward * np.array(grid.outer_px)
            along = np.array([np.cos(grid.tilt), np.sin(grid.tilt)])
            across = np.array([-along[1], along[0]])
            points[row, column] = dilation * ((point @ along) * along + grid.aspect * (point @ across) * across)
    return points


def numpy_bilinear(image, x, y):
    """The value of `image` (H, W) at (x, y) in pixels, zero outside."""
    left, top = math.floor(x), math.floor(y)
    value = 0.0
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            value += (1 - abs(x - column)) * (1 - abs(y - row)) * image[row, column]
    return value


@pytest.mark.parametrize(("phase", "dilation"), [(0.0, 1.0), (0.7, 1.2)])
@pytest.mark.parametrize("name", GRIDS)
def test_values_are_those_of_an_independent_implementation(name, phase, dilation):
    grid, size = GRIDS[name], (23, 19)
    images = torch.rand(2, 1, *size, dtype=torch.float64)
    origin = torch.tensor([[0.1, -0.2], [-0.4, 0.3]], dtype=torch.float64)
    polar = polar_sample(images, origin, grid, phase=phase, dilation=dilation)
    assert (
        polar_sample(images, origin, grid, phase=torch.tensor(phase), dilation=dilation) - polar
    ).abs().max() < 1e-6
    points = numpy_points(grid, size, phase, dilation)
    centers = (origin + 1) * torch.tensor([19 / 2, 23 / 2]) - 0.5
    for image, (x, y), values in zip(images[:, 0].numpy(), centers.tolist(), polar[:, 0], strict=True):
        expected = [[numpy_bilinear(image, x + dx, y + dy) for dx, dy in row] for row in points]
        assert (values - torch.tensor(expected)).abs().max() < 1e-6


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("name", GRIDS)
def test_gradients_of_every_parameter_are_correct(name, antialias):
    grid = replace(GRIDS[name], angles=4, radii=3)
    images = torch.rand(2, 1, 11, 9, dtype=torch.float64, requires_grad=True)
    pose = torch.tensor(
        [[0.03, -0.21, 0.3, 1.1, 0.8, 0.5, 0.4, -0.3], [0.11, 0.17, -1.2, 0.7, 1.3, -1.0, -0.2, 0.5]],
        dtype=torch.float64,
        requires_grad=True,
    )

    def sample(images, pose):
        # bicubic, because bilinear interpolation has kinks
        options = {
            "phase": pose[:, 2],
            "dilation": pose[:, 3],
            "aspect": pose[:, 4],
            "tilt": pose[:, 5],
            "mode": "bicubic",
        }
        return polar_sample(images, pose[:, :2], grid, outer_px=pose[:, 6:], antialias=antialias, **options)

    assert torch.autograd.gradcheck(sample, (images, pose))


@pytest.mark.parametrize("name", GRIDS)
def test_gradients_of_the_inverse_are_correct(name):
    grid = replace(GRIDS[name], angles=4, radii=3)
    polar = torch.rand(2, 1, 4, 3, dtype=torch.float64, requires_grad=True)
    pose = torch.tensor(
        [[0.03, -0.21, 0.8, 0.5, 0.4, -0.3], [0.11, 0.17, 1.3, -1.0, -0.2, 0.5]], dtype=torch.float64
    ).requires_grad_()

    def unsample(polar, pose):
        options = {"aspect": pose[:, 2], "tilt": pose[:, 3], "outer_px": pose[:, 4:], "fill": None}
        return polar_unsample(polar, pose[:, :2], grid, (7, 9), **options)

    assert torch.autograd.gradcheck(unsample, (polar, pose))


def smooth(size):
    """A smooth image (1, 1, size, size) without symmetry, in [0, 1]."""
    span = torch.linspace(-1, 1, size, dtype=torch.float64)
    return (0.5 + 0.25 * torch.sin(3 * span[:, None] + 1) + 0.25 * torch.cos(4 * span[None] - span[:, None]))[
        None, None
    ]


@pytest.mark.parametrize("name", GRIDS)
def test_the_inverse_restores_the_image_inside_the_grid_and_fills_the_rest(name):
    grid = replace(GRIDS[name], angles=256, radii=128, r_min_px=4.0, r_max_px=28.0)
    image, origin = smooth(64), torch.tensor([[0.1, -0.05]], dtype=torch.float64)
    restored = polar_unsample(polar_sample(image, origin, grid), origin, grid, (64, 64), fill=9.0)[0, 0]
    inside = polar_unsample(torch.ones(1, 1, 256, 128).double(), origin, grid, (64, 64))[0, 0] > 0.5
    assert ((restored == 9) == ~inside).all()
    # the share of the square that the grid covers; the log law fills its middle
    area = grid.sweep / 2 * (28**2 - 4**2 * (grid.law == "linear")) * grid.aspect / 64**2
    assert inside.double().mean().item() == pytest.approx(area, rel=0.03)
    y, x = torch.meshgrid(*2 * [torch.arange(64, dtype=torch.float64) - 31.5], indexing="ij")
    beyond_middle = (x - 3.2) ** 2 + (y + 1.6) ** 2 > 8**2
    error = (restored - image[0, 0])[inside & beyond_middle]
    assert -10 * math.log10(error.square().mean().item()) > 45


def test_the_parts_of_a_circle_are_its_rows():
    image, origin = torch.rand(1, 1, 20, 20).double(), torch.tensor([[0.1, 0.2]]).double()
    whole = polar_sample(image, origin, PolarGrid(12, 5))
    for part in range(3):
        sector = PolarGrid(4, 5, start=part * math.pi * 2 / 3, sweep=math.pi * 2 / 3)
        assert not sector.wraps
        assert torch.allclose(polar_sample(image, origin, sector), whole[:, :, 4 * part : 4 * part + 4], atol=1e-12)


def test_a_full_circle_in_float32_is_one():
    grid = PolarGrid(8, 4, sweep=float(np.float32(2 * np.pi)), start=np.float32(0.5))
    assert grid.wraps
    assert grid == PolarGrid(8, 4, start=0.5)
    assert not PolarGrid(8, 4, sweep=2 * np.pi - 1e-5).wraps


def test_numbers_of_numpy_and_lists_are_those_of_python():
    numbers = {"r_min_px": np.float32(3), "r_max_px": np.int64(9), "outer_px": [np.float64(1), 2]}
    grid = PolarGrid(np.int64(8), np.int32(4), **numbers)
    assert grid == PolarGrid(8, 4, r_min_px=3, r_max_px=9.0, outer_px=(1.0, 2.0))
    assert hash(grid) == hash(PolarGrid(8, 4, r_min_px=3, r_max_px=9.0, outer_px=(1.0, 2.0)))


def test_the_apex_of_a_sector_may_be_far_above_the_image():
    """A convex probe: its lines begin 60 px from the apex, which is 50 px above the image."""
    grid = PolarGrid(64, 100, law="linear", r_min_px=60, r_max_px=110, start=1.2, sweep=0.8)
    apex = torch.tensor([[0.0, -1 - 2 * 50 / 40]])
    scan = polar_unsample(torch.ones(1, 1, 64, 100), apex, grid, (40, 60))[0, 0]
    assert scan[5, 30] == 0  # 55.5 px from the apex
    assert scan[12, 30] == 1
    assert (polar_sample(scan[None, None], apex, grid)[0, 0, 32, :60] > 0.9).sum() > 50
    with pytest.raises(InputError, match="pixels"):
        polar_sample(scan[None, None], apex, PolarGrid(8, 4))


def test_a_sector_is_not_interpolated_across_its_ends():
    grid = PolarGrid(8, 4, law="linear", start=math.pi / 2, sweep=math.pi, r_max_px=8)
    polar = torch.arange(8.0)[None, None, :, None].expand(1, 1, 8, 4)
    image = polar_unsample(polar, torch.zeros(1, 2), grid, (17, 17), fill=-1.0)[0, 0]
    assert (image[:, 9:] == -1).all()  # the half with x > 0
    assert image[15, 8] == pytest.approx(0)
    assert image[8, 1] == pytest.approx(4)
    assert image[1, 7] > 6.5  # beyond the last row: no blend with the first
    nearest = polar_unsample(polar, torch.zeros(1, 2), grid, (17, 17), fill=None)[0, 0]
    assert nearest[12, 12] == 0
    assert nearest[4, 12] == 7


def test_the_innermost_and_outermost_rows_of_two_circles_lie_on_them():
    grid = PolarGrid(16, 4, law="linear", r_min_px=3.0, r_max_px=10.0, outer_px=(2.0, 1.0))
    x, y = grid.offsets_px((50, 50), dtype=torch.float64)
    assert torch.allclose(torch.hypot(x[:, 0], y[:, 0]), torch.tensor(3.0).double())
    outer = replace(grid, radii=1, r_min_px=10 - 1e-9, r_max_px=None, outer_px=(0.0, 0.0)).offsets_px((50, 50))
    last = replace(grid, radii=10**6).offsets_px((50, 50), dtype=torch.float64)
    for ours, circle, shift in zip(last, outer, grid.outer_px, strict=True):
        assert torch.allclose(ours[:, -1], circle[:, 0].double() + shift, atol=1e-4)


def test_gradient_descent_fits_an_ellipse():
    """A ring with semi-axes 15 along 0.6 rad and 9 across: its polar image is one bright column."""
    y, x = torch.meshgrid(*2 * [torch.arange(48.0) - 23.5], indexing="ij")
    along, across = x * math.cos(0.6) + y * math.sin(0.6), y * math.cos(0.6) - x * math.sin(0.6)
    ring = torch.exp(-((torch.hypot(along, across / 0.6) - 15) ** 2) / 18)[None, None]
    aspect, tilt = torch.tensor(0.9, requires_grad=True), torch.tensor(0.3, requires_grad=True)
    optimizer = torch.optim.Adam([aspect, tilt], lr=0.02)
    grid = PolarGrid(64, 1, law="linear", r_min_px=15.0)
    for _ in range(300):
        optimizer.zero_grad()
        (-polar_sample(ring, torch.zeros(1, 2), grid, aspect=aspect, tilt=tilt, mode="bicubic").mean()).backward()
        optimizer.step()
    assert aspect.item() == pytest.approx(0.6, abs=0.01)
    assert tilt.item() == pytest.approx(0.6, abs=0.02)


def numpy_area_mean(image, grid, row, column, count=200):
    """The mean of a function over the area of a polar pixel, by many samples."""
    edges = grid.radius_at(torch.tensor([column - 0.5, column + 0.5], dtype=torch.float64), (129, 129)).clamp(min=0)
    radius = edges[0] + (edges[1] - edges[0]) * (torch.arange(count, dtype=torch.float64) + 0.5) / count
    angle = grid.sweep / grid.angles * (row - 0.5 + (torch.arange(count, dtype=torch.float64) + 0.5) / count)
    values = image(radius[:, None] * angle.cos(), radius[:, None] * angle.sin())
    return ((values * radius[:, None]).sum() / (radius.sum() * count)).item()


@pytest.mark.parametrize("law", ["log", "linear"])
def test_antialiasing_is_the_mean_over_the_area(law):
    def wave(x, y):
        return 0.5 + 0.3 * torch.sin(0.5 * x + 0.2 * y) + 0.2 * torch.cos(0.9 * y)

    span = torch.arange(129, dtype=torch.float64) - 64
    image = wave(span[None, :], span[:, None])[None, None]
    grid, origin = PolarGrid(16, 12, law=law, r_max_px=60), torch.zeros(1, 2, dtype=torch.float64)
    smoothed = polar_sample(image, origin, grid, antialias=True)[0, 0]
    for row, column in ((0, 0), (3, 1), (5, 6), (9, 10), (15, 11)):
        assert smoothed[row, column].item() == pytest.approx(numpy_area_mean(wave, grid, row, column), abs=0.02)
    # without it the fine wave folds into the coarse grid
    plain = polar_sample(image, origin, grid)[0, 0]
    assert plain[:, 8:].std() > 2 * smoothed[:, 8:].std()


def test_antialiasing_changes_nothing_where_a_polar_pixel_covers_one_pixel():
    image, origin = torch.rand(1, 1, 16, 16).double(), torch.tensor([[0.2, 0.1]]).double()
    grid = PolarGrid(128, 64, r_max_px=8)
    expected = polar_sample(image, origin, grid)
    assert torch.allclose(polar_sample(image, origin, grid, antialias=True), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["ellipse", "circles"])
def test_antialiasing_of_a_linear_function_is_unbiased(name):
    """The mean of a linear function over a small area is its value in the middle, up to the curvature."""
    span = torch.arange(65, dtype=torch.float64)
    image = ((span[None, :] + 2 * span[:, None]) / 200)[None, None]
    grid = replace(GRIDS[name], angles=48, radii=10, law="linear", r_min_px=6.0, r_max_px=24.0)
    origin = torch.tensor([[0.1, -0.1]], dtype=torch.float64)
    plain, smoothed = (polar_sample(image, origin, grid, antialias=on) for on in (False, True))
    assert 0 < (plain - smoothed).abs().max() < 0.003


def test_too_many_samples_are_refused():
    with pytest.raises(InputError, match="antialias"):
        polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), PolarGrid(2, 2, r_max_px=1e6), antialias=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"aspect": torch.ones(3)}, "aspect"),
        ({"aspect": 0.8}, "number in the grid"),
        ({"aspect": torch.tensor([0.8, 0.0])}, "positive"),
        ({"outer_px": torch.tensor([9.0, 0.0])}, "r_max - r_min"),
        ({"tilt": "0"}, "tilt"),
        ({"outer_px": 1.0}, "outer_px"),
        ({"outer_px": torch.zeros(3, 2)}, "outer_px"),
    ],
)
def test_bad_shapes_and_values_are_refused(options, word):
    with pytest.raises(InputError, match=word):
        polar_sample(torch.rand(2, 1, 9, 9), torch.zeros(2, 2), PolarGrid(4, 4), **options)
    with pytest.raises(InputError, match=word):
        polar_unsample(torch.rand(2, 1, 4, 4), torch.zeros(2, 2), PolarGrid(4, 4), (9, 9), **options)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("options", [{"phase": math.nan}, {"dilation": math.inf}, {"dilation": 10**400}])
def test_numbers_that_are_not_finite_are_refused(options, antialias):
    with pytest.raises(InputError, match=next(iter(options))):
        polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), PolarGrid(4, 4), antialias=antialias, **options)


def test_points_of_equal_grids_are_computed_once():
    image, origin = torch.rand(1, 1, 9, 9), torch.zeros(1, 2)
    polar_sample(image, origin, replace(ALL, tilt=0.123))
    hits = cached_points.cache_info().hits
    polar_sample(image, origin, replace(ALL, tilt=0.123))
    assert cached_points.cache_info().hits == hits + 1


class Round(torch.nn.Module):
    """There and back, with an ellipse per image."""

    def __init__(self, grid, antialias):
        super().__init__()
        self.grid, self.layer = grid, PolarTransformer(grid, antialias=antialias)

    def forward(self, images, aspect):
        polar = self.layer(images) + polar_sample(
            images, torch.zeros_like(images[:, 0, 0, :2]), self.grid, aspect=aspect
        )
        return polar_unsample(polar, torch.zeros_like(images[:, 0, 0, :2]), self.grid, (12, 14))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "antialias"), [("sector", False), ("circles", False), ("all", True)])
def test_exported_and_compiled_it_gives_the_same(name, antialias):
    module, images, aspect = Round(GRIDS[name], antialias), torch.rand(3, 1, 20, 22), torch.rand(3) + 0.6
    expected = module(images, aspect)
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (images[:2], aspect[:2]), dynamic_shapes=({0: batch}, {0: batch}))
    assert torch.allclose(program.module()(images, aspect), expected, atol=1e-5)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(images, aspect), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch.export calls deprecated functions of torch
def test_onnx_gives_the_same(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module, inputs = Round(ALL, True).eval(), (torch.rand(2, 1, 20, 22), torch.tensor([0.8, 1.2]))
    torch.onnx.export(module, inputs, tmp_path / "round.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "round.onnx")
    feed = {node.name: value.numpy() for node, value in zip(session.get_inputs(), inputs, strict=True)}
    assert torch.allclose(torch.from_numpy(session.run(None, feed)[0]), module(*inputs), atol=1e-4)
