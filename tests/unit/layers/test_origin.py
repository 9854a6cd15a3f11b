"""Tests of heatmap centroids, origin predictors and jitter."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from ptn import InputError, OriginPredictor, heatmap_centroid
from ptn.layers import ConvBlock, EvidencePredictor, OriginJitter, default_predictor, normalize_heatmap
from ptn.layers.origin import heatmap_peaks

ACTIVATIONS = ["softplus", "linear"]


@given(row=st.integers(0, 6), column=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_the_centroid_of_a_peak_is_the_peak(row, column):
    heatmap = torch.full((1, 1, 7, 10), -1e4)
    heatmap[0, 0, row, column] = 1e4
    expected = [(2 * column + 1) / 10 - 1, (2 * row + 1) / 7 - 1]
    assert heatmap_centroid(heatmap)[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_linear_is_the_signed_centroid_of_the_paper():
    heatmap = torch.rand(3, 5, 6, dtype=torch.float64) - 0.2
    x = (2 * torch.arange(6) + 1) / 6 - 1
    y = (2 * torch.arange(5) + 1) / 5 - 1
    mass = heatmap.sum((1, 2))
    expected = torch.stack(((heatmap * x).sum((1, 2)) / mass, (heatmap * y[:, None]).sum((1, 2)) / mass), 1)
    assert torch.allclose(heatmap_centroid(heatmap, "linear"), expected.clamp(-1, 1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_centroid_of_a_uniform_heatmap_is_exactly_the_centre(activation, dtype):
    origin = heatmap_centroid(torch.ones(2, 1, 7, 24, dtype=dtype), activation)
    assert origin.dtype == torch.float32
    assert origin.abs().max() == 0


def test_the_centroid_of_a_signed_heatmap_with_sum_zero_is_the_centre():
    assert heatmap_centroid(torch.tensor([[[1.0, -1.0], [2.0, -2.0]]]), "linear").tolist() == [[0, 0]]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(
    values=st.lists(st.floats(-50, 50, width=32), min_size=12, max_size=12),
    total=st.sampled_from([None, 0.0, 1e-7, -1e-7, 1e-3]),
)
@example(values=[*[0.0] * 11, 1.1322491591744522e-42], total=None)  # its square is zero
@settings(max_examples=40, deadline=None)
def test_the_centroid_stays_in_the_image_with_a_finite_gradient(activation, values, total):
    heatmap = torch.tensor(values).reshape(1, 3, 4)
    if total is not None:
        heatmap = heatmap - (heatmap.sum() - total) / 12
    heatmap.requires_grad_()
    origin = heatmap_centroid(heatmap, activation)
    origin.sum().backward()
    assert origin.abs().max() <= 1
    assert torch.isfinite(heatmap.grad).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_of_the_centroid(activation):
    heatmap = torch.rand(2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: heatmap_centroid(h, activation), heatmap)


def test_normalized_heatmaps_span_0_to_1_with_the_peak_of_the_centroid_highest():
    heatmaps = torch.stack((torch.rand(5, 6) + 3, -torch.rand(5, 6) - 1, torch.full((5, 6), 2.0)))
    shown = normalize_heatmap(heatmaps)
    assert torch.equal(shown.amin(dim=(1, 2)), torch.zeros(3))
    assert torch.equal(shown.amax(dim=(1, 2)), torch.tensor([1.0, 1.0, 0.0]))
    assert shown[0].argmax() == heatmaps[0].argmax()
    assert shown[1].argmax() == heatmaps[1].argmin()  # a map and its negative have the same centroid
    assert torch.equal(normalize_heatmap(heatmaps[1]), shown[1])


@pytest.mark.parametrize("heatmap", ACTIVATIONS)
def test_the_first_origin_is_exactly_the_centre_and_has_a_gradient(heatmap):
    predictor = OriginPredictor(nn.Sequential(ConvBlock(1, 8, stride=2)), 8, heatmap=heatmap)
    location = predictor(torch.rand(4, 1, 28, 28))
    assert location.origin.abs().max() == 0
    assert location.heatmap.shape == (4, 14, 14)
    location.origin.sum().backward()
    assert predictor.head.weight.grad.abs().max() > 0


@pytest.mark.parametrize("heatmap", [*ACTIVATIONS, "contrast"])
@pytest.mark.parametrize("turns", [1, 4])
def test_only_with_origin_turns_4_the_origin_is_equivariant_to_90_degrees(heatmap, turns):
    predictor = OriginPredictor(ConvBlock(1, 8, stride=2), 8, heatmap=heatmap, origin_turns=turns).double().eval()
    nn.init.normal_(predictor.head.weight)
    images = torch.rand(5, 1, 15, 15, dtype=torch.float64)
    upright, rotated = predictor(images), predictor(images.rot90(1, (2, 3)))
    x, y = upright.origin.unbind(dim=1)
    assert torch.allclose(rotated.origin, torch.stack((y, -x), dim=1)) == (turns == 4)
    assert torch.allclose(rotated.heatmap, upright.heatmap.rot90(1, (1, 2))) == (turns == 4)


def test_the_origin_by_contrast_moves_with_an_object():
    torch.manual_seed(0)
    predictor = default_predictor(1, (44, 44), heatmap="contrast", origin_turns=4).eval()
    images = torch.full((2, 1, 44, 44), -0.4)
    images[0, 0, 14:22, 16:22] = torch.rand(8, 6)
    images[1] = images[0].roll((8, 10), (1, 2))
    before, after = predictor(images).origin
    assert torch.allclose((after - before) * 22, torch.tensor([10.0, 8.0]), atol=1e-3)
    assert torch.equal(predictor(torch.zeros(1, 1, 44, 44)).origin, torch.zeros(1, 2))  # uniform: the centre


def test_jitter_is_uniform_up_to_its_pixels_and_for_training_only():
    jitter = OriginJitter(2.0)
    origin = torch.zeros(4000, 2)
    jittered = jitter(origin, (20, 40))
    limit = torch.tensor([2 * 2 / 40, 2 * 2 / 20])
    assert (jittered.abs() <= limit).all()
    assert torch.allclose(jittered.abs().max(0).values, limit, rtol=0.01)
    assert jittered.mean(0).abs().max() < 0.01
    assert torch.equal(jitter.eval()(origin, (20, 40)), origin)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: heatmap_centroid(torch.rand(2, 3, 4, 4)), "shape"),
        (lambda: OriginPredictor(nn.Identity(), 1, heatmap="liner"), "linear"),
        (lambda: OriginPredictor(nn.Identity(), 1, origin_turns=2), "origin_turns"),
        (lambda: OriginPredictor(nn.Identity(), 1, origin_turns=4)(torch.rand(1, 1, 4, 6)), "square"),
        (lambda: OriginJitter(-1.0), "origin_jitter_px"),
    ],
)
def test_invalid_heatmaps_and_options_are_refused(call, word):
    with pytest.raises(InputError, match=word):
        call()


def evidence_predictor() -> EvidencePredictor:
    """A predictor whose evidence for class 0 is the brightness of the image, and for class 1 a constant."""
    torch.manual_seed(0)
    predictor = EvidencePredictor(1, 2, (16, 16)).double().eval()
    predictor.body = nn.AvgPool2d(4)
    predictor.head = nn.Conv2d(1, 2, 1).double()
    with torch.no_grad():
        predictor.head.weight.copy_(torch.tensor([40.0, 0.0]).view(2, 1, 1, 1))
        predictor.head.bias.zero_()
    return predictor


def test_the_origin_is_where_the_evidence_is():
    images = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
    images[..., 0:4, 8:12] = 1
    origin, heatmap, logits, candidates, log_weights = evidence_predictor()(images)
    assert torch.allclose(origin, torch.tensor([[0.25, -0.75]], dtype=torch.float64), atol=1e-6)
    assert torch.equal(candidates[:, 0], origin)
    assert log_weights[0, 0].item() == pytest.approx(0, abs=1e-6)
    assert heatmap.sum().item() == pytest.approx(1)
    # (logsumexp(τ·40, 0, …) - log 16) / τ for τ = 4, and 0 for the map of zeros
    assert logits[0].tolist() == pytest.approx([40 - math.log(16) / 4, 0])


def test_peaks_are_centroids_around_the_largest_values():
    heatmap = torch.full((1, 8, 12), 1e-6, dtype=torch.float64)
    heatmap[0, 2, 3], heatmap[0, 2, 4], heatmap[0, 6, 10] = 0.4, 0.2, 0.3
    peaks, sums = heatmap_peaks(heatmap, 3)
    pixels = (peaks[0] + 1) / 2 * torch.tensor([12, 8]) - 0.5
    assert torch.allclose(pixels[:2], torch.tensor([[3 + 1 / 3, 2], [10, 6]], dtype=torch.float64), atol=1e-3)
    assert sums[0].tolist() == pytest.approx([0.6, 0.3, 0], abs=1e-4)
    heatmap = torch.rand(2, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda weights: heatmap_peaks(weights, 2), heatmap)


def test_evidence_has_gradients_and_needs_classes():
    predictor = EvidencePredictor(1, 3, (20, 20)).double()
    images = torch.rand(2, 1, 20, 20, dtype=torch.float64)
    location = predictor(images)
    sums = [part.square().sum() for part in (location.candidates, location.log_weights, location.evidence)]
    sum(sums).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in predictor.parameters())
    with pytest.raises(InputError, match="num_classes"):
        default_predictor(1, (20, 20), heatmap="evidence")
