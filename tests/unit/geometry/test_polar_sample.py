"""polar_sample, cylindrical_sample: equivariance, agreement with OpenCV, gradients, transforms, refused input."""

import math

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError, PolarGrid, Similarity, cylindrical_sample, polar_sample, similarity_warp
from ptn.geometry import measure_shift

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
def test_rotating_the_grid_rolls_the_angle_axis(rows, angles, x, y, height, width):
    images = torch.rand(1, 2, height, width, dtype=torch.float64)
    origin = torch.tensor([[x, y]], dtype=torch.float64)
    grid = PolarGrid(angles, 7)
    rotated = polar_sample(images, origin, grid, phase=2 * math.pi * rows / angles)
    assert torch.allclose(rotated, polar_sample(images, origin, grid).roll(-rows, 2), atol=1e-9)


@given(columns=st.integers(0, 12), angles=st.integers(1, 12), x=st.floats(-1, 1), y=st.floats(-1, 1))
@settings(max_examples=30, deadline=None)
def test_dilating_the_grid_shifts_the_radius_axis(columns, angles, x, y):
    images = torch.rand(1, 2, 15, 12, dtype=torch.float64)
    origin = torch.tensor([[x, y]], dtype=torch.float64)
    grid = PolarGrid(angles, 16, r_max_px=9)
    larger = polar_sample(images, origin, grid, dilation=9 ** (columns / 16))
    polar = polar_sample(images, origin, grid)
    assert torch.allclose(larger[..., : 16 - columns], polar[..., columns:], atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@given(size=st.integers(5, 40), quarter=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_a_quarter_rotation_rolls_the_polar_image_by_a_quarter(dtype, mode, size, quarter):
    images = torch.rand(1, 1, size, size, dtype=dtype)
    grid = PolarGrid(4 * quarter, 9)
    polar = polar_sample(images, middle(1, dtype), grid, mode=mode)
    rotated = polar_sample(images.rot90(-1, (2, 3)), middle(1, dtype), grid, mode=mode)
    assert torch.allclose(rotated, polar.roll(quarter, 2), atol=TOLERANCE[dtype])


def blob(dx, dy):
    """A smooth function of the plane without symmetry."""
    return torch.exp(-((dx - 4) ** 2 + 2 * (dy + 2) ** 2) / 60) + 0.5 * torch.exp(-((dx + 6) ** 2 + dy**2) / 40)


@pytest.mark.parametrize("factor", [0.7, 1.8])
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
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_gradients_are_correct(mode, padding_mode):
    images = torch.rand(2, 2, 9, 7, dtype=torch.float64, requires_grad=True)
    pose = torch.tensor([[0.03, -0.21, 0.3, 1.2], [0.31, 0.17, -1.2, 0.7]], dtype=torch.float64)
    pose.requires_grad_(mode != "nearest")  # a step function of the pose

    def sample(images, pose):
        options = {"phase": pose[:, 2], "dilation": pose[:, 3], "mode": mode, "padding_mode": padding_mode}
        return polar_sample(images, pose[:, :2], PolarGrid(5, 4), **options)

    assert torch.autograd.gradcheck(sample, (images, pose))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_agrees_with_opencv_on_photographs(photographs, mode):
    """OpenCV rounds positions to 1/32 pixel: half a grey level of 255 on average, 5 at the sharpest edge."""
    grid = PolarGrid(200, 90, law="linear", r_max_px=50)
    polar = polar_sample(photographs, middle(2), grid, mode=mode)
    flag = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}[mode]
    for ours, image in zip(polar, photographs, strict=True):
        # without the last flag OpenCV leaves values outside the image uninitialised
        flags = cv2.WARP_POLAR_LINEAR | flag | cv2.WARP_FILL_OUTLIERS
        theirs = cv2.warpPolar(image.permute(1, 2, 0).numpy(), (90, 200), (79.5, 59.5), 50, flags)
        difference = (ours.permute(1, 2, 0) - torch.from_numpy(theirs)).abs() * 255
        assert difference.mean() < 0.5
        assert difference.max() < 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_images_are_read_with_float32_coordinates(dtype):
    images = torch.rand(2, 3, 200, 300).to(dtype)
    origin = torch.tensor([[0.1, 0.2], [-0.3, 0.05]])
    grid = PolarGrid(32, 32)
    polar = polar_sample(images, origin, grid)
    exact = polar_sample(images.double(), origin.double(), grid)
    assert polar.dtype == dtype
    assert (polar.double() - exact).abs().max() < 2 * torch.finfo(dtype).eps


def test_compiled_in_one_graph_it_gives_the_same():
    images, origin, grid = torch.rand(2, 1, 12, 10), torch.rand(2, 2) * 0.2, PolarGrid(8, 6)

    def sample(images, origin, phase):
        return polar_sample(images, origin, grid, phase=phase)

    torch._dynamo.reset()
    compiled = torch.compile(sample, fullgraph=True, backend="aot_eager")
    for phase in (0.0, 0.3, 40.0):
        assert torch.allclose(compiled(images, origin, phase), sample(images, origin, phase), atol=1e-6)
    assert compiled(images, origin * torch.nan, 0.0).isnan().all()


def test_vmap_and_its_gradient_give_the_same():
    images, origin, grid = torch.rand(3, 1, 12, 10), torch.rand(3, 2) * 0.2, PolarGrid(8, 6)

    def single(image, point):
        return polar_sample(image[None], point[None], grid)[0]

    assert torch.allclose(torch.vmap(single)(images, origin), polar_sample(images, origin, grid))
    grads = torch.vmap(torch.func.grad(lambda i, o: single(i, o).sum(), argnums=1))(images, origin)
    origin.requires_grad_()
    polar_sample(images, origin, grid).sum().backward()
    assert torch.allclose(grads, origin.grad, atol=1e-5)


def test_an_empty_batch_gives_an_empty_batch_and_gradients():
    images = torch.rand(0, 3, 9, 7, requires_grad=True)
    polar = polar_sample(images, middle(0), PolarGrid(8, 6))
    polar.sum().backward()
    assert polar.shape == (0, 3, 8, 6)
    assert images.grad.shape == images.shape


def test_a_non_finite_pose_gives_nan_for_its_image_only():
    broken = torch.tensor([0.1, math.nan])
    for pose in ({"origin": broken[:, None].repeat(1, 2)}, {"phase": broken}, {"dilation": broken}):
        options = {"origin": middle(2), **pose}
        polar = polar_sample(torch.rand(2, 1, 9, 9), grid=PolarGrid(4, 4), **options)
        assert torch.isfinite(polar[0]).all()
        assert torch.isnan(polar[1]).all()


def test_points_cached_in_inference_mode_serve_gradients_later():
    grid = PolarGrid(13, 3)
    with torch.inference_mode():
        polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), grid)
    origin = torch.zeros(1, 2, requires_grad=True)
    polar_sample(torch.rand(1, 1, 9, 9), origin, grid).sum().backward()
    assert origin.grad.abs().sum() > 0


def test_each_slice_of_a_cylinder_is_the_polar_image_of_that_slice():
    volumes = torch.rand(2, 3, 12, 10, 4)
    axis = torch.tensor([[0.1, -0.3], [0.0, 0.2]])
    grid = PolarGrid(8, 6, law="linear", r_max_px=5)
    cylinder = cylindrical_sample(volumes, axis, grid)
    assert cylinder.shape == (2, 3, 8, 6, 4)
    for z in range(4):
        slices = volumes[..., z].transpose(2, 3)  # rows are y, columns are x
        assert torch.allclose(cylinder[..., z], polar_sample(slices, axis, grid), atol=1e-6)


ONE, TWO = torch.rand(1, 1, 9, 9), torch.rand(2, 1, 9, 9)


@pytest.mark.parametrize(
    ("images", "origin", "options", "word"),
    [
        (torch.rand(1, 9, 9), middle(1), {}, r"got shape \(1, 9, 9\)"),
        (torch.zeros(1, 1, 9, 9, dtype=torch.uint8), middle(1), {}, "divide bytes by 255"),
        (255 * torch.rand(1, 3, 99, 80), middle(1), {}, "divide them by 255"),
        (np.zeros((1, 1, 9, 9)), middle(1), {}, "ndarray"),
        (torch.rand(1, 1, 0, 9), middle(1), {}, "empty"),
        (TWO, middle(1), {}, r"\(2, 2\)"),
        (ONE, (0, 0), {}, "tuple"),
        (TWO, torch.tensor([[0, 0], [4.0, 4.0]]), {}, "pixels"),
        (ONE, middle(1), {"mode": "cubic"}, "'bicubic'"),
        (ONE, middle(1), {"backend": "cuda"}, "backend"),
        (ONE, middle(1), {"dilation": math.inf}, "dilation"),
        (ONE, middle(1).to("meta"), {}, "meta"),
    ],
)
def test_bad_input_is_refused(images, origin, options, word):
    with pytest.raises(InputError, match=word):
        polar_sample(images, origin, PolarGrid(8, 8), **options)


def test_normalized_images_and_feature_maps_are_not_taken_for_bytes():
    for images in (60 * torch.randn(1, 3, 9, 9), 200 * torch.rand(1, 8, 9, 9), torch.full((1, 1, 9, 9), math.nan)):
        polar_sample(images, middle(1), PolarGrid(8, 8))
