"""The origin: a centroid that is right, safe, starts in the middle, and is jittered in training only."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from ptn import InputError, OriginPredictor, heatmap_centroid
from ptn.layers import ConvBlock, OriginJitter, centroid

ACTIVATIONS = ["softplus", "linear", "softmax"]


@given(row=st.integers(0, 6), column=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_a_single_peak_is_the_centroid(row, column):
    heatmap = torch.full((1, 1, 7, 10), -1e4)
    heatmap[0, 0, row, column] = 1e4
    expected = [(2 * column + 1) / 10 - 1, (2 * row + 1) / 7 - 1]
    for activation in ("softplus", "softmax"):
        assert heatmap_centroid(heatmap, activation)[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_linear_is_the_papers_signed_centroid():
    heatmap = torch.rand(3, 5, 6, dtype=torch.float64) - 0.2
    x = (2 * torch.arange(6) + 1) / 6 - 1
    y = (2 * torch.arange(5) + 1) / 5 - 1
    mass = heatmap.sum((1, 2))
    expected = torch.stack(((heatmap * x).sum((1, 2)) / mass, (heatmap * y[:, None]).sum((1, 2)) / mass), 1)
    assert torch.allclose(heatmap_centroid(heatmap, "linear"), expected.clamp(-1, 1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [(14, 14), (7, 9), (24, 24)])
def test_a_uniform_heatmap_has_its_centroid_in_the_middle_exactly(activation, size):
    assert heatmap_centroid(torch.full((2, 1, *size), 1.0), activation).abs().max() == 0


@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(
    values=st.lists(st.floats(-50, 50, width=32), min_size=12, max_size=12),
    total=st.sampled_from([None, 0.0, 1e-7, -1e-7, 1e-3]),
)
@example(values=[*[0.0] * 11, 1.1322491591744522e-42], total=None)  # its square is zero
@settings(max_examples=40, deadline=None)
def test_it_never_leaves_the_image_nor_gives_nan(activation, values, total):
    heatmap = torch.tensor(values).reshape(1, 3, 4)
    if total is not None:
        heatmap = heatmap - (heatmap.sum() - total) / 12
    heatmap.requires_grad_()
    origin = heatmap_centroid(heatmap, activation)
    origin.sum().backward()
    assert origin.abs().max() <= 1
    assert torch.isfinite(heatmap.grad).all()


def test_a_vanishing_sum_means_the_middle():
    heatmap = torch.tensor([[[1.0, -1.0], [2.0, -2.0]]])
    assert heatmap_centroid(heatmap, "linear").tolist() == [[0, 0]]
    assert heatmap_centroid(torch.zeros(1, 4, 4), "linear").tolist() == [[0, 0]]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_its_gradient_is_right(activation):
    heatmap = torch.rand(2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: heatmap_centroid(h, activation), heatmap)


def test_half_precision_heatmaps_are_summed_in_float32():
    heatmap = torch.rand(1, 1, 48, 48).bfloat16()
    origin = heatmap_centroid(heatmap)
    assert origin.dtype == torch.float32
    assert torch.allclose(origin.double(), heatmap_centroid(heatmap.double()), atol=1e-5)


def test_a_broken_heatmap_is_not_hidden():
    assert torch.isnan(centroid(torch.full((1, 3, 3), torch.nan))).all()


def predictor(activation="softplus"):
    return OriginPredictor(nn.Sequential(ConvBlock(1, 8, stride=2)), 8, activation=activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_predictor_starts_at_the_middle_exactly_and_can_learn(activation):
    model = predictor(activation)
    origin, heatmap = model(torch.rand(4, 1, 28, 28))
    assert origin.abs().max() == 0
    assert heatmap.shape == (4, 14, 14)
    origin.sum().backward()
    assert model.head.weight.grad.abs().max() > 0


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("turns", [1, 4])
def test_with_four_turns_the_origin_turns_by_quarters_as_the_image_does(activation, turns):
    predictor = OriginPredictor(ConvBlock(1, 8, stride=2), 8, activation=activation, turns=turns).double().eval()
    nn.init.normal_(predictor.head.weight)
    images = torch.rand(5, 1, 15, 15, dtype=torch.float64)
    upright, turned = predictor(images), predictor(images.rot90(1, (2, 3)))
    x, y = upright.origin.unbind(dim=1)
    assert torch.allclose(turned.origin, torch.stack((y, -x), dim=1)) == (turns == 4)
    assert torch.allclose(turned.heatmap, upright.heatmap.rot90(1, (1, 2))) == (turns == 4)


def test_turns_that_cannot_be_say_so():
    with pytest.raises(InputError, match="origin_turns must be 1 or 4; got 2"):
        OriginPredictor(nn.Identity(), 1, turns=2)
    with pytest.raises(InputError, match="square images; got 4×6"):
        OriginPredictor(nn.Identity(), 1, turns=4)(torch.rand(1, 1, 4, 6))


def test_jitter_moves_origins_by_up_to_its_pixels_in_training_only():
    jitter = OriginJitter(2.0)
    origin = torch.zeros(4000, 2)
    moved = jitter(origin, (20, 40))
    limit = torch.tensor([2 * 2 / 40, 2 * 2 / 20])
    assert (moved.abs() <= limit).all()
    assert torch.allclose(moved.abs().max(0).values, limit, rtol=0.01)
    assert moved.mean(0).abs().max() < 0.01
    assert torch.equal(jitter.eval()(origin, (20, 40)), origin)


def test_jitter_takes_the_noise_it_is_given():
    jitter = OriginJitter(2.0)
    jitter.noise = torch.tensor([[0.5, 1.0], [0.0, 0.5]])
    moved = jitter(torch.zeros(2, 2), (20, 40))
    assert torch.allclose(moved, torch.tensor([[0.0, 0.2], [-0.1, 0.0]]))


@pytest.mark.parametrize(
    ("heatmap", "activation", "says"),
    [
        (torch.rand(2, 3, 4, 4), "softplus", "expected a floating-point heatmap"),
        (torch.ones(2, 4, 4, dtype=torch.int64), "softplus", "expected a floating-point heatmap"),
        (torch.rand(2, 4, 4), "softmux", "did you mean 'softmax'"),
    ],
)
def test_bad_heatmaps_say_so(heatmap, activation, says):
    with pytest.raises(InputError, match=says):
        heatmap_centroid(heatmap, activation)
