"""Architectures of the paper, invariance of the logits, heads, normalization, ensembles and refused images."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.layers import ConvBlock
from ptn.models import Ensemble
from ptn.models.classifiers import RowHead


def double(name, **options):
    torch.manual_seed(1)
    return ptn.create_model(name, **options).double().eval()


def blocks(module):
    """(filters, stride along the angle, stride along the radius, kernel) of each block."""
    convs = [block.conv for block in module.modules() if isinstance(block, ConvBlock)]
    return [(conv.out_channels, *conv.stride, conv.kernel_size[0]) for conv in convs]


def same_strides(filters, strides):
    return [(width, stride, stride, 3) for width, stride in zip(filters, strides, strict=True)]


WIDE = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
STACKS = {
    ("s", 28): same_strides([20] * 6, (1, 2, 1, 1, 1, 1)),
    ("s", 42): same_strides([20] * 7, (2, 1, 2, 1, 1, 1, 1)),
    ("s", 96): same_strides([20] * 8, (2, 2, 1, 2, 1, 1, 1, 1)),
    ("b", 28): same_strides(WIDE[2:], (1, 1, 2, 1, 1, 2, 1, 1)),
    ("b", 42): same_strides(WIDE, (1, 2, 1, 1, 2, 1, 1, 2, 1, 1)),
    ("b", 96): same_strides(WIDE, (2, 2, 1, 1, 2, 1, 1, 2, 1, 1)),
}


@pytest.mark.parametrize(("stack", "size"), STACKS)
@pytest.mark.parametrize("family", ["ptn", "pcnn", "ccnn", "stn"])
def test_stacks_are_those_of_the_paper(family, stack, size):
    model = ptn.create_model(f"{family}_{stack}", image_size=size)
    assert blocks(model.classifier.features) == STACKS[stack, size]
    assert model.classifier.head.kernel_size == (3, 3)


@pytest.mark.parametrize(("size", "strides"), [(28, (2, 1, 1)), (42, (2, 1, 1)), (96, (2, 2, 1)), (224, (2, 2, 2))])
def test_the_origin_predictor_is_that_of_the_paper(size, strides):
    predictor = ptn.create_model("ptn_b", image_size=size).transformer.predictor
    assert blocks(predictor.body) == [(20, stride, stride, 3) for stride in strides]


def test_stack_l_samples_twice_the_angles_and_halves_them_in_its_first_block():
    model = ptn.create_model("ptn_l")
    assert model.transformer.grid.angles == 56
    first, *others = blocks(model.classifier.features)
    assert first == (24, 2, 1, 5)
    assert {kernel for *_, kernel in others} == {5}


def convolutions(module):
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv3d)]


def test_the_cylindrical_network_is_that_of_the_paper():
    model = ptn.create_model("cylindrical", image_size=32, num_classes=40)
    convs = convolutions(model.classifier.features)
    assert [conv.out_channels for conv in convs] == [32, 32, 32, 64, 64, 64, 128, 128]
    assert [conv.stride for conv in convs] == [(s, s, s) for s in (1, 1, 1, 2, 1, 1, 2, 1)]
    axis = [block.conv for block in model.transformer.polar.predictor.body]
    assert [(conv.in_channels, conv.out_channels) for conv in axis] == [(32, 32), (32, 16), (16, 8), (8, 4)]
    assert {(conv.kernel_size, conv.stride) for conv in axis} == {((5, 5), (1, 1))}


def test_the_cartesian_baseline_for_voxels_is_the_same_classifier_without_wrapping():
    cylindrical, cartesian = (ptn.create_model(name, image_size=32) for name in ("cylindrical", "ccnn_3d"))
    shapes = [
        [(conv.kernel_size, conv.stride, conv.weight.shape) for conv in convolutions(model.classifier)]
        for model in (cylindrical, cartesian)
    ]
    assert shapes[0] == shapes[1]
    assert {type(conv) for conv in convolutions(cylindrical.classifier.features)} == {ptn.WrapConv3d}
    assert {type(conv) for conv in convolutions(cartesian.classifier.features)} == {nn.Conv3d}


def test_cylindrical_l_works_at_half_the_resolution():
    model = ptn.create_model("cylindrical_l", image_size=16, in_chans=2, num_classes=4, law="log").eval()
    first, *others = convolutions(model.classifier)
    assert (first.in_channels, first.stride) == (2, (2, 2, 2))
    assert all(isinstance(conv, ptn.WrapConv3d) for conv in (first, *others))
    explanation = model.explain(torch.rand(1, 2, 16, 16, 16))
    assert explanation.feature_maps.shape == (1, 128, 2, 2, 2)
    assert explanation.heatmaps.shape == (1, 8, 8)
    assert model.transformer.polar.grid == ptn.PolarGrid(16, 16, r_max_px=8.0)


def test_resnet32_has_32_layers_with_weights():
    assert len([m for m in ptn.create_model("resnet32").modules() if isinstance(m, nn.Conv2d | nn.Linear)]) == 32
    predictor = ptn.create_model("ptn_resnet32").transformer.predictor
    assert len([m for m in predictor.body.modules() if isinstance(m, nn.Conv2d)]) == 1 + 8


def test_learned_origins_are_jittered_by_two_pixels():
    assert ptn.create_model("ptn_b").transformer.jitter.amount_px == 2
    assert ptn.create_model("pcnn_b").transformer.jitter.amount_px == 0
    assert ptn.create_model("ptn_b", origin_jitter_px=0.5).transformer.jitter.amount_px == 0.5


@pytest.mark.parametrize("name", ["ptn_s", "cylindrical"])
def test_the_interpolation_mode_reaches_the_sampler(name):
    images = torch.rand(1, 1, *(20,) * (3 if name == "cylindrical" else 2))
    origin = torch.tensor([[0.13, 0.31]])
    polar = {}
    for mode in ("bilinear", "bicubic", "nearest"):
        polar[mode] = ptn.create_model(name, image_size=20, mode=mode).transformer.sample(images, origin)
    assert (polar["bilinear"] - polar["bicubic"]).abs().max() > 1e-3
    assert (polar["bilinear"] - polar["nearest"]).abs().max() > 1e-3


def test_padding_and_grid_options_reach_the_sampler():
    images, origin = torch.ones(1, 1, 20, 20), torch.tensor([[0.9, 0.9]])
    zeros = ptn.create_model("ptn_s", image_size=20).transformer.sample(images, origin)
    border = ptn.create_model("ptn_s", image_size=20, padding_mode="border").transformer.sample(images, origin)
    assert zeros.min() == 0
    assert border.min() == pytest.approx(1)
    for options in ({"r_min_px": 0.5}, {"law": "linear"}):
        grid = ptn.create_model("ptn_s", angles=40, radii=12, r_max_px=9.0, **options).transformer.grid
        assert grid == ptn.PolarGrid(40, 12, r_max_px=9.0, **options)


@pytest.mark.parametrize(
    ("name", "angles"), [("pcnn_s", 32), ("pcnn_b", 32), ("ptn_s", 32), ("ptn_l", 64), ("ptn_resnet32", 32)]
)
def test_a_rotation_by_90_degrees_about_a_fixed_origin_does_not_change_the_logits(name, angles):
    """Exact where a quarter of the angles is a multiple of the total stride."""
    model = double(name, angles=angles)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    center = torch.zeros(3, 2, dtype=torch.float64)
    logits = model(images, origin=center)
    for quarters in (1, 2, 3):
        assert torch.allclose(model(images.rot90(quarters, (2, 3)), origin=center), logits, atol=1e-9)
    assert logits.std(dim=0).max() > 1e-3


@pytest.mark.parametrize(("name", "size"), [("cylindrical", 16), ("cylindrical_l", 32)])
def test_a_rotation_by_90_degrees_about_z_does_not_change_the_cylindrical_logits(name, size):
    model = double(name, image_size=size)
    volumes = torch.rand(2, 1, size, size, size, dtype=torch.float64)
    axis = torch.zeros(2, 2, dtype=torch.float64)
    rotated = model(volumes.rot90(1, (2, 3)), origin=axis)
    assert torch.allclose(rotated, model(volumes, origin=axis), atol=1e-9)


def test_without_wrapping_a_rotation_changes_the_logits():
    model = double("pcnn_s", wrap=False)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    assert (model(images.rot90(1, (2, 3))) - model(images)).abs().max() > 1e-6


def test_a_shift_of_image_and_origin_does_not_change_the_logits():
    images = torch.zeros(1, 1, 42, 42, dtype=torch.float64)
    model = double("ptn_s", image_size=42, r_max_px=10.0)
    images[..., 12:22, 14:24] = torch.rand(10, 10)
    origin = torch.tensor([[-0.1, -0.2]], dtype=torch.float64)
    step = torch.tensor([[8 * 2 / 42, 5 * 2 / 42]], dtype=torch.float64)
    shifted = model(images.roll((5, 8), (2, 3)), origin=origin + step)
    assert torch.allclose(shifted, model(images, origin=origin), atol=1e-9)


@pytest.mark.parametrize(("name", "angles"), [("ptn_resnet32", 32), ("ptn_b", 32), ("ptn_l", 56), ("pcnn_s", 30)])
def test_an_upright_network_has_equivariant_features_and_logits_that_depend_on_the_rotation(name, angles):
    model = double(name, angles=angles, upright=True)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    explanation = model.explain(images)
    features = explanation.feature_maps
    assert torch.allclose(explanation.logits, model(images))
    rolled = features.roll(1, dims=2)
    nn.init.normal_(model.classifier.head.weight)
    assert (model.classifier.score(rolled) - model.classifier.score(features)).abs().max() > 1e-3
    constant = features.mean(dim=2, keepdim=True).expand_as(features)
    assert torch.allclose(model.classifier.score(constant.roll(1, dims=2)), model.classifier.score(constant))


def test_a_row_head_learns_what_rows_have_in_common_like_a_linear_layer_over_their_average():
    features, labels = torch.rand(4, 6, 1, 5).expand(4, 6, 8, 5), torch.tensor([0, 1, 2, 0])
    head, linear = RowHead(6, 8, 3), nn.Linear(6, 3)
    shared = head.weight.unflatten(1, (6, 8)).sum(dim=2) * head.scale
    linear.load_state_dict({"weight": shared, "bias": head.bias})
    for _ in range(5):
        logits = head(features), linear(features.mean(dim=(2, 3)))
        assert torch.allclose(*logits, atol=1e-5)
        for layer, output in zip((head, linear), logits, strict=True):
            weight, bias = torch.autograd.grad(F.cross_entropy(output, labels), layer.parameters())
            with torch.no_grad():
                layer.weight -= 0.5 * weight
                layer.bias -= 0.5 * bias


def test_normalization_is_part_of_the_network():
    model = double("ccnn_s")
    images = torch.rand(2, 1, 28, 28, dtype=torch.float64)
    expected = model((images - 0.2) / 0.5)
    model.set_normalization([0.2], [0.5])
    assert torch.allclose(model(images), expected, atol=1e-6)
    assert {"mean", "std"} <= set(model.state_dict())


def test_the_polar_image_of_a_black_image_is_black_whatever_the_normalization():
    model = double("ptn_s")
    model.set_normalization([0.13], [0.31])
    assert model.explain(torch.zeros(1, 1, 28, 28, dtype=torch.float64)).polar_images.abs().max() == 0


def test_the_predictor_reads_normalized_images():
    model = ptn.create_model("ptn_s").eval()
    model.set_normalization([0.3], [0.2])
    inputs = []
    model.transformer.predictor.body.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    images = torch.rand(2, 1, 28, 28)
    model(images)
    model.explain(images)
    assert len(inputs) == 2
    assert all(torch.allclose(x, (images - 0.3) / 0.2, atol=1e-5) for x in inputs)


@pytest.mark.parametrize(
    ("mean", "std"), [([0.1, 0.2], [1, 1]), ([0.1], [0.0]), ([float("nan")], [1.0]), ([0.1], [float("inf")])]
)
def test_an_invalid_normalization_is_refused_and_changes_nothing(mean, std):
    model = ptn.create_model("ptn_s")
    with pytest.raises(ptn.InputError, match=r"mean|std"):
        model.set_normalization(mean, std)
    assert (model.mean.tolist(), model.std.tolist()) == ([0], [1])


def test_an_ensemble_averages_probabilities_and_passes_the_origin_on():
    model = ptn.create_model("ptn_cnn_b").eval()
    images, origin = torch.rand(2, 1, 28, 28), torch.tensor([[0.2, 0.1], [0.0, -0.3]])
    polar, plain = model.members
    expected = (polar(images).softmax(1) + plain(images).softmax(1)) / 2
    assert torch.allclose(model(images).softmax(1), expected, atol=1e-6)
    expected = (polar(images, origin=origin).softmax(1) + plain(images).softmax(1)) / 2
    assert torch.allclose(model(images, origin=origin).softmax(1), expected, atol=1e-6)
    explanation = model.explain(images)
    assert torch.allclose(explanation.logits, model(images))
    assert torch.equal(explanation.origins, polar.explain(images).origins)


def test_an_ensemble_of_incompatible_networks_is_refused():
    with pytest.raises(ptn.InputError, match="at least one"):
        Ensemble([])
    with pytest.raises(ptn.InputError, match="same images"):
        Ensemble([ptn.create_model("ptn_s"), ptn.create_model("ptn_s", image_size=32)])
    mixed = Ensemble([ptn.create_model("ptn_s"), ptn.create_model("ptn_s", num_classes=3)])
    with pytest.raises(ptn.InputError, match="same classes"):
        mixed.eval()(torch.rand(1, 1, 28, 28))


def test_explain_restores_the_mode_of_every_module():
    model = ptn.create_model("ptn_s").train()
    model.transformer.eval()
    model.explain(torch.rand(1, 1, 28, 28))
    assert model.classifier.training
    assert not model.transformer.training


def test_an_empty_batch_gives_no_logits():
    for name in ("ptn_s", "stn_s", "resnet32"):
        assert ptn.create_model(name).eval()(torch.rand(0, 1, 28, 28)).shape == (0, 10)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(1, 1, 28), "expected a tensor"),
        (torch.rand(1, 3, 28, 28), r"takes \(N, 1, 28, 28\); got \(1, 3, 28, 28\)"),
        (torch.rand(1, 1, 32, 32), "image_size"),
        (torch.zeros(1, 1, 28, 28, dtype=torch.uint8), "divide bytes by 255"),
        (255 * torch.rand(1, 1, 28, 28), "divide them by 255"),
    ],
)
@pytest.mark.parametrize("name", ["ccnn_s", "ptn_s", "stn_s", "ptn_cnn_b"])
def test_images_of_another_shape_type_or_range_are_refused(name, images, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.create_model(name)(images)


def test_a_given_origin_must_be_finite_and_a_predicted_one_gives_nan():
    model = ptn.create_model("ptn_s").eval()
    with pytest.raises(ptn.InputError, match="finite"):
        model(torch.rand(1, 1, 28, 28), origin=torch.tensor([[float("nan"), 0.0]]))
    nn.init.constant_(model.transformer.predictor.head.bias, torch.nan)
    assert torch.isnan(model(torch.rand(1, 1, 28, 28))).all()
