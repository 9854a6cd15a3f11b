"""polar_sample: turns roll it, dilations shift it, gradients flow through it, and every mode agrees."""

import math

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError, PolarGrid, Similarity, polar_sample, similarity_warp
from ptn.geometry import measure_shift, origin_px

MODES = ["bilinear", "bicubic", "nearest"]
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4}


def middle(count, dtype=torch.float32):
    return torch.zeros(count, 2, dtype=dtype)


@given(
    rows=st.integers(0, 40),
    angles=st.integers(1, 24),
    x=st.floats(-1, 1),
    y=st.floats(-1, 1),
    height=st.integers(3, 20),
    width=st.integers(3, 20),
)
@settings(max_examples=40, deadline=None)
def test_rolling_the_angle_axis_is_rotating_the_grid(rows, angles, x, y, height, width):
    images = torch.rand(1, 2, height, width, dtype=torch.float64)
    origin = torch.tensor([[x, y]], dtype=torch.float64)
    grid = PolarGrid(angles, 7)
    turned = polar_sample(images, origin, grid, phase=2 * math.pi * rows / angles)
    assert torch.allclose(turned, polar_sample(images, origin, grid).roll(-rows, 2), atol=1e-9)


@given(columns=st.integers(0, 12), angles=st.integers(1, 12), x=st.floats(-1, 1), y=st.floats(-1, 1))
@settings(max_examples=30, deadline=None)
def test_dilating_the_grid_shifts_the_radius_axis(columns, angles, x, y):
    images = torch.rand(1, 2, 15, 12, dtype=torch.float64)
    origin = torch.tensor([[x, y]], dtype=torch.float64)
    grid = PolarGrid(angles, 16, r_max_px=9)
    larger = polar_sample(images, origin, grid, dilation=9 ** (columns / 16))
    polar = polar_sample(images, origin, grid)
    assert torch.allclose(larger[..., : 16 - columns], polar[..., columns:], atol=1e-9)


def test_gradients_to_phase_and_dilation_are_right():
    images = torch.rand(2, 1, 9, 7, dtype=torch.float64)
    origin = torch.tensor([[0.03, -0.21], [0.31, 0.17]], dtype=torch.float64)
    phase = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    dilation = torch.tensor([1.2, 0.7], dtype=torch.float64, requires_grad=True)
    grid = PolarGrid(5, 4)
    assert torch.autograd.gradcheck(
        lambda p, d: polar_sample(images, origin, grid, phase=p, dilation=d), (phase, dilation)
    )
    one = dilation[:1].detach().clone().squeeze().requires_grad_()  # one number for all
    assert torch.autograd.gradcheck(lambda d: polar_sample(images, origin, grid, dilation=d), (one,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@given(size=st.integers(5, 40), quarter=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_a_quarter_turn_rolls_the_polar_image_by_a_quarter(dtype, mode, size, quarter):
    images = torch.rand(1, 1, size, size, dtype=dtype)
    grid = PolarGrid(4 * quarter, 9)
    polar = polar_sample(images, middle(1, dtype), grid, mode=mode)
    turned = polar_sample(images.rot90(-1, (2, 3)), middle(1, dtype), grid, mode=mode)
    assert torch.allclose(turned, polar.roll(quarter, 2), atol=TOLERANCE[dtype])


def blob(dx, dy):
    """A smooth function of the plane without symmetry, at pixel offsets from its centre."""
    return torch.exp(-((dx - 4) ** 2 + 2 * (dy + 2) ** 2) / 60) + 0.5 * torch.exp(-((dx + 6) ** 2 + dy**2) / 40)


@given(columns=st.integers(-6, 6))
@settings(max_examples=13, deadline=None)
def test_dilation_is_a_shift_along_the_radius_exactly_for_a_function(columns):
    grid = PolarGrid(24, 32)
    step = math.log(grid.outer_radius((64, 64))) / 32
    x, y = grid.offsets_px((64, 64), dtype=torch.float64)
    factor = math.exp(step * columns)
    dilated = blob(x / factor, y / factor)
    start, end = max(0, columns), min(32, 32 + columns)
    assert torch.allclose(dilated[:, start:end], blob(x, y)[:, start - columns : end - columns], atol=1e-12)


@pytest.mark.parametrize("factor", [0.7, 1.3, 1.8, 2.4])
def test_dilation_of_an_image_shifts_it_within_a_tenth_of_a_column(factor):
    span = torch.arange(96, dtype=torch.float64) - 47.5
    image = blob(span[None, :], span[:, None])[None, None]
    grid = PolarGrid(64, 64)
    polar = polar_sample(image, middle(1, torch.float64), grid)
    larger = similarity_warp(image, Similarity(scale=factor), mode="bicubic")
    shift = measure_shift(polar, polar_sample(larger, middle(1, torch.float64), grid))[0]
    theory = 64 * math.log(factor) / math.log(grid.outer_radius((96, 96)))
    assert shift[0].item() == pytest.approx(0, abs=0.05)
    assert shift[1].item() == pytest.approx(theory, abs=0.1)


def test_moving_image_and_origin_together_changes_nothing():
    images = torch.zeros(1, 1, 40, 50)
    images[..., 15:25, 20:30] = torch.rand(10, 10)
    moved = images.roll((6, -9), (2, 3))
    grid = PolarGrid(16, 12, r_max_px=9)
    origin = torch.tensor([[0.02, -0.01]])
    step = torch.tensor([[-9 * 2 / 50, 6 * 2 / 40]])
    assert torch.allclose(polar_sample(images, origin, grid), polar_sample(moved, origin + step, grid), atol=1e-5)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_to_image_and_origin_are_right(mode, padding_mode):
    images = torch.rand(2, 2, 9, 7, dtype=torch.float64, requires_grad=True)
    origin = torch.tensor([[0.03, -0.21], [0.31, 0.17]], dtype=torch.float64, requires_grad=True)
    grid = PolarGrid(5, 4)
    if mode == "nearest":  # a step function of the origin
        inputs, fixed = (images,), (origin.detach(),)
    else:
        inputs, fixed = (images, origin), ()

    def sample(*tensors):
        return polar_sample(*tensors, *fixed, grid, mode=mode, padding_mode=padding_mode)

    assert torch.autograd.gradcheck(sample, inputs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_agrees_with_opencv_on_photographs(photographs, mode):
    """OpenCV rounds positions to 1/32 pixel: half a grey level of 255 on average, 5 at the sharpest edge."""
    grid = PolarGrid(200, 90, law="linear", r_max_px=50)
    polar = polar_sample(photographs, middle(2), grid, mode=mode)
    flag = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}[mode]
    for ours, image in zip(polar, photographs, strict=True):
        # without the last flag OpenCV lets some of what was in memory before shine through
        flags = cv2.WARP_POLAR_LINEAR | flag | cv2.WARP_FILL_OUTLIERS
        theirs = cv2.warpPolar(image.permute(1, 2, 0).numpy(), (90, 200), (79.5, 59.5), 50, flags)
        difference = (ours.permute(1, 2, 0) - torch.from_numpy(theirs)).abs() * 255
        assert difference.mean() < 0.5
        assert difference.max() < 5


def test_log_law_agrees_with_opencv_at_the_papers_points(photographs):
    """`warpPolar`'s own log law has radius exp(kx) - 1, so OpenCV gets our points and reads there."""
    image = photographs[0]
    radius = (0.5 * np.hypot(120, 160)) ** (np.arange(64) / 64)
    angle = 2 * np.pi * np.arange(48)[:, None] / 48
    x, y = 99.5 + radius * np.cos(angle), 49.5 + radius * np.sin(angle)
    theirs = cv2.remap(image.permute(1, 2, 0).numpy(), x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR)
    origin = torch.tensor([[(2 * 99.5 + 1) / 160 - 1, (2 * 49.5 + 1) / 120 - 1]])
    ours = polar_sample(image[None], origin, PolarGrid(48, 64))[0].permute(1, 2, 0)
    difference = (ours - torch.from_numpy(theirs)).abs() * 255
    assert difference.mean() < 0.5
    assert difference.max() < 5


def test_border_padding_repeats_the_edge_and_zeros_do_not():
    images = torch.ones(1, 1, 10, 10)
    grid = PolarGrid(8, 4, r_max_px=40, law="linear")
    assert polar_sample(images, middle(1), grid, padding_mode="border").min() == 1
    assert polar_sample(images, middle(1), grid)[..., -1].max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_images_are_read_with_float32_coordinates(dtype):
    images = torch.rand(2, 3, 200, 300).to(dtype)
    origin = torch.tensor([[0.1, 0.2], [-0.3, 0.05]])
    grid = PolarGrid(32, 32)
    polar = polar_sample(images, origin, grid)
    exact = polar_sample(images.double(), origin.double(), grid)
    assert polar.dtype == dtype
    assert (polar.double() - exact).abs().max() < 2 * torch.finfo(dtype).eps


def test_works_under_autocast():
    images, origin, grid = torch.rand(2, 1, 28, 28), torch.rand(2, 2) * 0.2, PolarGrid(28, 28)
    with torch.autocast("cpu", torch.bfloat16):
        polar = polar_sample(images, origin, grid)
    assert torch.equal(polar, polar_sample(images, origin, grid))


@pytest.mark.parametrize("mode", MODES)
def test_compiled_in_one_graph_it_gives_the_same(mode):
    images, origin, grid = torch.rand(2, 1, 12, 10), torch.rand(2, 2) * 0.2, PolarGrid(8, 6)

    def sample(images, origin):
        return polar_sample(images, origin, grid, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(sample, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(images, origin), sample(images, origin), atol=1e-6)


def test_works_under_vmap_and_its_gradient():
    images, origin, grid = torch.rand(3, 1, 12, 10), torch.rand(3, 2) * 0.2, PolarGrid(8, 6)

    def single(image, point):
        return polar_sample(image[None], point[None], grid)[0]

    assert torch.allclose(torch.vmap(single)(images, origin), polar_sample(images, origin, grid))
    slopes = torch.vmap(torch.func.grad(lambda i, o: single(i, o).sum(), argnums=1))(images, origin)
    origin.requires_grad_()
    polar_sample(images, origin, grid).sum().backward()
    assert torch.allclose(slopes, origin.grad, atol=1e-5)


def test_an_empty_batch_gives_an_empty_batch_and_gradients():
    images = torch.rand(0, 3, 9, 7, requires_grad=True)
    polar = polar_sample(images, middle(0), PolarGrid(8, 6))
    polar.sum().backward()
    assert polar.shape == (0, 3, 8, 6)
    assert images.grad.shape == images.shape


def test_any_number_of_channels_is_sampled_alike():
    images = torch.rand(1, 1, 15, 22).repeat(1, 5, 1, 1)
    polar = polar_sample(images, torch.tensor([[0.2, -0.1]]), PolarGrid(9, 7))
    assert polar.shape == (1, 5, 9, 7)
    assert torch.equal(polar, polar[:, :1].expand_as(polar))


def test_origin_px_has_pixel_centres_at_whole_numbers():
    corner = torch.tensor([[1 / 30 - 1, 1 / 20 - 1], [0.0, 0.0]])
    expected = torch.tensor([[0.0, 0.0], [14.5, 9.5]])
    assert torch.allclose(origin_px(corner, (20, 30)), expected, atol=1e-5)


def test_without_the_check_a_broken_origin_gives_nan_and_spares_the_others():
    origin = torch.tensor([[0.0, 0.0], [math.nan, 0.0]])
    polar = polar_sample(torch.rand(2, 1, 9, 9), origin, PolarGrid(4, 4), check_finite=False)
    assert torch.isfinite(polar[0]).all()
    assert torch.isnan(polar[1]).all()
    for name in ("phase", "dilation"):
        broken = {name: torch.tensor([1.0, math.nan])}
        moved = polar_sample(torch.rand(2, 1, 9, 9), middle(2), PolarGrid(4, 4), **broken)
        assert torch.isfinite(moved[0]).all()
        assert torch.isnan(moved[1]).all()


GRID = PolarGrid(8, 8)


@pytest.mark.parametrize(
    ("images", "origin", "options", "says"),
    [
        (torch.rand(1, 9, 9), middle(1), {}, r"expected a tensor \(N, C, H, W\); got shape \(1, 9, 9\)"),
        (torch.zeros(1, 1, 9, 9, dtype=torch.uint8), middle(1), {}, "divide bytes by 255"),
        (np.zeros((1, 1, 9, 9)), middle(1), {}, "got ndarray"),
        (torch.rand(1, 1, 0, 9), middle(1), {}, "with pixels in it"),
        (torch.rand(2, 1, 9, 9), middle(1), {}, r"origin must have shape \(2, 2\)"),
        (torch.rand(1, 1, 9, 9), torch.zeros(1, 2, dtype=torch.int64), {}, "floating-point tensor"),
        (torch.rand(1, 1, 9, 9), torch.tensor([[math.nan, 0]]), {}, "origin 0 is not finite"),
        (torch.rand(1, 1, 9, 9), torch.tensor([[math.inf, 0]]), {}, "origin 0 is not finite"),
        (torch.rand(1, 1, 9, 9), middle(1), {"mode": "cubic"}, "did you mean 'bicubic'"),
        (torch.rand(1, 1, 9, 9), middle(1), {"padding_mode": "zero"}, "did you mean 'zeros'"),
        (torch.rand(1, 1, 9, 9), middle(1), {"backend": "cuda"}, "unknown backend 'cuda'"),
        (
            torch.rand(1, 1, 9, 9),
            middle(1),
            {"phase": torch.zeros(3)},
            r"phase must be a number or have shape \(1,\)",
        ),
        (
            torch.rand(1, 1, 9, 9),
            middle(1),
            {"dilation": torch.ones(1, 1)},
            "dilation must be a number or have shape",
        ),
        (torch.rand(1, 1, 9, 9), middle(1), {"dilation": math.inf}, "dilation must be finite; got inf"),
        (torch.rand(1, 1, 9, 9), middle(1).to("meta"), {}, "images are on cpu but origin is on meta"),
    ],
)
def test_bad_input_gets_one_clear_line(images, origin, options, says):
    with pytest.raises(InputError, match=says) as caught:
        polar_sample(images, origin, GRID, **options)
    assert "\n" not in str(caught.value)
