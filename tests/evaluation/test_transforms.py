"""What an audit does to images, and that the way back undoes it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn.evaluation.transforms import IDENTITY, Similarity, disc
from ptn.models.export import sample_images

numbers = st.floats(-400, 400)


@given(numbers, st.floats(0.3, 3), numbers, numbers)
@settings(max_examples=60, deadline=None)
def test_the_inverse_undoes_the_transform(degrees, scale, x, y):
    forth = Similarity(degrees, scale, (x, y))
    back = forth.inverse()

    def apply(transform, point):
        cos, sin = (f(math.radians(transform.degrees)) for f in (math.cos, math.sin))
        turned = (cos * point[0] - sin * point[1], sin * point[0] + cos * point[1])
        return tuple(
            transform.scale * value + shift for value, shift in zip(turned, transform.shift_px, strict=True)
        )

    for point in ((0.0, 0.0), (3.0, -7.0)):
        assert apply(back, apply(forth, point)) == pytest.approx(point, abs=1e-6 * (1 + abs(x) + abs(y)) / scale)


def dot(x, y):
    image = torch.zeros(1, 1, 21, 31)
    image[0, 0, y, x] = 1
    return image


def test_a_quarter_turn_carries_right_to_below():
    turned = Similarity(90).warp(dot(15 + 6, 10), size=(31, 31))
    assert turned[0, 0, 15 + 6, 15] == pytest.approx(1, abs=1e-4)
    moved = Similarity(shift_px=(3, -2)).warp(dot(15, 10))
    assert moved[0, 0, 8, 18] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("transform", "size", "exact"),
    [
        (Similarity(90), (24, 24), True),
        (Similarity(270), (25, 25), True),
        (Similarity(180), (24, 30), True),
        (Similarity(90), (24, 31), False),
        (Similarity(shift_px=(3, -2)), (24, 30), True),
        (Similarity(shift_px=(0.5, 0)), (24, 30), False),
        (Similarity(30), (24, 24), False),
        (Similarity(scale=1.3), (24, 24), False),
    ],
)
def test_resampling_is_nothing_exactly_where_pixels_move_onto_pixels(transform, size, exact):
    assert (transform.resampling(size) == IDENTITY) == exact
    images = sample_images((3, *size), 2)
    gap = (transform.there_and_back(images) - images).abs()
    assert (gap.max() < 1e-4) == exact
    assert gap.mean() < 0.06  # nothing is cut off, and nothing moves


@pytest.mark.parametrize("degrees", [120, 210, 300])
def test_turns_that_differ_by_right_angles_resample_a_square_alike(degrees):
    images = sample_images((1, 24, 24), 2)
    base = Similarity(degrees).resampling((24, 24))
    assert base == Similarity(30)
    assert torch.allclose(Similarity(degrees).there_and_back(images), base.there_and_back(images), atol=1e-4)


def test_what_is_in_the_disc_stays_in_it_when_the_image_turns():
    ones = torch.ones(1, 1, 20, 26)
    window = disc(ones)
    assert 0.4 < window.mean() < 0.75
    for degrees in (17, 45, 130):
        assert Similarity(degrees).warp(ones, mode="bilinear")[0, 0][window > 0].min() > 0.999
    assert disc(ones, share=0.5).sum() < 0.3 * window.sum()


@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_a_disc_is_never_empty(side):
    assert disc(torch.ones(1, 1, side, side), share=0.1).sum() >= 1


def test_volumes_turn_about_z():
    volumes = sample_images((1, 12, 14, 6), 2)
    window = disc(volumes)
    assert window.shape == (12, 14, 1)
    assert torch.equal(window, disc(torch.ones(1, 1, 14, 12)).T[..., None])
    assert torch.allclose(Similarity(180).warp(volumes), volumes.flip(2, 3), atol=1e-4)
