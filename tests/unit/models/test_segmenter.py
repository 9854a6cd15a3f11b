"""PolarSegmenter: equivariance, gradients, sectors, export, refused backbones."""

import math

import pytest
import torch
from torch import nn

import ptn
from ptn import InputError, PolarGrid, PolarSegmenter, Similarity, similarity_warp


def backbone(in_chans=1, classes=2):
    """Down by 2 and up again: a copy of the layers of a U-Net."""
    return nn.Sequential(
        *(
            nn.Conv2d(in_chans, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
        ),
        *(nn.Upsample(scale_factor=2), nn.Conv2d(8, classes, 3, padding=1)),
    )


def smooth_images(count=2, size=48):
    coarse = torch.rand(count, 1, 5, 5)
    return torch.nn.functional.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)


def test_logits_are_those_of_the_pixels_and_rotate_with_the_image():
    model = PolarSegmenter(backbone(), image_size=48, in_chans=1, origin="center").eval()
    images = smooth_images()
    logits = model(images)
    assert logits.shape == (2, 2, 48, 48)
    quarter = model(images.rot90(1, (2, 3)))
    assert (quarter - logits.rot90(1, (2, 3))).abs().max() < 1e-4  # exact: angles are a multiple of 4 strides
    pose = Similarity(2 * math.pi * 6 / model.transformer.grid.angles)
    rotated, expected = model(similarity_warp(images, pose, mode="bicubic")), similarity_warp(logits, pose)
    y, x = torch.meshgrid(*2 * [torch.arange(48) - 23.5], indexing="ij")
    inside = torch.hypot(x, y) < 18
    assert (rotated - expected)[..., inside].abs().mean() < 0.1 * logits.std()


def test_the_same_backbone_without_wrapping_has_a_seam():
    torch.manual_seed(0)
    network = backbone()
    full = PolarSegmenter(network, image_size=48, in_chans=1, origin="center").eval()
    turn = 2 * math.pi * (1 - 1e-6)
    sector = PolarGrid(48, 48, law="linear", sweep=turn)
    open_ended = PolarSegmenter(network, image_size=48, in_chans=1, origin="center", grid=sector).eval()
    images = smooth_images()
    quarter = images.rot90(1, (2, 3))
    errors = [(model(quarter) - model(images).rot90(1, (2, 3))).abs().max() for model in (full, open_ended)]
    assert errors[0] < 1e-4 < 1e-3 < errors[1]


def test_a_loss_in_the_image_has_gradients_to_backbone_and_origin():
    model = PolarSegmenter(backbone(), image_size=(40, 48), in_chans=1)
    masks = (smooth_images()[:, :, :40] > 0.5).long()[:, 0]
    nn.functional.cross_entropy(model(smooth_images()[:, :, :40]), masks).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.classifier.parameters())
    assert model.transformer.predictor.head.weight.grad.abs().max() > 0
    explanation = model.explain(smooth_images()[:, :, :40])
    assert explanation.logits.shape == (2, 2, 40, 48)
    assert explanation.origins.shape == (2, 2)
    assert explanation.feature_maps.shape[2:] == (model.transformer.grid.angles, 48)


def test_the_backbone_is_copied_and_keeps_its_state_dict():
    network = backbone(3)
    model = PolarSegmenter(network, image_size=32)
    assert {*model.classifier.state_dict()} == {*network.state_dict()}
    assert not any(module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize(
    "grid",
    [
        PolarGrid(32, 24, start=0.5, sweep=2.0),
        PolarGrid(32, 24, law="linear", r_min_px=4.0, r_max_px=20.0, outer_px=(2.0, 1.0)),
        PolarGrid(32, 24, aspect=0.7, tilt=0.3),
    ],
    ids=["sector", "two circles", "ellipse"],
)
def test_other_grids(grid):
    model = PolarSegmenter(backbone(), image_size=48, in_chans=1, grid=grid, antialias=True).eval()
    assert torch.isfinite(model(smooth_images())).all()


@pytest.mark.filterwarnings("default")  # torch.export calls deprecated functions of torch
@pytest.mark.parametrize("suffix", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_an_exported_file_gives_the_same(tmp_path, suffix):
    model = PolarSegmenter(backbone(), image_size=32, in_chans=1).eval()
    ptn.export(model, tmp_path / f"model.{suffix}")  # compares both on images
    assert (tmp_path / f"model.{suffix}").exists()


@pytest.mark.parametrize(
    ("network", "options", "word"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Upsample(scale_factor=2)), {}, "output of the backbone"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")), {}, "Upsample"),
        (nn.Identity(), {}, "no convolutions"),
        ("unet", {}, "must be a Module"),
        (backbone(), {"origin": "middle"}, "center"),
        (backbone(), {"grid": (32, 32)}, "PolarGrid"),
        (backbone(), {"grid": PolarGrid(31, 32)}, "multiple of 2"),
    ],
)
def test_what_cannot_segment_is_refused(network, options, word):
    with pytest.raises(InputError, match=word):
        PolarSegmenter(network, image_size=32, in_chans=1, **options)(torch.rand(1, 1, 32, 32))
