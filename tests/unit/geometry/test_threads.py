"""Sampling many images on a CPU in threads gives the same values and gradients."""

import pytest
import torch

from ptn import PolarGrid, polar_sample
from ptn.geometry import sample as module

GRID = PolarGrid(6, 5)
COUNT = 13


@pytest.fixture
def small_chunks(monkeypatch):
    """Three threads, and chunks of a few images."""
    torch.set_num_threads(3)
    yield lambda: monkeypatch.setattr(module, "_CHUNK_BYTES", 2000)
    assert torch.get_num_threads() == 3


def sample(images, origin, grad_output, **options):
    """A polar image, its gradients, and whether it was sampled in threads."""
    images, origin = images.clone().requires_grad_(), origin.clone().requires_grad_()
    polar = polar_sample(images, origin, GRID, **options)
    polar.backward(grad_output)
    return (polar.detach(), images.grad, origin.grad), "SampleInThreads" in polar.grad_fn.name()


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_threads_give_the_values_and_gradients_of_one_call(small_chunks, dtype, mode, padding_mode):
    images, grad_output = torch.rand(COUNT, 2, 9, 7).to(dtype), torch.rand(COUNT, 2, 6, 5).to(dtype)
    origin = torch.rand(COUNT, 2) - 0.5
    options = {"mode": mode, "padding_mode": padding_mode, "phase": 0.3}
    expected, in_threads = sample(images, origin, grad_output, **options)
    assert not in_threads
    small_chunks()
    results, in_threads = sample(images, origin, grad_output, **options)
    assert in_threads
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == value.dtype
        assert torch.allclose(result, value, atol=1e-6 if dtype == torch.float32 else 2e-3)
    with torch.inference_mode():
        assert torch.equal(polar_sample(images, origin, GRID, **options), results[0])


def test_a_non_finite_origin_gives_nan_for_its_image_only(small_chunks):
    small_chunks()
    origin = torch.zeros(COUNT, 2)
    origin[7, 1] = torch.nan
    polar = polar_sample(torch.rand(COUNT, 2, 9, 7), origin, GRID)
    assert polar.isnan().flatten(1).any(dim=1).nonzero().tolist() == [[7]]


def test_an_origin_modified_before_the_backward_is_an_error(small_chunks):
    small_chunks()
    moved = torch.zeros(COUNT, 2, requires_grad=True) * 1
    polar = polar_sample(torch.rand(COUNT, 2, 9, 7), moved, GRID)
    moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        polar.sum().backward()


def test_an_error_in_a_thread_is_raised_and_the_number_of_threads_restored(small_chunks):
    threads = []

    def fail(chunk, pixels, points):
        threads.append(torch.get_num_threads())
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        module._in_threads(fail, torch.rand(9, 1, 4, 4), torch.zeros(9, 2), torch.zeros(3, 3, 2), 1)
    assert set(threads) == {1}


@pytest.mark.parametrize(
    ("shape", "in_chunks"),
    [((200, 1, 96, 96), True), ((64, 3, 128, 128), True), ((20, 1, 96, 96), False), ((200, 16, 96, 96), False)],
    ids=["many", "color", "few", "feature maps"],
)
def test_chunks_are_for_many_images_of_few_channels(monkeypatch, shape, in_chunks):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    images, points = torch.empty(shape, device="meta"), torch.empty(*shape[2:], 2, device="meta")
    assert (module._chunk_length(images, points) < shape[0]) == in_chunks
