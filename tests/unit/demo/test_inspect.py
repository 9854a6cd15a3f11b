"""Results shown by the demo are those of the networks."""

import math

import pytest
import torch

import ptn
from ptn.demo.inspect import count_correct, distinct_channels, inspect_image, place, predict_ring
from ptn.demo.models import Pair, Samples, load_samples
from ptn.geometry import Similarity


@pytest.fixture(scope="module")
def digit():
    return load_samples("digits").images[2] / 255


def test_results_are_those_of_the_networks(pair, digit):
    result = inspect_image(pair, digit, Similarity(0.5, 1.1, (2.0, -1.0)))
    expected = pair.polar.explain(result.image[None])
    assert torch.equal(result.polar_image, expected.polar_images[0])
    assert result.origin == pytest.approx(tuple(expected.origins[0].tolist()))
    assert result.polar_probabilities == pytest.approx(expected.logits[0].softmax(0).tolist())
    assert result.plain_probabilities == pytest.approx(pair.plain(result.image[None])[0].softmax(0).tolist())
    assert len(result.features) == 3
    assert 0 <= result.heatmap.min() <= result.heatmap.max() <= 1


def test_the_ring_has_the_predictions_at_every_angle(pair, digit):
    pose = Similarity(1.0, 1.1, (2.0, -1.0))  # its angle does not matter
    clutter = torch.zeros(1, 28, 28)
    clutter[0, :3] = 1
    polar, plain = predict_ring(pair, digit, pose, 8, clutter)
    for step in range(8):
        turned = Similarity(step * math.pi / 4, 1.1, (2.0, -1.0))
        single = inspect_image(pair, digit, turned, clutter=clutter)
        assert (single.image[0, :3] == 1).all()
        for probabilities, labels in ((single.polar_probabilities, polar), (single.plain_probabilities, plain)):
            assert max(probabilities) - probabilities[labels[step]] < 1e-5


def test_correct_predictions_are_counted(pair):
    """Of samples whose labels are the predictions themselves, all are correct; with other labels none."""
    pose, images = Similarity(0.3), load_samples("digits").images[:150]
    logits = pair.polar(place(images / 255, pose, (28, 28), 1))
    labels = logits.argmax(dim=1)
    samples = (Samples(images, each, "digits") for each in (labels, (labels + 1) % 10))
    right, wrong = (count_correct(pair, part, pose) for part in samples)
    assert (right["count"], right["polar"], wrong["polar"]) == (150, 150, 0)
    assert right["plain"] + wrong["plain"] <= 150


def test_the_pose_moves_a_point():
    spot = torch.zeros(1, 9, 9)
    spot[0, 4, 6] = 1  # two pixels right of the center
    placed = place(spot[None], Similarity(math.pi / 2, 1.0, (1.0, 0.0)), (9, 9), 1)
    assert placed[0, 0, 6, 5] == pytest.approx(1, abs=1e-5)  # rotated clockwise to below, then one to the right


def test_scaling_down_does_not_alias():
    stripes = torch.zeros(1, 64, 64)
    stripes[:, :, ::2] = 1
    middle = place(stripes[None], Similarity(scale=0.25), (16, 16), 1)[0, 0, 4:12, 4:12]
    assert torch.allclose(middle, torch.full_like(middle, 0.5), atol=0.07)


def test_color_and_gray_images_are_converted():
    green = torch.zeros(3, 8, 8)
    green[1] = 1
    assert place(green[None], Similarity(), (8, 8), 1)[0, 0, 4, 4] == pytest.approx(0.587)
    assert place(green[None, 1:2], Similarity(), (8, 8), 3).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(("angle", "scale"), [(33, 1), (250, 1), (0, 2), (90, 1.5)])
def test_a_rotation_moves_the_pin_down_and_scaling_moves_it_right(pair, angle, scale):
    """The origin of an untrained PTN is the center of the image."""
    poses = (Similarity(), Similarity(math.radians(angle), scale))
    before, after = (inspect_image(pair, torch.zeros(1, 28, 28), pose, (0, -6)).polar_pin for pose in poses)
    down = after[1] - before[1] - angle / 360
    assert down == pytest.approx(round(down), abs=1e-6)
    radius = pair.transformer.grid.outer_radius((28, 28))
    assert after[0] - before[0] == pytest.approx(math.log(scale) / math.log(radius))


def test_the_pin_is_at_the_pixel_of_its_point(pair):
    spot = torch.zeros(1, 28, 28)
    spot[0, 20:23, 18:21] = 1
    pin = (19 - 13.5, 21 - 13.5)
    result = inspect_image(pair, spot, Similarity(), pin)
    column, row = (share * 28 - 0.5 for share in result.polar_pin)
    weights = result.polar_image[0] / result.polar_image[0].sum()
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    assert float((weights * rows).sum()) == pytest.approx(row, abs=0.4)
    assert float((weights * columns).sum()) == pytest.approx(column, abs=0.6)
    assert result.pin == pytest.approx((0.5 + pin[0] / 28, 0.5 + pin[1] / 28))


def test_distinct_channels_vary_and_differ():
    maps = torch.zeros(5, 4, 4)
    maps[1, 0, 0] = 3.0
    maps[2] = maps[1] * 0.9
    maps[3, 2, 2] = 1.0
    maps[4] = 5.0
    assert distinct_channels(maps, 2) == [1, 3]


def test_other_backbones_have_no_feature_maps(timm):
    backbone = timm.create_model("resnet18", num_classes=4, in_chans=1)
    network = ptn.polarize(backbone, image_size=32, in_chans=1).eval()
    single = Pair("own", "own", network, None)
    result = inspect_image(single, torch.rand(1, 32, 32), Similarity())
    assert (result.features, result.plain_probabilities) == ([], None)
    assert sum(result.polar_probabilities) == pytest.approx(1, abs=1e-5)
