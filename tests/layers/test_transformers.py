"""The transformers: image in, canonical image out."""

import math

import pytest
import torch
from torch import nn

from ptn import (
    CylindricalTransformer,
    InputError,
    OriginPredictor,
    PolarGrid,
    PolarTransformer,
    Similarity,
    SpatialTransformer,
    cylindrical_sample,
    polar_sample,
    similarity_warp,
)
from ptn.layers import ConvBlock


def test_without_a_predictor_the_origin_is_the_middle():
    images, grid = torch.rand(2, 3, 20, 30), PolarGrid(16, 12)
    expected = polar_sample(images, torch.zeros(2, 2), grid)
    assert torch.equal(PolarTransformer(grid)(images), expected)


def test_a_given_origin_overrides_the_predicted_one():
    images, origin, grid = torch.rand(2, 1, 20, 20), torch.tensor([[0.1, 0.2], [0.0, -0.3]]), PolarGrid(8, 8)
    layer = PolarTransformer(grid, OriginPredictor(ConvBlock(1, 4), 4), origin_jitter_px=3)
    assert torch.equal(layer(images, origin), polar_sample(images, origin, grid))


def test_jitter_is_for_training_only():
    images = torch.rand(2, 1, 20, 20)
    layer = PolarTransformer(PolarGrid(8, 8), origin_jitter_px=3)
    assert not torch.equal(layer(images), layer(images))
    layer.eval()
    assert torch.equal(layer(images), layer(images))


def test_the_predictor_learns_through_the_sampling():
    """Trained only to make the polar image bright near its origin, it finds a blob that moves about."""
    generator = torch.Generator().manual_seed(0)
    body = nn.Sequential(ConvBlock(1, 8), ConvBlock(8, 8))
    layer = PolarTransformer(PolarGrid(8, 8, r_max_px=6), OriginPredictor(body, 8))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    span = torch.arange(24.0)

    def batch():
        centre = torch.rand(32, 2, generator=generator) * 14 + 5
        x, y = centre[:, 0, None, None], centre[:, 1, None, None]
        images = torch.exp(-((span[None, None] - x) ** 2 + (span[None, :, None] - y) ** 2) / 8)[:, None]
        return images, (2 * centre + 1) / 24 - 1

    for _ in range(60):
        images, _ = batch()
        optimizer.zero_grad()
        (-layer(images).mean()).backward()
        optimizer.step()
    images, centre = batch()
    error_px = (layer.eval().locate(images).origin - centre).norm(dim=1) * 12
    assert error_px.median() < 1.5


def test_a_broken_predictor_gives_nan_not_black():
    layer = PolarTransformer(PolarGrid(8, 8), OriginPredictor(ConvBlock(1, 4), 4))
    nn.init.constant_(layer.predictor.head.bias, torch.nan)
    assert torch.isnan(layer(torch.rand(2, 1, 9, 9))).all()


def test_the_cylinder_is_linear_and_reaches_half_the_width():
    layer = CylindricalTransformer(16)
    volumes = torch.rand(2, 1, 16, 16, 5)
    grid = PolarGrid(16, 16, law="linear", r_max_px=8)
    assert torch.equal(layer(volumes), cylindrical_sample(volumes, torch.zeros(2, 2), grid))


def test_the_cylinder_finds_its_axis_from_the_slices_as_channels():
    layer = CylindricalTransformer(8, OriginPredictor(ConvBlock(6, 4), 4), angles=12, radii=5)
    volumes = torch.rand(2, 2, 8, 8, 3)
    assert layer(volumes).shape == (2, 2, 12, 5, 3)
    assert layer.locate(volumes).heatmap.shape == (2, 8, 8)
    axis = torch.tensor([[0.2, 0.0], [0.0, 0.2]])
    assert torch.equal(layer(volumes, axis), layer.sample(volumes, axis))


class Pose(nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.values = torch.tensor(values)

    def forward(self, images):
        return self.values.expand(len(images), 4)


def test_a_pose_of_zero_is_the_identity():
    images = torch.rand(2, 1, 15, 12)
    assert torch.allclose(SpatialTransformer(Pose(0.0, 0.0, 0.0, 0.0))(images), images, atol=1e-5)


def test_the_spatial_transformer_undoes_a_pose():
    """A blob turned, enlarged and moved comes back upright, to size and to the middle."""
    span = torch.arange(64.0) - 31.5
    image = torch.exp(-((span[None] - 3) ** 2 / 60 + (span[:, None] + 2) ** 2 / 20))[None, None]
    moved = similarity_warp(image, Similarity(0.5, 1.3, (7.0, -5.0)), mode="bicubic")
    pose = Pose(-math.log(1.3), -0.5, 7 * 2 / 64, -5 * 2 / 64)
    back = SpatialTransformer(pose, mode="bicubic")(moved)
    assert (back - image).abs().max() < 0.02


def test_options_are_checked_when_the_layer_is_made():
    with pytest.raises(InputError, match="did you mean 'bilinear'"):
        PolarTransformer(PolarGrid(8, 8), mode="linear")
