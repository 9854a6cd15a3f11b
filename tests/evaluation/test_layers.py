"""Equivariance as a number: zero where it is exact, large where it is broken."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.evaluation.layers import OUTPUT, layer_errors
from ptn.evaluation.transforms import Similarity
from ptn.models.export import sample_images

QUARTER = ("rotation", 90.0, Similarity(90.0))
EIGHTH = ("rotation", 45.0, Similarity(45.0))
LARGER = ("scale", 1.25, Similarity(scale=1.25))


def found(model, images, transforms, **options):
    errors = layer_errors(model, images, transforms, **options)
    return {(error.layer, error.kind, error.amount): error for error in errors}


def test_every_layer_behind_a_polar_transformer_turns_exactly_by_quarters():
    model = ptn.create_model("pcnn_b", image_size=32, angles=32, r_max_px=16.0)
    errors = layer_errors(model, sample_images((1, 32, 32), 3), [QUARTER])
    assert [error.layer for error in errors] == [
        "transformer",
        *(f"classifier.features.{k}" for k in range(8)),
        OUTPUT,
    ]
    assert [error.relation for error in errors] == ["polar"] * 9 + ["same"]
    assert errors[0].shape == (1, 32, 32)
    for error in errors:
        assert error.error < 1e-4
        assert error.resampling < 1e-4


def test_without_wrapping_the_same_network_is_not_equivariant():
    model = ptn.create_model("pcnn_b", image_size=32, angles=32, wrap=False)
    errors = found(model, sample_images((1, 32, 32), 3), [QUARTER])
    assert errors["transformer", "rotation", 90.0].error < 1e-4
    assert errors["classifier.features.0", "rotation", 90.0].error > 0.02


@pytest.mark.parametrize("law", ["log", "linear"])
def test_a_dilation_is_a_known_move_along_the_radius(law):
    """A smooth image: what is left is interpolation, far less than the dilation itself changes."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 64), torch.linspace(-1, 1, 64), indexing="ij")
    images = (0.5 + 0.5 * torch.sin(7 * x + 2) * torch.cos(5 * y - 1))[None, None]
    model = ptn.create_model("pcnn_s", image_size=64, law=law, r_max_px=24.0)
    errors = found(model, images, [LARGER])
    assert errors["transformer", "scale", 1.25].error < 0.03
    both = torch.cat((images, LARGER[2].warp(images)))
    polar = ptn.polar_sample(both, torch.zeros(2, 2), model.transformer.grid)
    assert (polar[0] - polar[1]).norm() / polar[0].norm() > 0.1


def test_a_layer_that_sees_single_pixels_turns_with_the_image():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = sample_images((3, 24, 24), 3)
    errors = found(model, images, [QUARTER, EIGHTH])
    assert errors["0", "rotation", 90.0].relation == "image"
    assert errors["1", "rotation", 90.0].error < 1e-4
    assert errors[OUTPUT, "rotation", 90.0].error < 1e-4
    # by 45° everything is resampled, and what resampling does is of the size of the whole error
    eighth = errors["1", "rotation", 45.0]
    assert 0.005 < eighth.error < 3 * eighth.resampling


def test_a_layer_that_sees_one_direction_does_not():
    kernel = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        model[0].weight.copy_(kernel)
    errors = found(model, sample_images((1, 24, 24), 3), [QUARTER])
    assert errors["0", "rotation", 90.0].error > 0.9
    assert errors["0", "rotation", 90.0].resampling < 1e-4


def test_a_learned_origin_sees_the_image_and_what_follows_is_polar():
    model = ptn.create_model("ptn_cnn_b", image_size=28)
    errors = layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])
    relations = {error.layer: error.relation for error in errors}
    assert relations["members.0.transformer.predictor.body.0"] == "image"
    assert relations["members.0.transformer.predictor.head"] == "image"
    assert relations["members.0.transformer"] == "polar"
    assert relations["members.0.classifier.features.7"] == "polar"
    assert relations["members.1.classifier.features.0"] == "image"
    assert relations[OUTPUT] == "same"


def test_what_a_spatial_transformer_made_upright_should_stay():
    model = ptn.create_model("stn_s", image_size=28)
    errors = layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])
    relations = {error.layer: error.relation for error in errors}
    assert relations["transformer.localiser.0"] == "image"
    assert relations["classifier.features.0"] == "same"


def test_cylindrical_maps_roll_too():
    model = ptn.create_model("cylindrical", image_size=16, origin="center")
    errors = found(model, sample_images((1, 16, 16, 16), 2), [QUARTER])
    assert errors["transformer", "rotation", 90.0].shape == (1, 16, 16, 16)
    assert all(error.error < 1e-4 for error in errors.values())


def test_a_network_behind_other_layers_is_looked_into():
    model = nn.Sequential(nn.BatchNorm2d(1), ptn.create_model("ccnn_s", image_size=28))
    names = [error.layer for error in layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])]
    assert names == ["0", *(f"1.classifier.features.{k}" for k in range(6)), OUTPUT]


class Stage(nn.Sequential):
    """A list with a name of its own."""


def test_lists_are_looked_into_unless_they_are_blocks():
    convs = [nn.Conv2d(1, 1, 3, padding=1) for _ in range(4)]
    model = nn.Sequential(nn.Sequential(convs[0], convs[1]), Stage(convs[2], convs[3]), nn.Flatten())
    names = [error.layer for error in layer_errors(model, sample_images((1, 12, 12), 2), [QUARTER])]
    assert names == ["0.0", "0.1", "1", OUTPUT]


def test_layers_can_be_named():
    model = ptn.create_model("ptn_s", image_size=28)
    images = sample_images((1, 28, 28), 2)
    names = ["classifier.features.1.conv", "transformer.predictor"]
    with pytest.raises(ptn.InputError, match=r"transformer\.predictor cannot be compared: it gives a Loc"):
        layer_errors(model, images, [QUARTER], names=names)
    errors = layer_errors(model, images, [QUARTER], names=names[:1])
    assert [error.layer for error in errors] == [names[0], OUTPUT]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.unused = nn.Conv2d(1, 1, 1)
        self.tokens = nn.Flatten(2)
        self.strip = nn.AdaptiveAvgPool2d((2, 24))

    def forward(self, images):
        maps = self.conv(self.conv(images))
        self.strip(maps)
        return F.pad(self.tokens(maps).mean(dim=2), (0, 1))


def test_layers_that_cannot_be_compared_are_named_with_the_reason():
    images = sample_images((1, 24, 24), 2)
    reasons = {
        "conv": "it runs 2 times",
        "unused": "it does not run",
        "tokens": "is neither a map nor a vector",
        "strip": "is no map of the image",
        "con": "did you mean 'conv'",
    }
    for name, reason in reasons.items():
        with pytest.raises(ptn.InputError, match=reason):
            layer_errors(Twice(), images, [QUARTER], names=[name])
    assert [error.layer for error in layer_errors(Twice(), images, [QUARTER])] == [OUTPUT]


def test_a_network_that_says_nothing_has_no_error():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    errors = layer_errors(model, sample_images((1, 12, 12), 2), [QUARTER])
    assert {(error.error, error.resampling) for error in errors} == {(None, None)}


def test_hooks_and_modes_are_left_as_they_were():
    model = ptn.create_model("ptn_s", image_size=28).train()
    layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])
    assert all(module.training and not module._forward_hooks for module in model.modules())
