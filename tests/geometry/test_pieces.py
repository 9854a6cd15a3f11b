"""Many images are sampled a few at a time on a CPU, and nobody can tell."""

import pytest
import torch

from ptn import PolarGrid, polar_sample
from ptn.geometry import pieces

GRID = PolarGrid(6, 5)
COUNT = 13
SMALL_CACHE = 3 * 4 * (2 * 9 * 7 + 2 * 6 * 5)  # three images and their points, in float32


def sample(images, origin, slope, **options):
    """A polar image and its gradients to image and origin, and whether it was made in pieces."""
    images, origin = images.clone().requires_grad_(), origin.clone().requires_grad_()
    polar = polar_sample(images, origin, GRID, **options)
    polar.backward(slope)
    in_pieces = "SampleInPieces" in polar.grad_fn.name() or "SampleInPieces" in str(polar.grad_fn.next_functions)
    return (polar.detach(), images.grad, origin.grad), in_pieces


@pytest.fixture
def small_cache(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield lambda: monkeypatch.setattr(pieces, "_CACHE_BYTES", SMALL_CACHE)
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "phase", [0.3, torch.tensor(0.3), torch.linspace(0, 6, COUNT)], ids=["number", "0-d", "each"]
)
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pieces_give_what_the_whole_gives(small_cache, dtype, mode, padding_mode, phase):
    images = torch.rand(COUNT, 2, 9, 7).to(dtype)
    origin = torch.rand(COUNT, 2) - 0.5
    slope = torch.rand(COUNT, 2, 6, 5).to(dtype)
    options = {"mode": mode, "padding_mode": padding_mode, "phase": phase}
    whole, in_pieces = sample(images, origin, slope, **options)
    assert not in_pieces
    small_cache()
    parts, in_pieces = sample(images, origin, slope, **options)
    assert in_pieces
    tolerance = 1e-6 if dtype == torch.float32 else 2e-3
    for one, other in zip(whole, parts, strict=True):
        assert one.dtype == other.dtype
        assert torch.allclose(one, other, atol=tolerance)


def test_gradients_in_pieces_are_right(small_cache):
    small_cache()
    images = torch.rand(5, 2, 9, 7, dtype=torch.float64, requires_grad=True)
    origin = (torch.rand(5, 2, dtype=torch.float64) * 0.4 - 0.2).requires_grad_()
    assert pieces.piece_length(images, (6, 5), images.dtype) == 1
    assert torch.autograd.gradcheck(lambda i, o: polar_sample(i, o, GRID), (images, origin))


def test_a_phase_that_is_differentiated_is_differentiated(small_cache):
    small_cache()
    phase = torch.zeros(COUNT, dtype=torch.float64, requires_grad=True)
    images = torch.rand(COUNT, 1, 9, 7, dtype=torch.float64)
    origin = torch.full((COUNT, 2), 0.07, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: polar_sample(images, origin, GRID, phase=p), phase)


def test_an_origin_changed_before_its_gradient_is_an_error(small_cache):
    small_cache()
    origin = torch.zeros(COUNT, 2, requires_grad=True)
    moved = origin * 1
    polar = polar_sample(torch.rand(COUNT, 2, 9, 7), moved, GRID)
    moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        polar.sum().backward()


def test_points_remembered_in_inference_mode_serve_gradients_later():
    grid = PolarGrid(13, 3)
    with torch.inference_mode():
        polar_sample(torch.rand(1, 1, 9, 9), torch.zeros(1, 2), grid)
    origin = torch.zeros(1, 2, requires_grad=True)
    polar_sample(torch.rand(1, 1, 9, 9), origin, grid).sum().backward()
    assert origin.grad.abs().sum() > 0


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("shape", "in_pieces"),
    [((200, 1, 96, 96), True), ((64, 3, 128, 128), True), ((20, 1, 96, 96), False), ((200, 16, 96, 96), False)],
    ids=["many", "colour", "few", "feature maps"],
)
def test_pieces_are_for_many_images_of_few_channels(shape, in_pieces):
    length = pieces.piece_length(torch.empty(shape, device="meta"), shape[2:], torch.float32)
    assert (length < shape[0]) == in_pieces


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("count", [200, 201, 1001, 5000])
def test_pieces_are_of_equal_length(count):
    length = pieces.piece_length(torch.empty(count, 1, 96, 96, device="meta"), (96, 96), torch.float32)
    spare = -count % length
    assert spare < -(-count // length)


@pytest.mark.usefixtures("two_threads")
def test_an_image_that_fills_the_cache_is_sampled_beside_one_for_each_other_thread():
    images = torch.empty(64, 1, 1024, 1024, device="meta")
    assert pieces.piece_length(images, (1024, 1024), torch.float32) == 2
