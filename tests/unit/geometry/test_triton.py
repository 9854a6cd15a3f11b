"""The Triton backend: the values and gradients of torch in float64, compilation, choice of the backend.

Without a GPU the kernels run in Triton's interpreter.
"""

import math
import subprocess
import sys

import pytest
import torch

from ptn import InputError, PolarGrid, Similarity, cylindrical_sample, polar_sample, similarity_warp
from ptn.geometry import affine_warp
from ptn.geometry import sample as module
from ptn.geometry.grid import GridPose

pytest.importorskip("triton")

from ptn.geometry import triton_ops

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODES = ["nearest", "bilinear", "bicubic"]
GRID = PolarGrid(7, 6)
POINTS = triton_ops.Points("log", 7, 6, 1.0, 0.4, "bilinear", "zeros")


def random(*shape):
    return torch.rand(*shape, device=DEVICE)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("law", ["log", "linear"])
def test_polar_sampling_has_the_values_and_gradients_of_float64(kernels_agree, law, mode, padding_mode):
    """One origin inside the image and one outside; gradients of images, origin, phase and dilation."""
    grid = PolarGrid(7, 6, law=law)

    def sample(images, origin, phase, dilation, backend):
        options = {"phase": phase, "dilation": dilation, "mode": mode, "padding_mode": padding_mode}
        return polar_sample(images, origin, grid, **options, backend=backend)

    origin = torch.tensor([[0.13, -0.24], [1.21, -0.37]])
    kernels_agree(sample, torch.rand(2, 2, 13, 10), origin, torch.tensor([0.4, -7.0]), torch.tensor([1.3, 0.6]))


OTHER_GRIDS = {
    "sector": PolarGrid(7, 6, start=0.7, sweep=2.1),
    "annulus": PolarGrid(7, 6, law="linear", r_min_px=2.0, r_max_px=6.0),
    "ellipse": PolarGrid(7, 6, aspect=0.6, tilt=0.5),
    "two circles": PolarGrid(7, 6, law="linear", r_min_px=2.0, r_max_px=6.0, outer_px=(1.5, -1.0), sweep=4.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("name", OTHER_GRIDS)
def test_other_grids_have_the_values_and_gradients_of_float64(kernels_agree, name, antialias):
    def sample(images, origin, phase, dilation, backend):
        options = {"phase": phase, "dilation": dilation, "antialias": antialias, "backend": backend}
        return polar_sample(images, origin, OTHER_GRIDS[name], **options)

    origin = torch.tensor([[0.13, -0.24], [1.21, -0.37]])
    kernels_agree(sample, torch.rand(2, 2, 13, 10), origin, torch.tensor([0.4, -7.0]), torch.tensor([1.3, 0.6]))


@pytest.mark.parametrize("channels", [1, 5, 18])
def test_ellipses_and_circles_per_image_have_the_values_and_gradients_of_float64(kernels_agree, channels):
    def sample(images, origin, aspect, tilt, outer_px, backend):
        options = {"aspect": aspect, "tilt": tilt, "outer_px": outer_px, "backend": backend}
        return polar_sample(images, origin, PolarGrid(9, 10, r_min_px=2.0), **options)

    shape = torch.tensor([0.7, 1.4]), torch.tensor([0.3, -1.0]), torch.tensor([[0.5, -1.0], [1.0, 0.7]])
    kernels_agree(sample, LAYOUTS["channels last"](channels), torch.tensor([[0.1, -0.2], [0.3, 0.15]]), *shape)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
def test_similarity_warps_have_the_values_and_gradients_of_float64(kernels_agree, mode, padding_mode):
    def warp(images, rotation, scale, shift, backend):
        pose, size = Similarity(rotation, scale, shift), (6, 8)
        return similarity_warp(images, pose, size=size, mode=mode, padding_mode=padding_mode, backend=backend)

    rotation, scale = torch.tensor([0.4, -2.0]), torch.tensor([1.3, -0.6])
    kernels_agree(warp, torch.rand(2, 1, 9, 11), rotation, scale, torch.tensor([[0.3, -1.7], [2.2, 0.9]]))


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
def test_affine_warps_have_the_values_and_gradients_of_float64(kernels_agree, mode, padding_mode):
    matrix = torch.tensor(
        [[[0.91, -0.43, 0.317], [0.64, 1.23, -1.718]], [[-0.53, 0.11, 2.237], [0.21, 0.74, 0.923]]]
    )
    options = {"size": (6, 8), "mode": mode, "padding_mode": padding_mode}
    kernels_agree(
        lambda i, m, backend: affine_warp(i, m, **options, backend=backend), torch.rand(2, 3, 9, 11), matrix
    )


@pytest.mark.parametrize(("angles", "radii"), [(1, 9), (5, 16), (33, 1), (33, 9)])
def test_any_number_of_angles_and_radii(kernels_agree, angles, radii):
    grid = PolarGrid(angles, radii)
    origin = torch.tensor([[0.1, -0.2]])
    kernels_agree(lambda i, o, backend: polar_sample(i, o, grid, backend=backend), torch.rand(1, 1, 12, 17), origin)


LAYOUTS = {
    "contiguous": lambda channels: torch.rand(2, channels, 9, 8),
    "channels last": lambda channels: torch.rand(2, 9, 8, channels).permute(0, 3, 1, 2),
    "strided": lambda channels: torch.rand(2, 2 * channels, 12, 20)[:, ::2, 1:10, 3:19:2],
    "expanded": lambda channels: torch.rand(1, 1, 9, 8).expand(2, channels, 9, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 5, 18])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout(kernels_agree, channels, layout):
    origin = torch.tensor([[0.1, -0.2], [0.3, 0.15]])
    kernels_agree(
        lambda i, o, backend: polar_sample(i, o, GRID, backend=backend), LAYOUTS[layout](channels), origin
    )


@pytest.mark.parametrize("layout", ["contiguous", "x innermost"])
def test_volumes_have_the_values_and_gradients_of_float64(kernels_agree, layout):
    volumes = torch.rand(2, 2, 7, 9, 5)
    if layout == "x innermost":
        volumes = volumes.permute(0, 1, 4, 3, 2).contiguous().permute(0, 1, 4, 3, 2)
    axis = torch.tensor([[0.1, -0.2], [0.3, 0.15]])
    kernels_agree(lambda v, a, backend: cylindrical_sample(v, a, GRID, backend=backend), volumes, axis)
    rotation = torch.tensor([0.5, -1.0])
    kernels_agree(
        lambda v, r, backend: similarity_warp(v, Similarity(r), size=(6, 8), backend=backend), volumes, rotation
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_half_precision_images_are_read_with_float32_coordinates(kernels_agree, dtype, mode):
    def sample(images, backend):
        origin = torch.tensor([[0.1, 0.2]], device=images.device)
        return polar_sample(images, origin, GRID, mode=mode, backend=backend)

    kernels_agree(sample, torch.rand(1, 2, 200, 300).to(dtype), tolerance=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shift", [0.0, 0.5, -2.5, 7.0])
def test_integer_and_half_pixels_round_as_in_grid_sample(kernels_agree, shift, mode, padding_mode):
    """The nearest pixel, one-sided derivatives, the border: exact in these sizes."""

    def warp(images, shift, backend):
        pose = Similarity(shift_px=shift)
        return similarity_warp(images, pose, mode=mode, padding_mode=padding_mode, backend=backend)

    kernels_agree(warp, torch.rand(1, 1, 4, 8), torch.tensor([[shift, -shift]]), tolerance=1e-6)


def test_coordinates_are_as_accurate_as_those_of_torch():
    """The values of a ramp are the coordinates."""
    grid, origin = PolarGrid(32, 16), torch.tensor([[0.21, -0.13]])
    ramp = torch.arange(1024.0).expand(1, 1, 768, 1024) / 100
    exact = polar_sample(ramp.double(), origin.double(), grid, padding_mode="border")
    error, torch_error = (
        (polar_sample(ramp.to(d), origin.to(d), grid, padding_mode="border", backend=b).cpu() - exact).abs().max()
        for d, b in ((DEVICE, "triton"), ("cpu", "torch"))
    )
    assert error <= torch_error < 1e-5


@pytest.mark.parametrize("broken", ["origin", "phase", "dilation", "aspect"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_a_non_finite_pose_gives_nan_and_zero_gradients_for_its_image_only(broken, padding_mode):
    pose = {"origin": random(2, 2) * 0.2, "phase": random(2), "dilation": random(2) + 0.5}
    if broken == "aspect":
        pose["aspect"] = random(2) + 0.5
    pose[broken][1] = math.inf if broken == "dilation" else math.nan
    inputs = [random(2, 1, 9, 9).requires_grad_(), *(value.requires_grad_() for value in pose.values())]

    def sample(backend):
        options = dict(zip(pose, inputs[1:], strict=True), padding_mode=padding_mode, backend=backend)
        return polar_sample(inputs[0], grid=GRID, **options)

    polar, expected = sample("triton"), sample("torch")
    assert torch.isnan(polar[1]).all()
    assert torch.allclose(polar[0], expected[0], atol=1e-5)
    for ours, torchs in zip(*(torch.autograd.grad(p.sum(), inputs) for p in (polar, expected)), strict=True):
        assert torch.allclose(ours[0], torchs[0], atol=1e-4)
        assert broken == "aspect" or (ours[1] == 0).all()  # NaN in the matrix of an ellipse


def test_a_point_far_outside_is_outside():
    images, origin = random(3, 1, 9, 9), torch.tensor([[1e30, 0.0], [0.0, -3e9], [1e5, 1e5]], device=DEVICE)
    pose = GRID, GridPose()
    assert (triton_ops.polar_sample(images, origin, *pose, "bilinear", "zeros") == 0).all()
    border = triton_ops.polar_sample(images, origin, *pose, "bilinear", "border")
    assert torch.equal(border[2], images[2, :, -1:, -1:].expand(1, 7, 6))


def test_an_empty_batch_gives_an_empty_batch_and_gradients():
    images, origin = random(0, 3, 9, 7).requires_grad_(), random(0, 2).requires_grad_()
    polar = polar_sample(images, origin, GRID, backend="triton")
    polar.sum().backward()
    assert polar.shape == (0, 3, 7, 6)
    assert images.grad.shape == images.shape
    assert origin.grad.shape == origin.shape


def test_only_the_gradient_of_the_images_raises_in_deterministic_mode():
    images, origin = random(1, 1, 9, 9), torch.zeros(1, 2, device=DEVICE)
    torch.use_deterministic_algorithms(True)
    polar_sample(images, origin.clone().requires_grad_(), GRID, backend="triton").sum().backward()
    polar = polar_sample(images.requires_grad_(), origin, GRID, backend="triton")
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        polar.sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_in_one_graph_it_gives_the_same(dynamic):
    def sample(images, origin, phase):
        return polar_sample(images, origin, GRID, phase=phase, backend="triton")

    torch._dynamo.reset()
    compiled = torch.compile(sample, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for count in (2, 3) if dynamic else (2,):
        inputs = [t.requires_grad_() for t in (random(count, 1, 12, 10), random(count, 2) * 0.2, random(count))]
        polars = compiled(*inputs), sample(*inputs)
        results = [(polar, *torch.autograd.grad(polar.square().sum(), inputs)) for polar in polars]
        for ours, eager in zip(*results, strict=True):
            assert torch.allclose(ours, eager, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["circles", "rotated", "matrix"])
def test_the_operators_pass_opcheck(kind):
    images, origin, grad = random(1, 2, 9, 8), random(1, 2) * 0.2, random(1, 2, 7, 6)
    poses = {"circles": (None,) * 3, "rotated": (random(1), random(1), None), "matrix": (None, None, random(1, 6))}
    pose = poses[kind]
    torch.library.opcheck(torch.ops.ptn.sample.default, (images, origin, *pose, *POINTS))
    channels_last = images.to(memory_format=torch.channels_last)
    leaves = (channels_last.requires_grad_(), origin.clone().requires_grad_())
    torch.library.opcheck(torch.ops.ptn.sample.default, (*leaves, *pose, *POINTS))
    torch.library.opcheck(torch.ops.ptn.sample_grad_pose.default, (grad, images, origin, *pose, *POINTS))
    for last in (False, True):
        arguments = (grad, origin, *pose, [1, 2, 9, 8], last, *POINTS)
        torch.library.opcheck(torch.ops.ptn.sample_grad_images.default, arguments)


def test_auto_is_torch_on_a_cpu_and_unsupported_input_is_refused(monkeypatch):
    assert not module.uses_triton("auto", torch.rand(1, 1, 9, 9), (4, 4), 0)
    images, origin = random(1, 1, 9, 9), torch.zeros(1, 2, device=DEVICE)
    many = random(1, 1, 2, 2).expand(1, 70_000, 2, 2)
    calls = [
        lambda: polar_sample(images.double(), origin, GRID, backend="triton"),
        lambda: polar_sample(many, origin, PolarGrid(200, 200), backend="triton"),
        lambda: torch.vmap(lambda i: polar_sample(i[None], origin, GRID, backend="triton"))(images),
    ]
    for call in calls:
        with pytest.raises(InputError, match="backend 'triton' needs"):
            call()
    monkeypatch.setattr(module, "INTERPRETED", False)
    assert not module._triton_supports(torch.rand(1, 1, 9, 9), (4, 4))
    monkeypatch.setattr(module, "_TRITON_INSTALLED", False)
    assert not module._triton_supports(images, (4, 4))


def test_triton_is_imported_only_where_it_is_used():
    program = """
import sys, torch, ptn
ptn.polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), ptn.PolarGrid(4, 4))
print([name for name in ("triton", "ptn.geometry.triton_ops") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
