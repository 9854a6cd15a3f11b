"""Geometry on a GPU: the values of float64, reproducible gradients, CUDA graphs, compilation, choice of backend."""

import math

import pytest
import torch

from ptn import PolarGrid, Similarity, cylindrical_sample, polar_sample, similarity_warp
from ptn.geometry import sample as module

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
MODES = ["nearest", "bilinear", "bicubic"]


def smooth(*shape):
    """Smooth images, whose derivatives do not jump where rounding moves a point to another pixel."""
    y, x = torch.linspace(0, 1, shape[-2])[:, None], torch.linspace(0, 2, shape[-1])
    frequency = 1 + torch.arange(math.prod(shape[:-2])).reshape(*shape[:-2], 1, 1) % 5 / 5
    return torch.sin(frequency * x + y) + torch.cos(frequency * y)


def poses(count):
    origin = torch.rand(count, 2) * 1.2 - 0.6
    origin[0] = torch.tensor([1.317, -0.423])  # outside
    return origin, torch.rand(count) * 20 - 10, torch.rand(count) + 0.5


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("law", ["log", "linear"])
@pytest.mark.parametrize("shape", [(6, 1, 96, 96), (3, 3, 70, 101), (2, 64, 33, 48)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_polar_sampling_agrees_with_float64(kernels_agree, shape, law, mode, padding_mode, layout):
    grid = PolarGrid(45, 50, law=law)

    def sample(images, origin, phase, dilation, backend):
        options = {"phase": phase, "dilation": dilation, "mode": mode, "padding_mode": padding_mode}
        return polar_sample(images, origin, grid, **options, backend=backend)

    images = smooth(*shape).to(memory_format=layout)
    kernels_agree(sample, images, *poses(shape[0]), tolerance=1e-4, grad_tolerance=1e-3)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(8, 1, 28, 28), (3, 5, 40, 56), (2, 2, 20, 24, 32)])
def test_similarity_warps_agree_with_float64(kernels_agree, shape, mode, padding_mode):
    def warp(images, shift, rotation, scale, backend):
        pose, size = Similarity(rotation, scale, 9 * shift), (37, 30)
        return similarity_warp(images, pose, size=size, mode=mode, padding_mode=padding_mode, backend=backend)

    images = smooth(*shape) if len(shape) == 4 else smooth(*shape[:2], *shape[4:1:-1]).permute(0, 1, 4, 3, 2)
    kernels_agree(warp, images, *poses(shape[0]), tolerance=1e-4, grad_tolerance=1e-3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("depth", [1, 12, 32])
def test_cylindrical_sampling_agrees_with_float64(kernels_agree, channels, depth):
    grid = PolarGrid(32, 32, law="linear", r_max_px=16)
    volumes = smooth(3, channels, depth, 32, 30).permute(0, 1, 4, 3, 2).contiguous()

    def sample(volumes, axis, backend):
        return cylindrical_sample(volumes, axis, grid, backend=backend)

    kernels_agree(sample, volumes, poses(3)[0], tolerance=1e-4, grad_tolerance=1e-3)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_large_angles_in_float32_lose_nothing_more(backend):
    images, grid, origin = smooth(2, 1, 96, 96).to(GPU), PolarGrid(64, 48), torch.zeros(2, 2, device=GPU)
    angle = torch.full((2,), 0.5 + 2000 * math.pi, device=GPU)
    number = float(angle[0])
    samples = [polar_sample(images, origin, grid, phase=phase, backend=backend) for phase in (angle, number)]
    assert (samples[0] - samples[1]).abs().max() < 1e-5
    warps = [similarity_warp(images, Similarity(rotation), backend=backend) for rotation in (angle, number)]
    assert (warps[0] - warps[1]).abs().max() < 1e-5


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_nearest_pixels_agree_except_at_rounding_edges(padding_mode):
    images, (origin, *_), grid = torch.rand(4, 2, 60, 70), poses(4), PolarGrid(64, 48)
    options = {"mode": "nearest", "padding_mode": padding_mode}
    ours = polar_sample(images.to(GPU), origin.to(GPU), grid, **options, backend="triton").cpu()
    exact = polar_sample(images.double(), origin.double(), grid, **options)
    assert (ours.double() != exact).double().mean() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 3, 64])
def test_half_precision_images_are_read_with_float32_coordinates(kernels_agree, dtype, layout, channels):
    images = smooth(2, channels, 200, 300).to(dtype).to(memory_format=layout)

    def sample(images, backend):
        origin = torch.tensor([[0.1, 0.2], [-0.3, 0.05]], device=images.device)
        return polar_sample(images, origin, PolarGrid(32, 32), backend=backend)

    kernels_agree(sample, images, tolerance=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_the_torch_path_agrees_with_float64(mode, padding_mode):
    images, origin, grid = torch.rand(4, 3, 40, 50), torch.rand(4, 2) * 0.4 - 0.2, PolarGrid(32, 24)
    options = {"mode": mode, "padding_mode": padding_mode}
    ours = polar_sample(images.to(GPU), origin.to(GPU), grid, **options, backend="torch").cpu().double()
    assert torch.allclose(ours, polar_sample(images.double(), origin.double(), grid, **options), atol=1e-4)


def test_auto_takes_triton_for_large_work_on_side_streams_and_in_deterministic_mode():
    images = torch.rand(1, 1, 9, 9, device=GPU)
    assert not module.uses_triton("auto", images, (4, 4), 17)
    assert module.uses_triton("auto", images, (4, 4), 16)
    assert not module.uses_triton("auto", images.double(), (4, 4), 0)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert module.uses_triton("auto", images, (4, 4), 17)
    torch.use_deterministic_algorithms(True)
    assert module.uses_triton("auto", images, (4, 4), 17)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_origin_gives_nan_with_triton_and_reads_outside_with_torch(value):
    images = torch.rand(3, 2, 20, 20, device=GPU, requires_grad=True)
    origin = torch.tensor([[0.1, 0.2], [value, 0.0], [0.0, -0.1]], device=GPU, requires_grad=True)
    polar = polar_sample(images, origin, PolarGrid(16, 16), backend="triton")
    assert torch.isnan(polar[1]).all()
    assert torch.isfinite(polar[[0, 2]]).all()
    grad_images, grad_origin = torch.autograd.grad(polar.sum(), (images, origin))
    assert torch.isfinite(grad_images).all()
    assert (grad_images[1] == 0).all()
    assert (grad_origin[1] == 0).all()
    assert (polar_sample(images, origin, PolarGrid(16, 16), backend="torch")[1] == 0).all()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(200, 1, 96, 96), (16, 64, 64, 64), (50, 1, 28, 28)])
def test_the_gradient_of_the_origin_is_reproducible_in_deterministic_mode(shape, mode):
    images = torch.rand(*shape, device=GPU)
    origin = ((torch.rand(shape[0], 2) - 0.5) * 0.4).to(GPU).requires_grad_()
    phase = torch.rand(shape[0]).to(GPU).requires_grad_()
    grid = PolarGrid(shape[-2], shape[-1])
    torch.use_deterministic_algorithms(True)
    runs = []
    for _ in range(10):
        polar = polar_sample(images, origin, grid, phase=phase, mode=mode)
        runs.append(torch.autograd.grad(polar.square().sum(), (origin, phase)))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("to_images", [False, True])
def test_a_captured_graph_replays_on_new_values(to_images):
    grid = PolarGrid(40, 36)
    images = torch.rand(16, 3, 40, 40, device=GPU, requires_grad=to_images)
    origin = torch.zeros(16, 2, device=GPU, requires_grad=True)
    rotation, scale = torch.zeros(16, device=GPU), torch.ones(16, device=GPU)
    inputs = (images, origin) if to_images else (origin,)

    def step():
        warped = similarity_warp(images, Similarity(rotation, scale), mode="bicubic")
        polar = polar_sample(warped, origin, grid, phase=0.3)
        return polar.detach(), *torch.autograd.grad(polar.square().sum(), inputs)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        images.copy_(torch.rand(16, 3, 40, 40))
        origin.copy_(torch.rand(16, 2) * 0.4 - 0.2)
        rotation.copy_(torch.rand(16))
        scale.copy_(torch.rand(16) + 0.5)
    graph.replay()
    for replayed, eager in zip(captured, step(), strict=True):
        # eager calls take grid_sampler: other rounding, so compare with the largest value
        assert (replayed - eager).abs().max() < 1e-4 * eager.abs().max()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.filterwarnings("default")
def test_compiled_it_gives_the_same(mode):
    grid = PolarGrid(24, 20, r_max_px=10)
    ramp = torch.linspace(0, 1, 30, device=GPU)

    def step(images, origin):
        return polar_sample(images * 2, origin, grid).relu() * 3

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, mode=mode)
    for _ in range(3):
        # planes: the gradient at a point between two pixels does not depend on rounding
        slopes = torch.rand(2, 4, 2, 1, 1, device=GPU)
        images = slopes[0] * ramp + slopes[1] * ramp[:, None]
        inputs = [images.requires_grad_(), (torch.rand(4, 2, device=GPU) * 0.4 - 0.2).requires_grad_()]
        torch.compiler.cudagraph_mark_step_begin()
        ours = compiled(*inputs)
        results = (ours, *torch.autograd.grad(ours.square().sum(), inputs))
        eager = step(*inputs)
        expected = (eager, *torch.autograd.grad(eager.square().sum(), inputs))
        for a, b in zip(results, expected, strict=True):
            assert (a - b).abs().max() < 1e-4 * b.abs().max()


def test_triton_needs_little_more_memory_than_the_polar_images():
    images, grid = torch.rand(200, 1, 96, 96, device=GPU), PolarGrid(96, 96)
    origin = torch.zeros(200, 2, device=GPU, requires_grad=True)
    peaks = {}
    for backend in ("triton", "torch"):
        for _ in range(2):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            polar_sample(images, origin, grid, backend=backend).sum().backward()
            peaks[backend] = torch.cuda.max_memory_allocated() - before
    assert peaks["triton"] < 1.1 * images.nbytes
    assert peaks["triton"] <= peaks["torch"] / 2


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU only")
def test_images_on_a_gpu_that_is_not_the_current_one():
    images, origin = torch.rand(1, 1, 9, 9), torch.zeros(1, 2)
    polar = polar_sample(images.to("cuda:1"), origin.to("cuda:1"), PolarGrid(8, 8))
    assert torch.allclose(polar.cpu(), polar_sample(images, origin, PolarGrid(8, 8)), atol=1e-5)


def test_vmap_of_the_gradient():
    images, origin, grid = torch.rand(3, 1, 12, 10), torch.rand(3, 2) * 0.2, PolarGrid(8, 6)
    images, origin = images.to(GPU), origin.to(GPU).requires_grad_()

    def total(image, point):
        return polar_sample(image[None], point[None], grid).square().sum()

    grads = torch.vmap(torch.func.grad(total, argnums=1))(images, origin.detach())
    polar_sample(images, origin, grid).square().sum().backward()
    assert torch.allclose(grads, origin.grad, atol=1e-4)


@pytest.mark.filterwarnings("default")
def test_a_transform_inside_torch_compile_takes_torch():
    images, origin, grid = torch.rand(2, 1, 12, 10, device=GPU), torch.rand(2, 2, device=GPU) * 0.2, PolarGrid(8, 6)

    def total(images, origin):
        return polar_sample(images, origin, grid).square().sum()

    torch._dynamo.reset()
    gradient = torch.func.grad(total, argnums=1)
    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(images, origin), gradient(images, origin), atol=1e-3)
