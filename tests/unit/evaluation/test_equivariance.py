"""Equivariance errors: zero where equivariance is exact, large where it is broken."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.evaluation.equivariance import OUTPUT, Transform, disc, layer_errors
from ptn.layers import Location
from ptn.models.export import sample_images

QUARTER = Transform.of("rotation", 90.0)


def smooth_image(size=64):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    return (0.5 + 0.5 * torch.sin(7 * x + 2) * torch.cos(5 * y - 1))[None, None]


def test_layers_after_a_polar_transformer_are_equivariant_to_quarter_rotations():
    model = ptn.create_model("pcnn_b", image_size=32, angles=32, r_max_px=16.0)
    errors = layer_errors(model, sample_images((1, 32, 32), 3), [QUARTER])
    names = ["transformer", *(f"classifier.features.{k}" for k in range(8)), OUTPUT]
    assert [error.layer for error in errors] == names
    assert [error.relation for error in errors] == ["polar"] * 9 + ["invariant"]
    assert errors[0].shape == (1, 32, 32)
    assert all(error.error < 1e-4 for error in errors)


def test_layers_are_compared_around_the_first_of_several_origins():
    model = ptn.create_model("ptn_b", image_size=32, heatmap="evidence", angles=32, r_max_px=16.0)
    candidates = torch.tensor([[[0.0, 0.0], [0.3, 0.1]]])
    fixed = Location(candidates[:, 0], None, None, candidates, torch.tensor([[0.0, -99.0]]))
    model.transformer.locate = lambda images: Location(
        *(p if p is None else p.expand(len(images), *p.shape[1:]) for p in fixed)
    )
    errors = layer_errors(model, sample_images((1, 32, 32), 3), [QUARTER])
    assert [error.relation for error in errors] == ["polar"] * 9 + ["invariant"]
    assert all(error.error < 1e-4 for error in errors)


@pytest.mark.parametrize("law", ["log", "linear"])
def test_a_dilation_moves_the_polar_image_along_the_radius(law):
    model = ptn.create_model("pcnn_s", image_size=64, law=law, r_max_px=24.0)
    images = smooth_image()
    first = layer_errors(model, images, [Transform.of("scale", 1.25)])[0]
    assert (first.layer, first.error < 0.03) == ("transformer", True)
    both = torch.cat((images, ptn.similarity_warp(images, ptn.Similarity(scale=1.25))))
    polar = ptn.polar_sample(both, torch.zeros(2, 2), model.transformer.grid)
    assert (polar[0] - polar[1]).norm() / polar[0].norm() > 0.1


def test_the_error_of_a_layer():
    images = smooth_image()
    pointwise = ptn.equivariance_error(nn.Conv2d(1, 8, 1), images, angles=[45, 90], shifts_px=[3])
    assert pointwise["rotation"][90.0] < 1e-4
    assert pointwise["shift"][3.0] < 1e-4
    assert 1e-4 < pointwise["rotation"][45.0] < 0.02  # interpolation
    gradient = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    with torch.no_grad():
        gradient.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    directional = ptn.equivariance_error(gradient, images, angles=[90], scales=[], shifts_px=[3])
    assert directional["rotation"][90.0] > 0.9
    assert directional["shift"][3.0] < 1e-4
    assert "scale" not in directional


def test_the_error_of_transformers_and_of_what_follows_them():
    grid = ptn.PolarGrid(64, 64, r_max_px=24.0)
    layer = ptn.PolarTransformer(grid)
    errors = ptn.equivariance_error(layer, smooth_image())
    assert errors["rotation"][90.0] < 1e-4
    assert errors["scale"][1.25] < 0.03
    assert ptn.equivariance_error(nn.Sequential(layer, nn.ReLU()), smooth_image()) == errors


def test_the_error_of_a_layer_of_polar_images():
    polar = torch.rand(2, 3, 32, 20)
    wrapped = ptn.equivariance_error(ptn.WrapConv2d(3, 4, 3), polar, angles=[45, 90], polar=True)
    zeros = ptn.equivariance_error(nn.Conv2d(3, 4, 3, padding=1), polar, angles=[45, 90], polar=True)
    assert all(error < 1e-5 for error in wrapped["rotation"].values())
    assert all(error > 0.05 for error in zeros["rotation"].values())
    assert "scale" not in wrapped


@pytest.mark.parametrize(
    ("name", "relations"),
    [
        (
            "ptn_cnn_b",
            {
                "members.0.transformer.predictor.body.0": "image",
                "members.0.transformer.predictor.head": "image",
                "members.0.transformer": "polar",
                "members.0.classifier.features.7": "polar",
                "members.1.classifier.features.0": "image",
                OUTPUT: "invariant",
            },
        ),
        ("stn_s", {"classifier.features.0": "invariant", OUTPUT: "invariant"}),
    ],
)
def test_the_relation_of_layers_to_the_image(name, relations):
    model = ptn.create_model(name, image_size=28)
    errors = layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])
    assert {error.layer: error.relation for error in errors}.items() >= relations.items()


def test_cylindrical_maps_roll_too():
    model = ptn.create_model("cylindrical", image_size=16, origin="center")
    errors = layer_errors(model, sample_images((1, 16, 16, 16), 2), [QUARTER])
    assert (errors[0].layer, errors[0].shape) == ("transformer", (1, 16, 16, 16))
    assert all(error.error < 1e-4 for error in errors)


class Stage(nn.Sequential):
    """A subclass of a container is one block."""


def test_blocks_are_the_elements_of_containers():
    convs = [nn.Conv2d(1, 1, 3, padding=1) for _ in range(4)]
    model = nn.Sequential(nn.Sequential(convs[0], convs[1]), Stage(convs[2], convs[3]), nn.Flatten())
    names = [error.layer for error in layer_errors(model, sample_images((1, 12, 12), 2), [QUARTER])]
    assert names == ["0.0", "0.1", "1", OUTPUT]


class Awkward(nn.Module):
    """A layer that runs twice, one that does not run, tokens and a map of other proportions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.unused = nn.Conv2d(1, 1, 1)
        self.tokens = nn.Flatten(2)
        self.strips = nn.Sequential(nn.AdaptiveAvgPool2d((2, 24)))

    def forward(self, images):
        maps = self.conv(self.conv(images))
        self.strips(maps)
        return F.pad(self.tokens(maps).mean(dim=2), (0, 1))


def test_layers_that_cannot_be_compared_are_left_out():
    images = sample_images((1, 24, 24), 2)
    assert [error.layer for error in layer_errors(Awkward(), images, [QUARTER])] == [OUTPUT]
    with pytest.raises(ptn.InputError, match="cannot be compared"):
        ptn.equivariance_error(nn.Flatten(2), images)


def test_maps_of_zeros_have_no_error():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    errors = layer_errors(model, sample_images((1, 12, 12), 2), [QUARTER])
    assert {error.error for error in errors} == {None}
    assert math.isnan(ptn.equivariance_error(model, smooth_image())["rotation"][90.0])


def test_hooks_and_modes_are_restored():
    model = ptn.create_model("ptn_s", image_size=28).train()
    layer_errors(model, sample_images((1, 28, 28), 2), [QUARTER])
    assert all(module.training and not module._forward_hooks for module in model.modules())


def test_the_disc_stays_inside_the_rotated_image():
    ones = torch.ones(1, 1, 20, 26)
    mask = disc(ones)
    assert 0.4 < mask.mean() < 0.75
    for degrees in (17, 45, 130):
        rotated = ptn.similarity_warp(ones, ptn.Similarity(math.radians(degrees)))
        assert rotated[0, 0][mask > 0].min() > 0.999
    assert disc(ones, share=0.5).sum() < 0.3 * mask.sum()
    assert all(disc(torch.ones(1, 1, side, side), share=0.1).sum() >= 1 for side in range(1, 5))
    assert torch.equal(disc(torch.ones(1, 1, 12, 14, 6)), disc(torch.ones(1, 1, 14, 12)).T[..., None])


def test_a_sector_is_refused():
    layer = ptn.PolarTransformer(ptn.PolarGrid(8, 8, sweep=3.0))
    with pytest.raises(ptn.InputError, match="full circles"):
        ptn.equivariance_error(layer, torch.rand(1, 1, 16, 16))
