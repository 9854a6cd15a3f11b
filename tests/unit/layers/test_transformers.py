"""Tests of the polar, cylindrical and spatial transformers."""

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
from ptn.geometry import disc_frame, sample
from ptn.layers import ConvBlock

GRID = PolarGrid(8, 8)


def make_predictor(channels=1):
    return OriginPredictor(ConvBlock(channels, 4), 4)


def test_without_a_predictor_the_origin_is_the_centre():
    images, grid = torch.rand(2, 3, 20, 30), PolarGrid(16, 12)
    layer = PolarTransformer(grid)
    assert torch.equal(layer(images), polar_sample(images, torch.zeros(2, 2), grid))
    assert "origin='center'" in repr(layer)


def test_a_learned_origin_takes_one_line():
    layer = PolarTransformer(GRID, origin="learned", in_chans=3)
    images = torch.rand(2, 3, 20, 20)
    layer(images).mean().backward()
    assert layer.predictor.head.weight.grad is not None
    assert layer.locate(images).heatmap.shape == (2, 10, 10)
    assert "origin='learned'" in repr(layer)


def test_an_origin_that_is_passed_overrides_the_predicted_one():
    images, origin = torch.rand(2, 1, 20, 20), torch.tensor([[0.1, 0.2], [0.0, -0.3]])
    layer = PolarTransformer(GRID, make_predictor(), origin_jitter_px=3)
    assert torch.equal(layer(images, origin), polar_sample(images, origin, GRID))


def test_the_predictor_reads_the_guide():
    images, guide = torch.rand(2, 1, 20, 20), torch.rand(2, 1, 20, 20)
    layer = PolarTransformer(GRID, make_predictor()).eval()
    nn.init.normal_(layer.predictor.head.weight)
    assert torch.equal(layer(images, guide=guide), layer(images, layer.locate(guide).origin))


def test_the_predictor_learns_through_the_sampling():
    """Trained only to make the polar image bright near its origin, it finds a blob at random positions."""
    generator = torch.Generator().manual_seed(0)
    body = nn.Sequential(ConvBlock(1, 8), ConvBlock(8, 8))
    layer = PolarTransformer(PolarGrid(8, 8, r_max_px=6), OriginPredictor(body, 8))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    span = torch.arange(24.0)

    def make_batch():
        centre = torch.rand(32, 2, generator=generator) * 14 + 5
        x, y = centre[:, 0, None, None], centre[:, 1, None, None]
        images = torch.exp(-((span[None, None] - x) ** 2 + (span[None, :, None] - y) ** 2) / 8)[:, None]
        return images, (2 * centre + 1) / 24 - 1

    for _ in range(60):
        images, _ = make_batch()
        optimizer.zero_grad()
        (-layer(images).mean()).backward()
        optimizer.step()
    images, centre = make_batch()
    error_px = (layer.eval().locate(images).origin - centre).norm(dim=1) * 12
    assert error_px.median() < 1.5


@pytest.mark.parametrize("compiled", [False, True])
def test_samples_around_an_origin_that_is_not_finite_are_nan(compiled):
    layer = PolarTransformer(GRID, make_predictor()).eval()
    images = torch.rand(2, 1, 9, 9)
    images[1] = torch.nan  # the heatmap becomes NaN, and with it the origin
    clean = torch.rand(2, 1, 9, 9)
    sample = torch.compile(layer, backend="eager", fullgraph=True) if compiled else layer
    polar = sample(clean, guide=images)
    assert torch.isfinite(polar[0]).all()
    assert torch.isnan(polar[1]).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"origin": "learned"}, "in_chans"),
        ({"origin": "middle"}, "center"),
        ({"mode": "linear"}, "bilinear"),
        ({"origin_jitter_px": -1.0}, "origin_jitter_px"),
    ],
)
def test_invalid_options_are_refused(options, word):
    with pytest.raises(InputError, match=word):
        PolarTransformer(GRID, **options)


def test_the_axis_is_predicted_from_the_slices_as_channels():
    layer = CylindricalTransformer(PolarGrid(12, 5), make_predictor(6), origin_jitter_px=2)
    volumes = torch.rand(2, 2, 8, 8, 3)
    assert layer(volumes).shape == (2, 2, 12, 5, 3)
    assert layer.locate(volumes).heatmap.shape == (2, 8, 8)
    axis = torch.tensor([[0.2, 0.0], [0.0, 0.2]])
    assert torch.equal(layer(volumes, axis), cylindrical_sample(volumes, axis, PolarGrid(12, 5)))


class Pose(nn.Module):
    """A localiser with a fixed pose."""

    def __init__(self, *values):
        super().__init__()
        self.values = torch.tensor(values)

    def forward(self, images):
        return self.values.expand(len(images), 4)


def test_the_spatial_transformer_undoes_a_pose():
    span = torch.arange(64.0) - 31.5
    image = torch.exp(-((span[None] - 3) ** 2 / 60 + (span[:, None] + 2) ** 2 / 20))[None, None]
    warped = similarity_warp(image, Similarity(0.5, 1.3, (7.0, -5.0)), mode="bicubic")
    pose = Pose(-math.log(1.3), -0.5, 7 * 2 / 64, -5 * 2 / 64)
    restored = SpatialTransformer(pose, mode="bicubic")(warped)
    assert (restored - image).abs().max() < 0.02


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_the_frame_is_one_more_channel_that_quarter_turns_roll(mode):
    images, origin = torch.rand(2, 3, 20, 20).double(), torch.tensor([[0.1, 0.2], [-0.6, 0.5]]).double()
    layer = PolarTransformer(GRID, frame="disc", mode=mode)
    samples = layer(images, origin)
    assert torch.equal(samples[:, :3], polar_sample(images, origin, GRID, mode=mode))
    turned = layer(images.rot90(-1, (2, 3)), torch.stack((-origin[:, 1], origin[:, 0]), dim=1))
    assert torch.allclose(turned, samples.roll(2, dims=2), rtol=0, atol=1e-13)


def test_many_images_have_the_frames_of_each(monkeypatch):
    monkeypatch.setattr(sample, "_CHUNK_BYTES", 2**12)  # so that threads sample them
    images, origin = torch.rand(40, 1, 12, 12), torch.rand(40, 2) - 0.5
    layer = PolarTransformer(GRID, frame="disc", mode="bicubic")
    each = [layer(image[None], point[None]) for image, point in zip(images, origin, strict=True)]
    assert torch.allclose(layer(images, origin), torch.cat(each), atol=1e-6)


def test_the_frame_is_a_soft_disc_around_the_middle_of_the_image():
    grid = PolarGrid(8, 10, r_max_px=20, law="linear")  # radii 0, 2, 4, … px
    frame = disc_frame(torch.zeros(1, 2), grid, (20, 30))[0, 0]
    assert torch.allclose(frame, torch.sigmoid(10 - 2 * torch.arange(10.0)).expand(8, 10))
    origin = torch.tensor([[0.5, -0.25]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda o: disc_frame(o, grid, (20, 30)), origin)
    edge = torch.tensor([[1.0, 0.0]], requires_grad=True)  # a point of the grid is at the middle
    disc_frame(edge, PolarGrid(4, 3, r_max_px=30, law="linear"), (20, 20)).sum().backward()
    assert edge.grad.isfinite().all()
