"""Coins: their outlines, the light they are in, and where they are put."""

import itertools
import math

import pytest
import torch

from ptn.data.examples import coins
from ptn.data.examples.coins import COINS, RADII_PX, Place, cut_out, draw_coins, find_outline
from ptn.data.examples.photographs import SIZE, photograph


@pytest.fixture
def picture():
    pytest.importorskip("skimage", reason="photographs: pip install 'ptn[examples]'")
    return photograph("coins").double()


def ellipse(across, down):
    """A bright ellipse with stripes, at column 50 and row 40, on a ground that gets brighter to the right."""
    x, y = torch.arange(100.0, dtype=torch.float64) - 50, torch.arange(80.0, dtype=torch.float64)[:, None] - 40
    distance = torch.hypot(x / across, y / down)
    cover = ((1 - distance) * min(across, down) + 0.5).clamp(0, 1)
    return cover * (0.7 + 0.1 * torch.sin(x)) + (1 - cover) * (0.2 + x / 500).expand(80, 100)


def test_an_outline_is_found_to_half_a_pixel():
    angle = torch.arange(128, dtype=torch.float64) * (2 * math.pi / 128)
    truth = 1 / torch.hypot(angle.cos() / 22, angle.sin() / 18)
    found = find_outline(ellipse(22, 18), Place(50, 40, 30))
    # cut a little inside, so that nothing of the ground comes along
    assert (found - truth).max() < 0.3
    assert (found - truth).min() > -1.3


def test_what_is_cut_out_covers_the_coin_and_nothing_else():
    (light, cover), radius = cut_out(ellipse(22, 18), Place(50, 40, 30))
    assert light.shape == cover.shape == (61, 61)
    assert cover.sum() == pytest.approx(math.pi * 22 * 18, rel=0.08)
    assert radius == pytest.approx(22, abs=0.6)
    assert light[cover == 0].abs().max() == 0
    assert set(cover[:, [0, -1]].flatten().tolist()) == {0.0}


def test_the_edge_of_what_is_cut_out_is_coin_and_not_ground():
    (light, cover), _ = cut_out(ellipse(22, 18), Place(50, 40, 30))
    edge = (cover > 0) & (cover < 1)
    inside = coins.MEAN - 2 * coins.CONTRAST
    assert edge.any()
    # the ground would be at seven times the contrast below the mean
    assert light[edge].sum() / cover[edge].sum() > inside


def test_the_coins_are_apart_whole_and_in_the_same_light(picture):
    for one, other in itertools.combinations(COINS.values(), 2):
        assert math.dist(one[:2], other[:2]) > one.reach + other.reach
    for name, place in COINS.items():
        (light, cover), radius = cut_out(picture, place)
        outline = find_outline(picture, place)
        assert 0.75 * outline.max() < outline.min(), name  # they are nearly round
        assert radius < place.reach - 1, name
        mean = light.sum() / cover.sum()
        contrast = ((light / cover.clamp(min=1e-9) - mean).square() * cover).sum().div(cover.sum()).sqrt()
        assert mean == pytest.approx(coins.MEAN), name
        assert contrast == pytest.approx(coins.CONTRAST), name


def test_coins_are_whole_anywhere_large_and_small(picture, monkeypatch):
    """White coins on black, to measure where they are."""
    monkeypatch.setattr(
        coins, "cut_patches", lambda ground, count, strip, generator: torch.zeros(count, SIZE, SIZE)
    )
    (_, cover), radius = cut_out(picture, COINS["curls"])
    monkeypatch.setattr(coins, "cut_out", lambda *_: (torch.stack((cover, cover)), radius))
    images = draw_coins("curls", "train", 150, torch.Generator().manual_seed(0))
    assert images.shape == (150, SIZE, SIZE)
    area = images.sum(dim=(1, 2))
    assert area.std() / area.mean() > 0.3
    reach = (area / cover.sum()).sqrt() * radius
    assert reach.min() > RADII_PX[0] - 0.1
    assert reach.max() < RADII_PX[1] + 0.1
    places = torch.arange(SIZE, dtype=torch.float64) - (SIZE - 1) / 2
    middle = torch.stack(((images * places).sum(dim=(1, 2)), (images * places[:, None]).sum(dim=(1, 2)))) / area
    assert (middle.abs() + reach < SIZE / 2 + 0.5).all()
    assert (middle.amax(dim=1) > 18).all()
    assert (middle.amin(dim=1) < -18).all()


def test_each_ground_is_behind_a_third_and_of_the_split(picture, monkeypatch):
    asked = []

    def note(ground, count, strip, generator):
        asked.append((ground.mean().item(), count, strip))
        return torch.zeros(count, SIZE, SIZE)

    monkeypatch.setattr(coins, "cut_patches", note)
    draw_coins("curls", "valid", 10, torch.Generator().manual_seed(0))
    assert [count for _, count, _ in asked] == [4, 3, 3]
    assert {strip for *_, strip in asked} == {(292, 402)}
    assert len({mean for mean, *_ in asked}) == 3
