"""What the networks promise: turns leave the logits, sums are sums of scores, bad images are named."""

import pytest
import torch
import torch.nn.functional as F

import ptn
from ptn.models import ScoreSum
from ptn.models.classifiers import RowHead


def exact(name, **options):
    torch.manual_seed(1)
    return ptn.create_model(name, **options).double().eval()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pcnn_s", {"angles": 32}),
        ("pcnn_b", {"angles": 32}),
        ("ptn_s", {"angles": 32}),
        ("ptn_b", {"angles": 32}),
        ("ptn_l", {"angles": 64}),
        ("ptn_resnet32", {"angles": 32}),
        ("ptn_resnet32", {"angles": 64, "angle_stride": 2}),
        ("ptn_s", {"angles": 64, "angle_stride": 2}),
    ],
)
def test_a_quarter_turn_about_a_given_origin_leaves_the_logits(name, options):
    """Exact where a quarter of the angles is a multiple of the total stride."""
    model = exact(name, **options)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    middle = torch.zeros(3, 2, dtype=torch.float64)
    logits = model(images, origin=middle)
    for quarters in (1, 2, 3):
        turned = model(images.rot90(quarters, (2, 3)), origin=middle)
        assert torch.allclose(turned, logits, atol=1e-9)
    assert logits.std(dim=0).max() > 1e-3


@pytest.mark.parametrize(("name", "size"), [("cylindrical", 16), ("cylindrical_l", 32)])
def test_a_quarter_turn_about_z_leaves_the_cylindrical_logits(name, size):
    model = exact(name, image_size=size)
    volumes = torch.rand(2, 1, size, size, size, dtype=torch.float64)
    axis = torch.zeros(2, 2, dtype=torch.float64)
    turned = model(volumes.rot90(1, (2, 3)), origin=axis)
    assert torch.allclose(turned, model(volumes, origin=axis), atol=1e-9)


def test_without_wrap_padding_a_turn_changes_the_logits():
    model = exact("pcnn_s", wrap=False)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    assert (model(images.rot90(1, (2, 3))) - model(images)).abs().max() > 1e-6


def test_outside_the_image_is_black_whatever_the_normalisation():
    """The frame of the image must not show in the polar image of a digit on black."""
    model = exact("ptn_s")
    model.set_normalization([0.13], [0.31])
    images = torch.zeros(1, 1, 28, 28, dtype=torch.float64)
    polar = model.explain(images).polar_images
    assert polar.abs().max() == 0


def test_a_shift_moves_the_given_origin_and_nothing_else():
    images = torch.zeros(1, 1, 42, 42, dtype=torch.float64)
    model = exact("ptn_s", image_size=42, r_max_px=10.0)
    images[..., 12:22, 14:24] = torch.rand(10, 10)
    origin = torch.tensor([[-0.1, -0.2]], dtype=torch.float64)
    step = torch.tensor([[8 * 2 / 42, 5 * 2 / 42]], dtype=torch.float64)
    moved = model(images.roll((5, 8), (2, 3)), origin=origin + step)
    assert torch.allclose(moved, model(images, origin=origin), atol=1e-9)


def test_normalisation_is_part_of_the_model():
    model = exact("ccnn_s")
    images = torch.rand(2, 1, 28, 28, dtype=torch.float64)
    plain = model((images - 0.2) / 0.5)
    model.set_normalization([0.2], [0.5])
    assert torch.allclose(model(images), plain, atol=1e-6)
    assert {"mean", "std"} <= set(model.state_dict())


def test_ptn_cnn_sums_the_softmax_scores():
    model = ptn.create_model("ptn_cnn_b").eval()
    images = torch.rand(4, 1, 28, 28)
    scores = [member(images).softmax(1) for member in model.members]
    assert torch.allclose(model(images).softmax(1), sum(scores) / 2, atol=1e-6)


def test_a_given_origin_reaches_the_members_that_have_one():
    model = ptn.create_model("ptn_cnn_b").eval()
    images, origin = torch.rand(2, 1, 28, 28), torch.tensor([[0.2, 0.1], [0.0, -0.3]])
    ptn_part, cnn_part = model.members
    expected = (ptn_part(images, origin=origin).softmax(1) + cnn_part(images).softmax(1)) / 2
    assert torch.allclose(model(images, origin=origin).softmax(1), expected, atol=1e-6)


def test_explaining_leaves_every_module_in_the_mode_it_had():
    model = ptn.create_model("ptn_s").train()
    model.transformer.eval()
    model.explain(torch.rand(1, 1, 28, 28))
    assert model.classifier.training
    assert not model.transformer.training


def test_networks_of_other_images_or_classes_cannot_be_summed():
    with pytest.raises(ptn.InputError, match="must take the same images"):
        ScoreSum([ptn.create_model("ptn_s"), ptn.create_model("ptn_s", image_size=32)])
    mixed = ScoreSum([ptn.create_model("ptn_s"), ptn.create_model("ptn_s", num_classes=3)])
    with pytest.raises(ptn.InputError, match="they must be the same"):
        mixed.eval()(torch.rand(1, 1, 28, 28))


def test_an_empty_sum_is_an_error():
    with pytest.raises(ptn.InputError, match="at least one network"):
        ScoreSum([])


def test_an_empty_batch_gives_no_logits():
    for name in ("ptn_s", "stn_s", "resnet32"):
        assert ptn.create_model(name).eval()(torch.rand(0, 1, 28, 28)).shape == (0, 10)


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (torch.rand(1, 1, 28), "expected a tensor"),
        (torch.rand(1, 3, 28, 28), r"takes \(N, 1, 28, 28\); got \(1, 3, 28, 28\)"),
        (torch.rand(1, 1, 32, 32), "create the model with other image_size"),
        (torch.zeros(1, 1, 28, 28, dtype=torch.uint8), "divide bytes by 255"),
    ],
)
@pytest.mark.parametrize("name", ["ccnn_s", "ptn_s", "stn_s", "ptn_cnn_b"])
def test_images_that_do_not_fit_are_named(name, images, says):
    with pytest.raises(ptn.InputError, match=says):
        ptn.create_model(name)(images)


def test_a_nan_origin_is_an_error_but_a_broken_network_gives_nan():
    model = ptn.create_model("ptn_s").eval()
    with pytest.raises(ptn.InputError, match="not finite"):
        model(torch.rand(1, 1, 28, 28), origin=torch.tensor([[float("nan"), 0.0]]))
    torch.nn.init.constant_(model.transformer.predictor.head.bias, torch.nan)
    assert torch.isnan(model(torch.rand(1, 1, 28, 28))).all()


def test_normalisation_of_the_wrong_length_is_named():
    model = ptn.create_model("ptn_s")
    for mean, std, says in (
        ([0.1, 0.2], [1, 1], "mean must be 1 finite numbers"),
        ([0.1], [0.0], "std must be positive"),
        ([float("nan")], [1.0], "mean must be 1 finite numbers"),
    ):
        with pytest.raises(ptn.InputError, match=says):
            model.set_normalization(mean, std)
    assert model.mean.tolist() == [0]


@pytest.mark.parametrize(("name", "angles"), [("ptn_resnet32", 32), ("ptn_b", 32), ("ptn_l", 56), ("pcnn_s", 30)])
def test_an_upright_network_knows_how_an_image_lies(name, angles):
    """Its features turn as those of others do; its scores are of each direction by itself."""
    model = exact(name, angles=angles, upright=True)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    seen = model.explain(images)
    assert model.classifier.head.in_features == seen.feature_maps.shape[1] * seen.feature_maps.shape[2]
    assert torch.allclose(seen.logits, model(images))
    turned = seen.feature_maps.roll(1, dims=2)
    assert torch.allclose(model.classifier.score(turned), seen.logits)  # at the start all directions are alike
    torch.nn.init.normal_(model.classifier.head.weight)
    assert not torch.allclose(model.classifier.score(turned), model(images), atol=1e-3)
    alike = seen.feature_maps.mean(dim=2, keepdim=True).expand_as(turned)
    assert torch.allclose(model.classifier.score(alike.roll(1, dims=2)), model.classifier.score(alike))


def test_of_two_streams_each_answers_alone_at_times_in_training_only():
    model = exact("ptn_b", two_stream=True, stream_dropout=0.5, origin_jitter_px=0.0)
    images = torch.rand(4, 1, 28, 28, dtype=torch.float64)
    plain = model.cartesian(model.normalize(images))
    both = model(images)
    assert torch.allclose(model.explain(images).logits, both)
    model.dropout.train()
    model.dropout.noise = torch.tensor([[0.1], [0.3], [0.5], [0.9]])  # below a quarter one, below a half the other
    drawn = model(images)
    assert torch.allclose(drawn[0], plain[0])
    assert torch.allclose(drawn[1], (both - plain)[1])
    assert torch.allclose(drawn[2:], both[2:])
    with pytest.raises(ptn.InputError, match="stream_dropout is for two streams"):
        ptn.create_model("ptn_b", stream_dropout=0.5)
    with pytest.raises(ptn.InputError, match="stream_dropout must be at least 0 and less than 1"):
        ptn.create_model("ptn_b", two_stream=True, stream_dropout=1.0)


def test_what_directions_have_in_common_is_learned_as_by_a_layer_over_their_average():
    torch.manual_seed(0)
    features, answer = torch.rand(4, 6, 1, 5).expand(4, 6, 8, 5), torch.tensor([0, 1, 2, 0])
    head = RowHead(6, 8, 3)
    plain = torch.nn.Linear(6, 3)
    plain.load_state_dict({"weight": head.weight.unflatten(1, (6, 8)).sum(dim=2) * head.scale, "bias": head.bias})
    for _ in range(5):
        scores = head(features), plain(features.mean(dim=(2, 3)))
        assert torch.allclose(*scores, atol=1e-5)
        for layer, logits in zip((head, plain), scores, strict=True):
            weight, bias = torch.autograd.grad(F.cross_entropy(logits, answer), layer.parameters())
            with torch.no_grad():
                layer.weight -= 0.5 * weight
                layer.bias -= 0.5 * bias


def test_two_streams_are_a_polar_and_a_plain_network_that_add_up():
    model = exact("ptn_resnet32", two_stream=True, image_size=20)
    images, origin = torch.rand(3, 1, 20, 20, dtype=torch.float64), torch.full((3, 2), 0.1, dtype=torch.float64)
    polar = model.classifier(model.normalize(model.transformer(images, origin)))
    plain = model.cartesian(model.normalize(images))
    assert torch.allclose(model(images, origin=origin), polar + plain)
    assert torch.allclose(model.explain(images).logits, model(images))
    assert not any(isinstance(layer, ptn.WrapConv2d) for layer in model.cartesian.modules())
    assert all(isinstance(block.conv1, ptn.WrapConv2d) for block in model.classifier.features[1:])
