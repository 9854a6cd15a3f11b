"""The Triton backend: the numbers of torch in float64, its gradients, and everything that wraps around an operator.

Without a GPU the kernels run in Triton's interpreter.
"""

import math
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ptn import InputError, PolarGrid, Similarity, cylindrical_sample, polar_sample, similarity_warp
from ptn.geometry import backend as backends

pytest.importorskip("triton")

from ptn.geometry import fused
from ptn.geometry.launch import Points

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODES = ["nearest", "bilinear", "bicubic"]
GRID = PolarGrid(7, 6)
POINTS = Points("log", 7, 6, 1.0, 0.4, "bilinear", "zeros")


def some(*shape, dtype=torch.float32):
    return torch.rand(*shape, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("law", ["log", "linear"])
def test_polar_sampling_has_the_values_and_gradients_of_float64(kernels_agree, law, mode, padding_mode):
    """One origin inside the image and one outside; to images, origin, phase and dilation."""
    grid = PolarGrid(7, 6, law=law)

    def sample(images, origin, phase, dilation, backend):
        options = {"phase": phase, "dilation": dilation, "mode": mode, "padding_mode": padding_mode}
        return polar_sample(images, origin, grid, **options, backend=backend)

    origin = torch.tensor([[0.13, -0.24], [1.21, -0.37]])
    kernels_agree(sample, torch.rand(2, 2, 13, 10), origin, torch.tensor([0.4, -7.0]), torch.tensor([1.3, 0.6]))


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
def test_similarity_warps_have_the_values_and_gradients_of_float64(kernels_agree, mode, padding_mode):
    def warp(images, rotation, scale, shift, backend):
        pose, size = Similarity(rotation, scale, shift), (6, 8)
        return similarity_warp(images, pose, size=size, mode=mode, padding_mode=padding_mode, backend=backend)

    rotation, scale = torch.tensor([0.4, -2.0]), torch.tensor([1.3, -0.6])
    kernels_agree(warp, torch.rand(2, 1, 9, 11), rotation, scale, torch.tensor([[0.3, -1.7], [2.2, 0.9]]))


@pytest.mark.parametrize("angles", [1, 5, 33])
@pytest.mark.parametrize("radii", [1, 9, 16])
def test_any_number_of_angles_and_radii(kernels_agree, angles, radii):
    grid = PolarGrid(angles, radii)
    origin = torch.tensor([[0.1, -0.2]])
    kernels_agree(lambda i, o, backend: polar_sample(i, o, grid, backend=backend), torch.rand(1, 1, 12, 17), origin)


LAYOUTS = {
    "contiguous": lambda channels: torch.rand(2, channels, 9, 8),
    "channels last": lambda channels: torch.rand(2, 9, 8, channels).permute(0, 3, 1, 2),
    "cut out": lambda channels: torch.rand(2, 2 * channels, 12, 20)[:, ::2, 1:10, 3:19:2],
    "repeated": lambda channels: torch.rand(1, 1, 9, 8).expand(2, channels, 9, 8),
}


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_in_memory_is_read_as_it_is(kernels_agree, channels, layout):
    origin = torch.tensor([[0.1, -0.2], [0.3, 0.15]])
    kernels_agree(
        lambda i, o, backend: polar_sample(i, o, GRID, backend=backend), LAYOUTS[layout](channels), origin
    )


@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_many_channels(kernels_agree, layout):
    origin = torch.tensor([[0.1, -0.2]])
    images = LAYOUTS[layout](18)[:1]
    kernels_agree(lambda i, o, backend: polar_sample(i, o, GRID, backend=backend), images, origin)


def test_images_with_channels_last_give_polar_images_and_gradients_with_channels_last():
    images = some(2, 3, 9, 8).to(memory_format=torch.channels_last).requires_grad_()
    polar = polar_sample(images, some(2, 2) * 0.2, GRID, backend="triton")
    assert polar.is_contiguous(memory_format=torch.channels_last)
    (slopes,) = torch.autograd.grad(polar.sum(), images)
    assert slopes.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", ["contiguous", "x innermost"])
def test_volumes_are_read_without_folding(kernels_agree, layout):
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


def test_the_gradient_is_the_slope_of_the_exact_function():
    images, grid, step = torch.rand(1, 2, 9, 8), PolarGrid(7, 6), 1e-6
    pose = torch.tensor([0.13, -0.24, 0.4, 1.3], dtype=torch.float64)

    def total(pose, images, backend):
        origin, phase, dilation = pose[None, :2], pose[2], pose[3]
        return polar_sample(images, origin, grid, phase=phase, dilation=dilation, backend=backend).square().sum()

    ours = pose.float().to(DEVICE).requires_grad_()
    total(ours, images.to(DEVICE), "triton").backward()
    for i in range(4):
        change = torch.zeros(4, dtype=torch.float64)
        change[i] = step
        up, down = (total(p, images.double(), "torch") for p in (pose + change, pose - change))
        assert ours.grad[i].item() == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-3)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, -2.5, 7.0, -9.0])
def test_at_whole_and_half_pixels_it_decides_as_grid_sample_does(kernels_agree, shift, mode, padding_mode):
    """Which pixel is nearest, which side a slope is taken from, where the border holds: exact in these sizes."""

    def warp(images, shift, backend):
        return similarity_warp(images, Similarity(shift_px=shift), mode=mode, padding_mode=padding_mode, backend=backend)

    kernels_agree(warp, torch.rand(1, 1, 4, 8), torch.tensor([[shift, -shift]]), tolerance=1e-6)


def test_coordinates_are_as_accurate_as_torchs():
    """A ramp shows them: its values are the coordinates."""
    grid, origin = PolarGrid(32, 16), torch.tensor([[0.21, -0.13]])
    ramp = torch.arange(1024.0).expand(1, 1, 768, 1024)
    exact = polar_sample(ramp.double(), origin.double(), grid, padding_mode="border")
    errors = [
        (
            polar_sample(ramp.to(device), origin.to(device), grid, padding_mode="border", backend=backend).cpu()
            - exact
        )
        for device, backend in ((DEVICE, "triton"), ("cpu", "torch"))
    ]
    ours, torchs = (error.abs().max() for error in errors)
    assert ours <= torchs < 1e-3


def test_quarter_turns_are_exact():
    images = some(1, 1, 16, 16)
    polar, turned = (
        polar_sample(i, torch.zeros(1, 2, device=DEVICE), PolarGrid(12, 8), backend="triton")
        for i in (images, images.rot90(-1, (2, 3)))
    )
    assert torch.allclose(turned, polar.roll(3, 2), atol=2e-6)


@pytest.mark.parametrize("broken", ["origin", "phase", "dilation"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_a_broken_pose_gives_nan_and_no_gradient_and_spares_the_others(broken, padding_mode):
    pose = {"origin": some(2, 2) * 0.2, "phase": some(2), "dilation": some(2) + 0.5}
    pose[broken][1] = math.inf if broken == "dilation" else math.nan
    inputs = [some(2, 1, 9, 9).requires_grad_(), *(value.requires_grad_() for value in pose.values())]

    def sample(backend):
        images, origin, phase, dilation = inputs
        options = {"phase": phase, "dilation": dilation, "padding_mode": padding_mode, "check_finite": False}
        return polar_sample(images, origin, GRID, **options, backend=backend)

    polar, expected = sample("triton"), sample("torch")
    assert torch.isnan(polar[1]).all()
    assert torch.allclose(polar[0], expected[0], atol=1e-5)
    ours, torchs = (torch.autograd.grad(p.sum(), inputs) for p in (polar, expected))
    for ours_to_one, torchs_to_one in zip(ours, torchs, strict=True):
        assert torch.allclose(ours_to_one[0], torchs_to_one[0], atol=1e-4)
        assert (ours_to_one[1] == 0).all()


def test_a_point_far_outside_is_outside():
    images, origin = some(3, 1, 9, 9), torch.tensor([[1e30, 0.0], [0.0, -3e9], [1e5, 1e5]], device=DEVICE)
    assert (polar_sample(images, origin, GRID, backend="triton") == 0).all()
    border = polar_sample(images, origin, GRID, padding_mode="border", backend="triton")
    assert torch.equal(border[2], images[2, :, -1:, -1:].expand(1, 7, 6))


def test_an_empty_batch_gives_an_empty_batch_and_gradients():
    images, origin = some(0, 3, 9, 7).requires_grad_(), some(0, 2).requires_grad_()
    polar = polar_sample(images, origin, GRID, backend="triton")
    polar.sum().backward()
    assert polar.shape == (0, 3, 7, 6)
    assert images.grad.shape == images.shape
    assert origin.grad.shape == origin.shape


def test_only_the_gradients_that_are_needed_are_computed(monkeypatch):
    ran = []
    for name in ("_image_gradient", "_pose_gradient"):
        real = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *inputs, name=name, real=real: ran.append(name) or real(*inputs))
    images, origin = some(1, 1, 9, 9), torch.zeros(1, 2, device=DEVICE)
    polar_sample(images, origin.clone().requires_grad_(), GRID, backend="triton").sum().backward()
    assert ran == ["_pose_gradient"]
    polar_sample(images.clone().requires_grad_(), origin, GRID, backend="triton").sum().backward()
    assert ran == ["_pose_gradient", "_image_gradient"]


def test_only_the_gradient_to_the_images_objects_where_algorithms_are_to_be_deterministic():
    images, origin = some(1, 1, 9, 9), torch.zeros(1, 2, device=DEVICE)
    torch.use_deterministic_algorithms(True)
    polar_sample(images, origin.clone().requires_grad_(), GRID, backend="triton").sum().backward()
    polar = polar_sample(images.requires_grad_(), origin, GRID, backend="triton")
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        polar.sum().backward()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
        polar_sample(images, origin, GRID, backend="triton").sum().backward()


def test_it_is_differentiable_once():
    origin = torch.zeros(1, 2, device=DEVICE, requires_grad=True)
    polar = polar_sample(some(1, 1, 9, 9), origin, GRID, backend="triton")
    (slope,) = torch.autograd.grad(polar.square().sum(), origin, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


# --- everything that wraps around an operator ------------------------------------------------------------------


def test_autocast_leaves_it_alone():
    images, origin = some(2, 1, 9, 9), some(2, 2) * 0.2
    with torch.autocast(DEVICE.type, torch.bfloat16):
        polar = polar_sample(images, origin, GRID, backend="triton")
    assert torch.equal(polar, polar_sample(images, origin, GRID, backend="triton"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_in_one_graph_it_gives_the_same(dynamic):
    def sample(images, origin, phase):
        return polar_sample(images, origin, GRID, phase=phase, backend="triton")

    torch._dynamo.reset()
    compiled = torch.compile(sample, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for count in (2, 3) if dynamic else (2,):
        inputs = [t.requires_grad_() for t in (some(count, 1, 12, 10), some(count, 2) * 0.2, some(count))]
        polars = compiled(*inputs), sample(*inputs)
        results = [(polar, *torch.autograd.grad(polar.square().sum(), inputs)) for polar in polars]
        for ours, eager in zip(*results, strict=True):
            assert torch.allclose(ours, eager, atol=1e-5)


def test_vmap_and_gradients_inside_and_outside_of_it():
    images, origin = some(2, 1, 9, 8), some(2, 2) * 0.2

    def single(image, point):
        return polar_sample(image[None], point[None], GRID, backend="triton")[0]

    def total(image, point):
        return single(image, point).square().sum()

    expected = polar_sample(images, origin, GRID, backend="triton")
    assert torch.allclose(torch.vmap(single)(images, origin), expected)
    moved = torch.vmap(single, in_dims=(1, 1), out_dims=1)(images.transpose(0, 1), origin.T)
    assert torch.allclose(moved.transpose(0, 1), expected)
    around_one = torch.vmap(single, in_dims=(None, 0))(images[0], origin)
    assert torch.allclose(around_one, polar_sample(images[:1].expand_as(images), origin, GRID, backend="triton"))

    leaves = [images.clone().requires_grad_(), origin.clone().requires_grad_()]
    slopes = torch.autograd.grad(polar_sample(*leaves, GRID, backend="triton").square().sum(), leaves)
    inside = torch.vmap(torch.func.grad(total, argnums=(0, 1)))(images, origin)
    outside = torch.func.grad(lambda i, o: torch.vmap(total)(i, o).sum(), argnums=(0, 1))(images, origin)
    for ours in (inside, outside):
        for a, b in zip(ours, slopes, strict=True):
            assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_the_operators_keep_what_torch_library_asks_of_them(turned):
    images, origin, grad = some(1, 2, 9, 8), some(1, 2) * 0.2, some(1, 2, 7, 6)
    turn, factor = (some(1), some(1) + 0.5) if turned else (None, None)
    torch.library.opcheck(torch.ops.ptn.sample.default, (images, origin, turn, factor, *POINTS))
    last = images.to(memory_format=torch.channels_last)
    leaves = (last.requires_grad_(), origin.clone().requires_grad_())
    torch.library.opcheck(torch.ops.ptn.sample.default, (*leaves, turn, factor, *POINTS))
    torch.library.opcheck(torch.ops.ptn.pose_gradient.default, (grad, images, origin, turn, factor, *POINTS))
    for channels_last in (False, True):
        shape = ([1, 2, 9, 8], channels_last)
        torch.library.opcheck(torch.ops.ptn.image_gradient.default, (grad, origin, turn, factor, *shape, *POINTS))


def test_a_mode_of_torch_sees_operators():
    names = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Seen():
        origin = torch.zeros(1, 2, device=DEVICE, requires_grad=True)
        polar_sample(some(1, 1, 9, 9), origin, GRID, backend="triton").sum().backward()
    assert "ptn.sample.default" in names
    assert "ptn.pose_gradient.default" in names


# --- which backend -----------------------------------------------------------------------------------------------


def test_auto_is_triton_on_a_gpu_and_torch_elsewhere():
    images = some(1, 1, 9, 9)
    assert backends.uses_triton("auto", images, (4, 4)) == images.is_cuda
    assert not backends.uses_triton("auto", images.double(), (4, 4))
    assert not backends.uses_triton("torch", images, (4, 4))
    assert backends.uses_triton("triton", images, (4, 4))


def test_what_triton_cannot_do_gets_one_clear_line(monkeypatch):
    origin = torch.zeros(1, 2, device=DEVICE)
    with pytest.raises(InputError, match="reads float32, bfloat16 and float16 images; got"):
        polar_sample(some(1, 1, 9, 9).double(), origin, GRID, backend="triton")
    with pytest.raises(InputError, match="in 32 bits"):
        polar_sample(some(1, 1, 2, 2).expand(1, 70_000, 2, 2), origin, PolarGrid(200, 200), backend="triton")
    monkeypatch.setattr(backends, "INTERPRETING", False)
    with pytest.raises(InputError, match="needs images on a GPU; these are on cpu"):
        similarity_warp(torch.rand(1, 1, 9, 9), Similarity(), backend="triton")
    monkeypatch.setattr(backends, "_TRITON_INSTALLED", False)
    with pytest.raises(InputError, match="needs the package triton: pip install triton"):
        similarity_warp(some(1, 1, 9, 9), Similarity(), backend="triton")


def test_triton_is_imported_only_where_it_is_used():
    program = """
import sys, torch, ptn
ptn.polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), ptn.PolarGrid(4, 4))
print([name for name in ("triton", "ptn.geometry.fused", "ptn.geometry.kernels") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
