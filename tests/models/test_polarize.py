"""`polarize`: backbones of any make turn with their polar images, or are refused by the name of what does not."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.models import PolarizedNetwork, ScoreSum


def small(*layers, classes=3):
    """A backbone of one's own: 8 channels come out of `layers`."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def plain(in_chans=3):
    return small(
        nn.Conv2d(in_chans, 8, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
    )


def check_turns(model, backbone, features):
    """Feature maps turn with the polar image at the total stride, to rounding, and only once polarized."""
    stride, grid = model.layout.stride, model.transformer.grid
    polar = torch.randn(1, model.input_shape[0], grid.angles, grid.radii, dtype=torch.float64)

    def error(network):
        first, second = features(network, polar), features(network, polar.roll(stride, 2))
        shift, rest = divmod(stride * first.shape[2], grid.angles)
        return float((second - first.roll(shift, 2)).abs().max() / first.abs().max()) if rest == 0 else math.inf

    with torch.no_grad():
        assert error(copy.deepcopy(model.backbone).double().eval()) < 1e-11
        assert error(copy.deepcopy(backbone).double().eval()) > 1e-10


def check_learns(model):
    """Shapes, and gradients that reach image, origin and every parameter of the predictor that has a say."""
    images = torch.rand(2, *model.input_shape, requires_grad=True)
    origin = torch.tensor([[0.1, -0.2], [0.0, 0.3]], requires_grad=True)
    output = model.eval()(images, origin=origin)
    assert output.shape == (2, 3)
    assert torch.isfinite(output).all()
    output.std(dim=1).sum().backward()
    for gradient in (images.grad, origin.grad):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 0
    model.train()(images.detach()).std(dim=1).sum().backward()
    assert model.transformer.predictor.head.weight.grad.abs().max() > 0


def check_weights(model, backbone):
    ours, theirs = model.backbone.state_dict(), backbone.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


QUICK = ["test_resnet", "test_convnext", "test_efficientnet"]
FAMILIES = [
    *("resnet10t", "resnext26ts", "convnext_atto", "efficientnet_b0", "tf_efficientnet_lite0", "mixnet_s"),
    *("mobilenetv3_small_050", "mobilenetv4_conv_small", "regnety_002", "res2net50_14w_8s", "ghostnet_050"),
    *("repvgg_a0", "hrnet_w18_small", "dla46_c", "xception41", "resnetv2_50x1_bit", "test_nfnet", "nf_regnet_b0"),
    *("efficientnet_cc_b0_4e", "resnetblur50", "fastvit_t8", "ese_vovnet19b_slim", "skresnet18", "resnest14d"),
    *("inception_next_atto", "cs3darknet_focus_s", "mnasnet_050", "legacy_seresnet18", "poolformer_s12"),
    "pvt_v2_b0",
]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES)])
def test_timms_families_turn_and_learn(timm, name):
    backbone = timm.create_model(name, num_classes=3)
    model = ptn.polarize(backbone, image_size=32)
    check_weights(model, backbone)
    check_turns(model, backbone, lambda network, polar: network.forward_features(polar))
    check_learns(model)


@pytest.mark.slow
def test_densenet_vgg_and_inception_turn_and_learn(timm):
    """Slimmer than those that timm names, or with more radii."""
    dense = timm.models.DenseNet(8, (2, 2, 2, 2), num_classes=3)
    blurred = timm.models.DenseNet(
        growth_rate=8, block_config=(2, 2), num_classes=3, aa_layer=timm.layers.BlurPool2d
    )
    config = [8, "M", 8, "M", 16, "M", 16, "M", 16, "M"]
    vgg = timm.models.VGG(config, num_classes=3, norm_layer=nn.BatchNorm2d, mlp_ratio=0.01)
    inception = timm.create_model("inception_v4", num_classes=3)
    for backbone, more in ((dense, {}), (blurred, {}), (vgg, {"angles": 256}), (inception, {"radii": 80})):
        model = ptn.polarize(backbone, image_size=32, **more)
        check_weights(model, backbone)
        check_turns(model, backbone, lambda network, polar: network.forward_features(polar))
        check_learns(model)


@pytest.mark.slow
@pytest.mark.usefixtures("timm")
def test_torchvisions_networks_turn_and_learn():
    models = pytest.importorskip("torchvision.models")
    for make, last in (
        ("resnet18", "layer4"),
        ("mobilenet_v3_small", "features"),
        ("squeezenet1_1", "classifier.2"),
    ):
        backbone = getattr(models, make)(num_classes=3)
        model = ptn.polarize(backbone, image_size=32)
        assert model.layout.feature_layer == last
        check_weights(model, backbone)
        check_learns(model)


def test_ones_own_backbone_turns_and_learns():
    backbone = plain()
    model = ptn.polarize(backbone, image_size=(32, 40))
    assert isinstance(model, PolarizedNetwork)
    assert model.input_shape == (3, 32, 40)
    assert (model.layout.angles, model.layout.radii, model.layout.stride) == (32, 40, 8)
    check_weights(model, backbone)
    check_turns(model, backbone, lambda network, polar: network[:5](polar))
    check_learns(model)
    assert backbone[0].padding == (2, 2)  # the given one is as it was


@pytest.mark.parametrize("origin", ["learned", "center"])
def test_a_quarter_turn_leaves_the_logits_by_default(origin):
    model = ptn.polarize(plain(), image_size=28, origin=origin).double().eval()
    images = torch.rand(2, 3, 28, 28, dtype=torch.float64)
    middle = torch.zeros(2, 2, dtype=torch.float64)
    logits = model(images, origin=middle)
    assert torch.allclose(model(images.rot90(1, (2, 3)), origin=middle), logits, atol=1e-12)
    assert (model.transformer.predictor is None) == (origin == "center")


def test_it_explains_itself():
    model = ptn.polarize(plain(), image_size=32).train()
    images = torch.rand(2, 3, 32, 32)
    out = model.explain(images)
    assert model.training
    assert torch.equal(out.logits, model.eval()(images))
    assert out.feature_maps.shape == (2, 8, 4, 4)
    assert out.polar_images.shape == (2, 3, 32, 32)
    assert torch.allclose(out.origins, torch.zeros(2, 2))
    assert out.heatmaps.shape[0] == 2
    assert not model.backbone[4]._forward_hooks


def test_backbones_may_return_several_feature_maps():
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 6, 3, 2, 1)

        def forward(self, x):
            first = self.first(x)
            return {"fine": first, "coarse": [self.second(first)]}

    model = ptn.polarize(Pyramid(), image_size=16, in_chans=1)
    out = model(torch.rand(2, 1, 16, 16))
    assert out["fine"].shape == (2, 4, 8, 8)
    assert out["coarse"][0].shape == (2, 6, 4, 4)


def test_it_copies_pickles_saves_and_loads():
    model = ptn.polarize(plain(), image_size=16).eval()
    images = torch.rand(2, 3, 16, 16)
    expected = model(images)
    again = ptn.polarize(plain(), image_size=16).eval()
    again.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), again):
        assert torch.equal(other(images), expected)
    with pytest.raises(ptn.InputError, match="was not made by create_model"):
        ptn.save_weights(model, "nowhere.safetensors")


def test_a_polarized_backbone_can_be_polarized_again():
    model = ptn.polarize(plain(), image_size=16)
    larger = ptn.polarize(model.backbone, image_size=32)
    assert larger.layout.stride == 8
    check_turns(larger, plain(), lambda network, polar: network[:5](polar))


def test_it_runs_where_and_as_its_backbone_does():
    model = ptn.polarize(plain().double().eval(), image_size=16)
    assert not model.training
    assert model(torch.rand(1, 3, 16, 16, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.slow
def test_it_compiles():
    model = ptn.polarize(plain(), image_size=16).eval()
    images = torch.rand(2, 3, 16, 16)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(images), model(images), atol=1e-5)


def test_its_scores_can_be_summed_with_others():
    networks = [ptn.polarize(plain(), image_size=16), ptn.create_model("ccnn_s", in_chans=3, image_size=16)]
    networks[1] = ptn.create_model("ccnn_s", in_chans=3, image_size=16, num_classes=3)
    both = ScoreSum(networks).eval()
    images, origin = torch.rand(2, 3, 16, 16), torch.full((2, 2), 0.2)
    expected = (networks[0](images, origin=origin).softmax(1) + networks[1](images).softmax(1)) / 2
    assert torch.allclose(both(images, origin=origin).softmax(1), expected, atol=1e-6)


def test_normalisation_is_the_backbones_where_it_says_so():
    backbone = plain()
    assert ptn.polarize(backbone, image_size=16).mean.tolist() == [0, 0, 0]
    backbone.pretrained_cfg = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    model = ptn.polarize(backbone, image_size=16)
    assert torch.allclose(model.mean, torch.tensor([0.1, 0.2, 0.3]))
    assert torch.allclose(model.std, torch.tensor([0.4, 0.5, 0.6]))
    gray = plain(in_chans=1)
    gray.pretrained_cfg = backbone.pretrained_cfg
    assert ptn.polarize(gray, image_size=16, in_chans=1).mean.tolist() == [0]


def test_origin_and_grid_take_options():
    model = ptn.polarize(
        plain(), image_size=32, angles=48, radii=20, law="linear", heatmap="linear", origin_jitter_px=3.0
    )
    grid = model.transformer.grid
    assert (grid.angles, grid.radii, grid.law) == (48, 20, "linear")
    assert model.transformer.jitter.amount_px == 3
    assert model.transformer.predictor.activation == "linear"


def test_strides_that_only_a_forward_knows_are_found():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(F.max_pool2d(self.conv(x), 2).relu().mean((2, 3)))

    model = ptn.polarize(Pooled(), image_size=24)
    assert (model.layout.stride, model.layout.angles) == (4, 32)


def test_values_that_are_no_images_do_not_matter():
    """A table that a layer returns, and whole numbers."""

    class Table(nn.Module):
        def forward(self, x):
            return torch.arange(24).reshape(1, 2, 3, 4) if x is None else torch.ones(1, 2, 3, 4)

    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv, self.head = Table(), nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 3)

        def forward(self, x):
            bias = self.table(x).sum() + self.table(None).sum()
            return self.head(self.conv(x).relu().mean((2, 3)) + bias)

    assert ptn.polarize(Biased(), image_size=16).layout.feature_layer == "conv"


def test_odd_strides_are_found():
    backbone = small(nn.Conv2d(3, 8, 7, 7), nn.ReLU(), nn.AvgPool2d(3))
    assert ptn.polarize(backbone, image_size=32).layout.angles == 84


class PadsItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1, 1, 1)))


class PadsByOtherMeans(nn.Module):
    """Zeros among its rows, as many as before: only the values can tell."""

    def forward(self, x):
        return F.pad(x[:, :, 1:-1], (0, 0, 1, 1))


class PaddedConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(F.pad(x, (1, 1, 1, 1)))


class Positions(nn.Module):
    """Positions whose weights start at zero: they would hide if weights were taken as they are."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 1, 1))

    def forward(self, x):
        return x + self.weight * torch.linspace(0, 1, x.shape[2], dtype=x.dtype)[:, None]


class Gated(nn.Module):
    """A branch behind a scale of zero, as residual branches often start."""

    def __init__(self, branch):
        super().__init__()
        self.branch, self.scale = branch, nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.scale * self.branch(x)


class LearnedPositions(nn.Module):
    """A parameter for every place, brought to the size of the map."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(1, 8, 4, 4)))

    def forward(self, x):
        return x + nn.functional.interpolate(getattr(self, self.name), x.shape[2:])


def stem():
    return nn.Conv2d(3, 8, 3, 2, 1)


@pytest.mark.parametrize(
    ("backbone", "says"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3)), r"it has no convolutions \(torch.nn.Conv2d\)"),
        (small(stem(), PadsItself()), r"layer 1 \(PadsItself\), before its layer 1.conv"),
        (small(stem(), PadsByOtherMeans()), r"layer 1 \(PadsByOtherMeans\)"),
        (small(stem(), PaddedConv(8, 8, 3)), r"layer 1 \(PaddedConv\)"),
        (small(stem(), Positions(), nn.ReLU()), r"layer 1 \(Positions\)"),
        (
            small(stem(), LearnedPositions("abs_pos_embed"), nn.ReLU()),
            r"abs_pos_embed of layer 1 \(LearnedPositions\) is a position embedding",
        ),
        (
            small(stem(), LearnedPositions("relative_position_bias"), nn.ReLU()),
            r"turn with the angle from layer 1 \(Learned",
        ),
        (
            small(stem(), LearnedPositions("post_scale"), nn.ReLU()),
            r"turn with the angle from layer 1 \(LearnedPositions\)",
        ),
        (small(stem(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU()), r"layer 1 \(Upsample\)"),
        (small(stem(), Gated(PadsByOtherMeans())), r"layer 1.branch \(PadsByOtherMeans\)"),
        (small(stem(), nn.ConvTranspose2d(8, 8, 3, padding=1)), r"layer 1 \(ConvTranspose2d\)"),
        (small(stem(), nn.LayerNorm([8, 8, 8])), "fail in layer 1: "),
        (nn.Sequential(stem(), nn.Flatten(), nn.Linear(8 * 8 * 8, 3)), "fail in layer 2: "),
        (nn.Sequential(stem(), nn.Flatten()), r"layer 1 \(Flatten\)"),
        (nn.Sequential(stem(), nn.AdaptiveAvgPool2d(5), nn.Flatten()), r"layer 1 \(AdaptiveAvgPool2d\)"),
        (nn.Sequential(stem(), nn.Linear(99, 3)), "fail in layer 1: "),
        (nn.Sequential(stem(), nn.MaxPool2d(2, return_indices=True)), r"layer 1 \(MaxPool2d\) returns indices"),
        (nn.Sequential(nn.LazyConv2d(8, 3)), "it has no weights yet"),
        (nn.Conv2d(3, 8, 3, device="meta"), "it has no weights yet"),
        (nn.Conv2d(1, 8, 3), "fail.*expected input.* to have 1 channels"),
        ("resnet18", "polarize takes a torch.nn.Module; got str"),
    ],
)
def test_what_does_not_turn_is_refused_by_name(backbone, says):
    with pytest.raises(ptn.InputError, match=says) as caught:
        ptn.polarize(backbone, image_size=16, angles=16)
    assert "\n" not in str(caught.value)


def test_an_output_without_tensors_is_refused():
    class Silent(nn.Conv2d):
        def forward(self, x):
            return "nothing"

    with pytest.raises(ptn.InputError, match="returns str, which has no tensor in it"):
        ptn.polarize(nn.Sequential(Silent(3, 8, 3)), image_size=16)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"image_size": 16, "angles": 20},
            "multiple of 8, the stride of Sequential.* least 16; got 20: take 16",
        ),
        ({"image_size": 16, "angles": 8}, "at least 16; got 8: take 16"),
        ({"image_size": 16, "angles": -8}, "angles must be a whole number of at least 1; got -8"),
        ({"image_size": 16, "radii": 0}, "radii must be a whole number of at least 1; got 0"),
        ({"image_size": 2}, "image_size must be a number of pixels"),
        ({"image_size": (16, 16, 16)}, "image_size must be a number of pixels"),
        ({"image_size": 16, "origin": "centre"}, "did you mean 'center'"),
        ({"image_size": 16, "heatmap": "lineer"}, "did you mean 'linear'"),
    ],
)
def test_mistakes_get_one_clear_line(options, says):
    with pytest.raises(ptn.InputError, match=says) as caught:
        ptn.polarize(plain(), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "more", "says"),
    [
        ("vit_tiny_patch16_224", {}, {}, "pos_embed of VisionTransformer itself is a position embedding"),
        ("vit_tiny_patch16_224", {"dynamic_img_size": True}, {}, "pos_embed of VisionTransformer itself"),
        ("swin_tiny_patch4_window7_224", {"img_size": (128, 32)}, {"angles": 128}, "layer layers.0.blocks.0.attn"),
        ("mixer_s32_224", {}, {}, "fail in layer stem: "),
        ("mixer_s32_224", {"img_size": (128, 32)}, {"angles": 128}, "layer blocks.0.mlp_tokens.fc1"),
        ("inception_v3", {}, {"radii": 80}, "fail in layer Mixed_6a: "),
        ("edgenext_xx_small", {}, {}, "layer stages.1.blocks.1"),
    ],
)
@pytest.mark.slow
def test_transformers_and_mixers_are_refused_by_name(timm, name, options, more, says):
    backbone = timm.create_model(name, num_classes=3, **options)
    with pytest.raises(ptn.InputError, match=says) as caught:
        ptn.polarize(backbone, image_size=32, **more)
    assert "\n" not in str(caught.value)
