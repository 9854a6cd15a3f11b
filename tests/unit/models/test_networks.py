"""Architectures of the paper, invariance of the logits, heads, normalization, ensembles and refused images."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.geometry import disc_frame
from ptn.layers import ConvBlock, Location
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
def test_stacks_are_those_of_the_paper(stack, size):
    model = ptn.create_model(f"ptn_{stack}", image_size=size)
    assert blocks(model.classifier.features) == STACKS[stack, size]


@pytest.mark.parametrize(("size", "strides"), [(28, (2, 1, 1)), (42, (2, 1, 1)), (96, (2, 2, 1)), (224, (2, 2, 2))])
def test_the_origin_predictor_is_that_of_the_paper(size, strides):
    predictor = ptn.create_model("ptn_b", image_size=size).transformer.predictor
    assert blocks(predictor.body) == [(20, stride, stride, 3) for stride in strides]


def test_options_reach_the_sampler():
    images, origin = torch.ones(1, 1, 20, 20), torch.tensor([[0.9, 0.9]])
    border = ptn.create_model("ptn_s", image_size=20, padding_mode="border").transformer.sample(images, origin)
    assert border.min() == pytest.approx(1)
    options = {"r_max_px": 9.0, "law": "linear"}
    transformer = ptn.create_model("ptn_s", angles=40, radii=12, mode="bicubic", **options).transformer
    assert transformer.grid == ptn.PolarGrid(40, 12, **options)
    assert (transformer.mode, transformer.jitter.amount_px) == ("bicubic", 2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pcnn_s", {"angles": 32}),
        ("pcnn_b", {"angles": 32}),
        ("ptn_l", {"angles": 64}),
        ("ptn_resnet32", {"angles": 32}),
        ("cylindrical", {"image_size": 16}),
    ],
)
def test_a_rotation_by_90_degrees_about_a_fixed_origin_does_not_change_the_logits(name, options):
    """Exact where a quarter of the angles is a multiple of the total stride."""
    model = double(name, **options)
    images = torch.rand(3, *model.input_shape, dtype=torch.float64)
    center = torch.zeros(3, 2, dtype=torch.float64)
    logits = model(images, origin=center)
    for quarters in (1, 2):
        assert torch.allclose(model(images.rot90(quarters, (2, 3)), origin=center), logits, atol=1e-9)
    assert logits.std(dim=0).max() > 1e-6
    plain = double(name, **options, wrap=False)
    assert (plain(images.rot90(1, (2, 3)), origin=center) - plain(images, origin=center)).abs().max() > 1e-6


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


def test_classifier_and_predictor_read_normalized_images_and_the_outside_is_black():
    model = double("ptn_s")
    inputs = []
    for layer in (model.transformer.predictor, model.classifier):
        layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    model.set_normalization([0.3], [0.2])
    images = torch.rand(2, 1, 28, 28, dtype=torch.float64)
    model(images)
    expected = images, model.explain(images).polar_images
    assert all(torch.allclose(x, (y - 0.3) / 0.2, atol=1e-6) for x, y in zip(inputs, expected, strict=False))
    assert model.explain(0 * images).polar_images.abs().max() == 0


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


def test_a_given_origin_must_not_be_in_pixels_and_a_non_finite_one_gives_nan():
    model = ptn.create_model("ptn_s").eval()
    with pytest.raises(ptn.InputError, match="pixels"):
        model(torch.rand(1, 1, 28, 28), origin=torch.tensor([[14.0, 14.0]]))
    nn.init.constant_(model.transformer.predictor.head.bias, torch.nan)
    assert torch.isnan(model(torch.rand(1, 1, 28, 28))).all()


def test_normalized_images_are_refused():
    with pytest.raises(ptn.InputError, match="do not normalize"):
        ptn.create_model("ccnn_s")(torch.randn(2, 1, 28, 28))


@pytest.mark.parametrize("name", ["ptn_s", "pcnn_s", "stn_s"])
def test_padding_with_the_mean_shows_where_the_image_ends(name):
    images = torch.zeros(1, 1, 20, 20)
    origin = {} if name == "stn_s" else {"origin": torch.tensor([[0.9, 0.9]])}
    pixels = {}
    for padding_mode in ("zeros", "mean"):
        model = ptn.create_model(name, image_size=20, padding_mode=padding_mode)
        model.set_normalization([0.1], [0.5])
        if name == "stn_s":
            model.transformer.localiser[-1].bias.data[2] = 0.9  # the point that is moved to the middle
        pixels[padding_mode] = model.classifier_input(images, **origin).detach().unique()
    assert pixels["zeros"].tolist() == pytest.approx([-0.2])
    assert pixels["mean"].min() == pytest.approx(-0.2)
    assert pixels["mean"].max() == 0


@pytest.mark.parametrize("name", ["ptn_s", "pcnn_b", "ptn_l", "ptn_resnet32"])
def test_a_frame_is_read_by_the_classifier_and_is_not_normalized(name, tmp_path):
    model = ptn.create_model(name, image_size=20, in_chans=3, frame="disc").eval()
    model.set_normalization([0.1, 0.2, 0.3], [0.5, 0.5, 0.5])
    images = torch.rand(2, 3, 20, 20)
    out = model.explain(images)
    assert out.polar_images.shape[1] == 3
    polar = model.classifier_input(images, out.origins)
    assert torch.allclose(polar[:, :3], model.normalize(out.polar_images))
    assert torch.equal(polar[:, 3:], disc_frame(out.origins, model.transformer.grid, (20, 20)))
    ptn.save_weights(model, tmp_path / "model.safetensors")
    assert torch.equal(ptn.load_model(tmp_path / "model.safetensors")(images), model(images))


def test_with_a_frame_quarter_turns_leave_the_logits():
    model = ptn.create_model("ptn_s", image_size=20, frame="disc", mode="bicubic", origin_turns=4, angles=24)
    torch.nn.init.normal_(model.transformer.predictor.head.weight, 0, 0.5)
    model.double().eval()
    images = torch.rand(3, 1, 20, 20, dtype=torch.float64)
    assert torch.allclose(model(images.rot90(1, (2, 3))), model(images), atol=1e-9)


def evidence_network():
    torch.manual_seed(0)
    return ptn.create_model("ptn_s", num_classes=3, image_size=32, heatmap="evidence").eval()


def test_the_logits_are_those_of_all_candidates_for_the_origin():
    model, images = evidence_network(), torch.rand(4, 1, 32, 32)
    location = model.transformer.locate(model.normalize(images))
    around = [model(images, origin=candidate) for candidate in location.candidates.unbind(dim=1)]
    joint = torch.stack(around, dim=1) + location.log_weights[..., None]
    assert torch.allclose(model(images), joint.logsumexp(dim=1), atol=1e-5)
    best = joint.logsumexp(dim=2).argmax(dim=1)
    out = model.explain(images)
    assert torch.equal(out.origins, location.candidates[torch.arange(4), best])
    assert torch.allclose(out.logits, model(images), atol=1e-5)
    assert torch.allclose(out.feature_maps, model.forward_features(images), atol=1e-5)


def test_an_object_that_is_not_at_the_largest_peak_is_recognized():
    model, images = evidence_network(), torch.zeros(1, 1, 32, 32)
    images[..., 4:12, 20:28] = 1
    with torch.no_grad():  # logits that depend on the brightness around the origin only
        model.transformer.predictor.prior.fill_(0.1)
        bright, dark = torch.tensor([[0.5, -0.5]]), torch.tensor([[-0.5, 0.5]])
        model.classifier.forward = lambda polar: polar.mean(dim=(1, 2, 3))[:, None] * torch.tensor([9.0, 0, 0])
        weights = torch.tensor([[0.4, 0.6]]).log() * 0.1
        candidates = torch.stack((bright, dark), dim=1)
        model.transformer.locate = lambda images: Location(dark, None, None, candidates, weights)
        assert torch.equal(model.locate(images).origin, bright)
        assert model(images).argmax().item() == 0
