"""`polarize`: backbones are equivariant on polar images, or refused by the name of the layer that is not."""

import copy
import math
import pickle
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptn
from ptn.models import PolarizedNetwork

polarize_module = sys.modules[ptn.polarize.__module__]


def small(*layers, classes=3):
    """A backbone whose `layers` have 8 output channels."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def plain(in_chans=3):
    return small(
        nn.Conv2d(in_chans, 8, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
    )


def check_equivariance(model, backbone, features):
    """Features roll with the polar image at the total stride; those of the original backbone do not."""
    stride, grid = model.layout.stride, model.transformer.grid
    polar = torch.randn(1, model.input_shape[0], grid.angles, grid.radii, dtype=torch.float64)

    def error(network):
        first, second = features(network, polar), features(network, polar.roll(stride, 2))
        shift, rest = divmod(stride * first.shape[2], grid.angles)
        return float((second - first.roll(shift, 2)).abs().max() / first.abs().max()) if rest == 0 else math.inf

    with torch.no_grad():
        assert error(copy.deepcopy(model.backbone).double().eval()) < 1e-11
        assert error(copy.deepcopy(backbone).double().eval()) > 1e-10


def check_gradients(model):
    """Gradients reach the image, the origin and the origin predictor."""
    images = torch.rand(2, *model.input_shape, requires_grad=True)
    origin = torch.tensor([[0.1, -0.2], [0.0, 0.3]], requires_grad=True)
    output = model.eval()(images, origin=origin)
    assert output.shape == (2, 3)
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
    *("resnet10t", "convnext_atto", "tf_efficientnet_lite0", "mixnet_s", "mobilenetv3_small_050", "test_nfnet"),
    *("efficientnet_cc_b0_4e", "resnetblur50", "hrnet_w18_small", "fastvit_t8", "poolformer_s12"),
]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES)])
def test_networks_of_timm_are_equivariant_and_can_be_saved(timm, name, tmp_path):
    backbone = timm.create_model(name, num_classes=3)
    model = ptn.polarize(backbone, image_size=32)
    check_weights(model, backbone)
    check_equivariance(model, backbone, lambda network, polar: network.forward_features(polar))
    check_gradients(model)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded, images = ptn.load_model(tmp_path / "w.safetensors"), torch.rand(2, 3, 32, 32)
    assert loaded.config.name == f"timm:{name}"
    assert torch.equal(loaded(images), model.eval()(images))


def test_any_convolutional_backbone_is_equivariant():
    backbone = plain()
    model = ptn.polarize(backbone, image_size=(32, 40))
    assert isinstance(model, PolarizedNetwork)
    assert model.input_shape == (3, 32, 40)
    assert (model.layout.angles, model.layout.radii, model.layout.stride) == (32, 40, 8)
    check_weights(model, backbone)
    check_equivariance(model, backbone, lambda network, polar: network[:5](polar))
    check_gradients(model)
    assert backbone[0].padding == (2, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("timm")
def test_a_network_of_torchvision_can_be_polarized_compiled_and_exported(tmp_path):
    backbone = pytest.importorskip("torchvision.models").resnet18(num_classes=3)
    model = ptn.polarize(backbone, image_size=32).eval()
    assert model.layout.feature_layer == "layer4"
    check_weights(model, backbone)
    images = torch.rand(2, 3, 32, 32)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(images), model(images), atol=1e-5)
    assert ptn.export(model, tmp_path / "model.pt2") <= 1e-4


@pytest.mark.parametrize("origin", ["learned", "center"])
def test_a_rotation_by_90_degrees_does_not_change_the_logits(origin):
    model = ptn.polarize(plain(), image_size=28, origin=origin).double().eval()
    images = torch.rand(2, 3, 28, 28, dtype=torch.float64)
    center = torch.zeros(2, 2, dtype=torch.float64)
    logits = model(images, origin=center)
    assert torch.allclose(model(images.rot90(1, (2, 3)), origin=center), logits, atol=1e-12)
    assert (model.transformer.predictor is None) == (origin == "center")


def test_explain_copies_and_options():
    options = {"angles": 48, "radii": 20, "r_min_px": 2.0, "origin_jitter_px": 3.0}
    model = ptn.polarize(plain().double().eval(), image_size=32, **options)
    assert model.transformer.grid == ptn.PolarGrid(48, 20, r_min_px=2.0)
    assert model.transformer.jitter.amount_px == 3
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    out, logits = model.explain(images), model(images)
    assert torch.equal(out.logits, logits)
    assert (out.feature_maps.shape, out.polar_images.shape) == ((2, 8, 6, 3), (2, 3, 48, 20))
    assert not model.backbone[4]._forward_hooks
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(images), logits)


def test_a_backbone_may_return_several_feature_maps():
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 6, 3, 2, 1)

        def forward(self, x):
            first = self.first(x)
            return {"fine": first, "coarse": [self.second(first)]}

    out = ptn.polarize(Pyramid(), image_size=16, in_chans=1)(torch.rand(2, 1, 16, 16))
    assert out["fine"].shape == (2, 4, 8, 8)
    assert out["coarse"][0].shape == (2, 6, 4, 4)


def test_strides_in_a_forward_and_odd_strides_are_found():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(F.max_pool2d(self.conv(x), 2).relu().mean((2, 3)))

    layout = ptn.polarize(Pooled(), image_size=24).layout
    assert (layout.stride, layout.angles) == (4, 32)
    odd = small(nn.Conv2d(3, 8, 7, 7), nn.ReLU(), nn.AvgPool2d(3))
    assert ptn.polarize(odd, image_size=32).layout.angles == 84


class PadsInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1, 1, 1)))


class ZerosBorderRows(nn.Module):
    """The shape of its output is that of an equivariant layer."""

    def forward(self, x):
        return F.pad(x[:, :, 1:-1], (0, 0, 1, 1))


class PaddedConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(F.pad(x, (1, 1, 1, 1)))


class Positions(nn.Module):
    """Its weights start at zero: the check must not depend on them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 1, 1))

    def forward(self, x):
        return x + self.weight * torch.linspace(0, 1, x.shape[2], dtype=x.dtype)[:, None]


def stem():
    return nn.Conv2d(3, 8, 3, 2, 1)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3)), "no convolutions"),
        (small(stem(), PadsInForward()), r"layer 1 \(PadsInForward\)"),
        (small(stem(), ZerosBorderRows()), r"layer 1 \(ZerosBorderRows\)"),
        (small(stem(), PaddedConv(8, 8, 3)), r"layer 1 \(PaddedConv\)"),
        (small(stem(), Positions(), nn.ReLU()), r"layer 1 \(Positions\)"),
        (small(stem(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU()), r"layer 1 \(Upsample\)"),
        (small(stem(), nn.ConvTranspose2d(8, 8, 3, padding=1)), r"layer 1 \(ConvTranspose2d\)"),
        (small(stem(), nn.LayerNorm([8, 8, 8])), "fail in layer 1: "),
        (nn.Sequential(stem(), nn.Flatten(), nn.Linear(8 * 8 * 8, 3)), "fail in layer 2: "),
        (nn.Sequential(stem(), nn.Flatten()), r"layer 1 \(Flatten\)"),
        (nn.Sequential(stem(), nn.AdaptiveAvgPool2d(5), nn.Flatten()), r"layer 1 \(AdaptiveAvgPool2d\)"),
        (nn.Sequential(stem(), nn.MaxPool2d(2, return_indices=True)), r"layer 1 \(MaxPool2d\)"),
        (nn.Conv2d(1, 8, 3), "to have 1 channels"),
    ],
)
def test_a_backbone_that_is_not_equivariant_is_refused_by_the_name_of_its_layer(backbone, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.polarize(backbone, image_size=16, angles=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"angles": 20}, "multiple of 8.* least 16; got 20"),
        ({"angles": 8}, "at least 16; got 8"),
        ({"radii": 0}, "radii"),
        ({"origin": "centre"}, "did you mean 'center'"),
    ],
)
def test_invalid_options_are_named(options, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.polarize(plain(), image_size=16, **options)


@pytest.mark.parametrize(
    ("name", "options", "more", "message"),
    [
        ("vit_tiny_patch16_224", {"dynamic_img_size": True}, {}, "not equivariant"),
        ("swin_tiny_patch4_window7_224", {"img_size": (128, 32)}, {"angles": 128}, "layer layers.0.blocks.0 "),
        ("mixer_s32_224", {"img_size": (128, 32)}, {"angles": 128}, "layer blocks.0.mlp_tokens.fc1"),
        ("edgenext_xx_small", {}, {}, "layer stages.1.blocks.1"),
    ],
)
@pytest.mark.slow
def test_transformers_and_mixers_are_refused_by_the_name_of_a_layer(timm, name, options, more, message):
    backbone = timm.create_model(name, num_classes=3, **options)
    with pytest.raises(ptn.InputError, match=message):
        ptn.polarize(backbone, image_size=32, **more)


# Networks of timm by name

NAME = "timm:test_resnet"


def test_a_network_by_name_is_saved_with_its_layout(timm, tmp_path, monkeypatch):
    model = ptn.create_model(NAME, num_classes=4, image_size=(40, 32), in_chans=1, origin="center").eval()
    images = torch.rand(2, 1, 40, 32)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    monkeypatch.delattr(polarize_module, "find_layout")  # the layout in the file is used
    loaded = ptn.load_model(tmp_path / "w.safetensors")
    assert loaded.config == model.config
    assert torch.equal(loaded(images), model(images))
    other = ptn.create_model(NAME, num_classes=7, pretrained=tmp_path / "w.safetensors")
    assert other(images).shape == (2, 7)
    features = ptn.create_model(NAME, num_classes=0, pretrained=tmp_path / "w.safetensors")(images)
    assert torch.allclose(features, model.explain(images).feature_maps.mean(dim=(2, 3)), atol=1e-6)
    monkeypatch.undo()
    larger = ptn.create_model(NAME, image_size=150, pretrained=tmp_path / "w.safetensors")
    assert (model.layout.angles, larger.config.options["layout"]["angles"]) == (128, 256)


@pytest.mark.parametrize("options", [{"act_layer": "silu"}, {"global_pool": "max"}, None])
def test_a_backbone_that_timm_would_build_differently_is_not_saved(timm, options, tmp_path):
    backbone = plain() if options is None else timm.create_model("test_resnet", **options)
    model = ptn.polarize(backbone, image_size=32)
    with pytest.raises(ptn.InputError, match="cannot be saved"):
        ptn.save_weights(model, tmp_path / "w.safetensors")
    with pytest.raises(ptn.InputError, match="cannot be saved"):
        ptn.save_pretrained(model, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_pretrained_weights_of_timm(timm, monkeypatch):
    state = timm.create_model("test_resnet").state_dict()
    monkeypatch.setattr(timm.models._builder, "load_state_dict_from_hf", lambda *_, **__: dict(state))
    for model in (
        ptn.create_model(f"{NAME}.r160_in1k", num_classes=3, image_size=32, in_chans=3),
        ptn.create_model(NAME, pretrained=True, num_classes=3, image_size=32, in_chans=3),
    ):
        assert torch.equal(model.backbone.layer1[0].conv1.weight, state["layer1.0.conv1.weight"])
        assert model.backbone.fc.weight.shape[0] == 3
        assert model.mean.tolist() == [0.5, 0.5, 0.5]
        assert model.config.name == NAME
        assert not model.training

    def offline(*_, **__):
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(timm.models._builder, "load_state_dict_from_hf", offline)
    with pytest.raises(ptn.InputError, match=r"test_resnet.r160_in1k: no route to host$"):
        ptn.create_model(f"{NAME}.r160_in1k", image_size=32)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("timm:resnet81", {}, "Unknown model"),
        (f"{NAME}.nosuchtag", {}, "Invalid pretrained tag"),
        (NAME, {"colour": 1}, "unknown option"),
        (NAME, {"angles": 40}, "angles must be a multiple of 32"),
        (NAME, {"layout": {"rows": 3}}, "layout.rows"),
        ("timm:test_vit", {}, "cannot polarize VisionTransformer"),
    ],
)
def test_invalid_names_and_options_of_timm_are_named(timm, name, options, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.create_model(name, **options)


def test_a_plain_network_of_timm_reads_enlarged_images(timm, tmp_path):
    model = ptn.create_model("timm-plain:test_resnet", num_classes=4, image_size=32, in_chans=3, upsample=2.0)
    assert ptn.list_options("timm-plain:test_resnet") == ["upsample"]
    images, inputs = torch.rand(2, 3, 32, 32), []
    model.classifier.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    logits = model.eval()(images)
    assert (logits.shape, inputs[0].shape) == ((2, 4), (2, 3, 64, 64))
    assert model.mean.tolist() == list(timm.create_model("test_resnet").pretrained_cfg["mean"])
    assert torch.equal(model.explain(images).logits, logits)
    assert model.explain(images).feature_maps.shape == (2, 96, 2, 2)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    assert torch.equal(ptn.load_model(tmp_path / "w.safetensors")(images), logits)
