"""The paper's architectures to the letter: filters, strides, kernels, and what the options reach."""

import pytest
import torch
from torch import nn

import ptn
from ptn.layers import ConvBlock


def blocks(module):
    """(filters, stride along the angle, stride along the radius, kernel) of each block in order."""
    convs = [block.conv for block in module.modules() if isinstance(block, ConvBlock)]
    return [(conv.out_channels, *conv.stride, conv.kernel_size[0]) for conv in convs]


STACKS = {
    ("s", 28): [(20, s, s, 3) for s in (1, 2, 1, 1, 1, 1)],
    ("s", 42): [(20, s, s, 3) for s in (2, 1, 2, 1, 1, 1, 1)],
    ("s", 96): [(20, s, s, 3) for s in (2, 2, 1, 2, 1, 1, 1, 1)],
    ("b", 28): [
        (f, s, s, 3) for f, s in zip((16, 16, 32, 32, 32, 64, 64, 64), (1, 1, 2, 1, 1, 2, 1, 1), strict=True)
    ],
    ("b", 42): [
        (f, s, s, 3)
        for f, s in zip((16, 16, 16, 16, 32, 32, 32, 64, 64, 64), (1, 2, 1, 1, 2, 1, 1, 2, 1, 1), strict=True)
    ],
    ("b", 96): [
        (f, s, s, 3)
        for f, s in zip((16, 16, 16, 16, 32, 32, 32, 64, 64, 64), (2, 2, 1, 1, 2, 1, 1, 2, 1, 1), strict=True)
    ],
}


@pytest.mark.parametrize(("stack", "size"), STACKS)
@pytest.mark.parametrize("family", ["ptn", "pcnn", "ccnn", "stn"])
def test_stacks_are_the_papers(family, stack, size):
    model = ptn.create_model(f"{family}_{stack}", image_size=size)
    assert blocks(model.classifier.features) == STACKS[stack, size]
    assert model.classifier.head.kernel_size == (3, 3)


@pytest.mark.parametrize(("size", "strides"), [(28, (2, 1, 1)), (42, (2, 1, 1)), (96, (2, 2, 1)), (224, (2, 2, 2))])
def test_the_origin_predictor_is_the_papers(size, strides):
    predictor = ptn.create_model("ptn_b", image_size=size).transformer.predictor
    assert blocks(predictor.body) == [(20, stride, stride, 3) for stride in strides]
    assert predictor.head.kernel_size == (1, 1)


def test_the_localiser_of_stn_is_four_blocks_at_stride_2_and_20_units():
    localiser = ptn.create_model("stn_b").transformer.localiser
    assert blocks(localiser) == [(20, 2, 2, 3)] * 4
    units = [layer.out_features for layer in localiser if isinstance(layer, nn.Linear)]
    assert units == [20, 4]


def test_stack_l_samples_twice_the_angles_and_halves_them_at_once():
    model = ptn.create_model("ptn_l")
    assert model.transformer.grid.angles == 56
    first, *others = blocks(model.classifier.features)
    assert first == (24, 2, 1, 5)
    assert {kernel for *_, kernel in others} == {5}


def test_the_cylindrical_network_is_the_papers():
    model = ptn.create_model("cylindrical", image_size=32, num_classes=40)
    convs = [block.conv for block in model.classifier.features]
    assert [conv.out_channels for conv in convs] == [32, 32, 32, 64, 64, 64, 128, 128]
    assert [conv.stride for conv in convs] == [(s, s, s) for s in (1, 1, 1, 2, 1, 1, 2, 1)]
    axis = [block.conv for block in model.transformer.polar.predictor.body]
    assert [(conv.in_chans, conv.out_channels) for conv in axis] == [(32, 32), (32, 16), (16, 8), (8, 4)]
    assert {conv.kernel_size for conv in axis} == {(5, 5)}
    assert {conv.stride for conv in axis} == {(1, 1)}


def test_the_cartesian_control_is_the_same_classifier_without_wrapping():
    cylindrical, cartesian = (
        ptn.create_model(name, image_size=32, num_classes=40) for name in ("cylindrical", "ccnn_3d")
    )
    shapes = [
        [(conv.kernel_size, conv.stride, conv.weight.shape) for conv in convolutions(model.classifier)]
        for model in (cylindrical, cartesian)
    ]
    assert shapes[0] == shapes[1]
    assert {type(conv) for conv in convolutions(cylindrical.classifier.features)} == {ptn.WrapConv3d}
    assert {type(conv) for conv in convolutions(cartesian.classifier.features)} == {nn.Conv3d}


def convolutions(module):
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv3d)]


def test_the_strong_voxel_network_halves_at_once_and_wraps_throughout():
    model = ptn.create_model("cylindrical_l", image_size=16, in_chans=2, num_classes=4).eval()
    first, *others = convolutions(model.classifier)
    assert (first.in_chans, first.stride) == (2, (2, 2, 2))
    assert all(isinstance(conv, ptn.WrapConv3d) for conv in (first, *others))
    explanation = model.explain(torch.rand(1, 2, 16, 16, 16))
    assert explanation.polar_images.shape == (1, 2, 16, 16, 16)
    assert explanation.feature_maps.shape == (1, 128, 2, 2, 2)
    assert explanation.heatmaps.shape == (1, 8, 8)


def test_the_cylinder_may_be_logarithmic():
    model = ptn.create_model("cylindrical_l", image_size=16, law="log")
    assert model.transformer.polar.grid == ptn.PolarGrid(16, 16, r_max_px=8.0)


def test_resnet32_has_32_layers():
    model = ptn.create_model("resnet32")
    weighted = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weighted) == 32
    predictor = ptn.create_model("ptn_resnet32").transformer.predictor
    assert len([m for m in predictor.body.modules() if isinstance(m, nn.Conv2d)]) == 1 + 8


def test_an_early_stride_along_the_angle_brings_finer_polar_images_to_the_usual_size():
    for name in ("ptn_s", "ptn_resnet32"):
        usual = ptn.create_model(name).explain(torch.rand(1, 1, 28, 28))
        finer = ptn.create_model(name, angles=56, angle_stride=2).explain(torch.rand(1, 1, 28, 28))
        assert finer.polar_images.shape == (1, 1, 56, 28)
        assert finer.feature_maps.shape == usual.feature_maps.shape


def test_a_heatmap_may_start_broader():
    head = ptn.create_model("ptn_resnet32", heatmap_bias=4.0).transformer.predictor.head
    assert head.bias.tolist() == [4.0]
    assert not head.weight.any()
    assert ptn.create_model("ptn_resnet32").transformer.predictor.head.bias.tolist() == [1.0]


def test_origins_are_jittered_by_two_pixels_where_they_are_learned():
    assert ptn.create_model("ptn_b").transformer.jitter.amount_px == 2
    assert ptn.create_model("pcnn_b").transformer.jitter.amount_px == 0
    assert ptn.create_model("ptn_b", origin_jitter_px=0.5).transformer.jitter.amount_px == 0.5


def test_the_predictor_sees_the_normalised_image():
    model = ptn.create_model("ptn_s").eval()
    model.set_normalization([0.3], [0.2])
    seen = []
    model.transformer.predictor.body.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.rand(2, 1, 28, 28)
    model(images)
    model.explain(images)
    for tensor in seen:
        assert torch.allclose(tensor, (images - 0.3) / 0.2, atol=1e-5)


@pytest.mark.parametrize("name", ["ptn_s", "cylindrical"])
def test_sampling_options_reach_the_sampler(name):
    images = torch.rand(1, 1, *(20,) * (3 if name == "cylindrical" else 2))
    origin = torch.tensor([[0.13, 0.31]])
    polar = {}
    for mode in ("bilinear", "bicubic", "nearest"):
        model = ptn.create_model(name, image_size=20, mode=mode)
        polar[mode] = model.transformer.sample(images, origin)
    assert (polar["bilinear"] - polar["bicubic"]).abs().max() > 1e-3
    assert (polar["bilinear"] - polar["nearest"]).abs().max() > 1e-3


def test_padding_and_grid_options_reach_the_sampler():
    images, origin = torch.ones(1, 1, 20, 20), torch.tensor([[0.9, 0.9]])
    zeros = ptn.create_model("ptn_s", image_size=20).transformer.sample(images, origin)
    border = ptn.create_model("ptn_s", image_size=20, padding_mode="border").transformer.sample(images, origin)
    assert zeros.min() == 0
    assert border.min() == pytest.approx(1)
    grid = ptn.create_model("ptn_s", angles=40, radii=12, r_min_px=0.5, r_max_px=9.0).transformer.grid
    assert grid == ptn.PolarGrid(40, 12, r_min_px=0.5, r_max_px=9.0)
    assert ptn.create_model("ptn_s", law="linear").transformer.grid.law == "linear"
