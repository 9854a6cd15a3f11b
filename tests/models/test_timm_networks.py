"""Backbones of timm by name: made, saved, loaded and fine-tuned like every network of the zoo."""

import sys

import pytest
import torch

import ptn
from ptn.models import PolarizedNetwork, list_options, polarize

NAME = "timm:test_resnet"
polarize_module = sys.modules[polarize.__module__]


@pytest.fixture(autouse=True)
def _timm(timm):
    pass


@pytest.fixture
def untried(monkeypatch):
    """After this, nothing may be tried out any more."""

    def forbid():
        def tried(*_):
            raise AssertionError("tried again")

        monkeypatch.setattr(polarize_module, "find_layout", tried)

    return forbid


def test_it_is_made_saved_and_loaded_by_name(tmp_path, untried):
    model = ptn.create_model(NAME, num_classes=4, image_size=(40, 32), in_chans=1, origin="center").eval()
    assert isinstance(model, PolarizedNetwork)
    assert model.transformer.predictor is None
    images = torch.rand(2, 1, 40, 32)
    assert model(images).shape == (2, 4)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    untried()
    loaded = ptn.load_model(tmp_path / "w.safetensors")
    assert loaded.config == model.config
    assert torch.equal(loaded(images), model(images))


def test_another_number_of_classes_gets_a_fresh_final_layer(tmp_path, untried):
    model = ptn.create_model(NAME, num_classes=4, image_size=32, in_chans=3)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    untried()
    other = ptn.create_model(NAME, num_classes=7, pretrained=tmp_path / "w.safetensors")
    assert other.eval()(torch.rand(1, 3, 32, 32)).shape == (1, 7)
    assert torch.equal(other.backbone.layer4[0].conv1.weight, model.backbone.layer4[0].conv1.weight)


def test_another_image_size_is_tried_again(tmp_path):
    model = ptn.create_model(NAME, image_size=32)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    larger = ptn.create_model(NAME, image_size=150, pretrained=tmp_path / "w.safetensors")
    assert (model.layout.angles, larger.layout.angles) == (128, 256)
    assert larger.config.options["layout"]["angles"] == 256


def test_its_options_are_those_of_polarize():
    assert {"angles", "radii", "origin", "origin_jitter_px"} <= set(list_options(NAME))
    assert list_options(f"{NAME}.r160_in1k") == list_options(NAME)
    assert ptn.create_model(NAME, image_size=32, angles=64).transformer.grid.angles == 64


def test_timms_own_weights_come_by_their_tag(timm, monkeypatch):
    trained = timm.create_model("test_resnet").state_dict()
    monkeypatch.setattr(timm.models._builder, "load_state_dict_from_hf", lambda *_, **__: dict(trained))
    model = ptn.create_model(f"{NAME}.r160_in1k", num_classes=3, image_size=32, in_chans=3)
    assert torch.equal(model.backbone.layer1[0].conv1.weight, trained["layer1.0.conv1.weight"])
    assert model.backbone.fc.weight.shape[0] == 3
    assert model.mean.tolist() == [0.5, 0.5, 0.5]
    assert model.config.name == NAME


def test_weights_that_cannot_be_fetched_are_one_line(timm, monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(timm.models._builder, "load_state_dict_from_hf", offline)
    with pytest.raises(ptn.InputError, match=r"could not make test_resnet.r160_in1k: no route to host$"):
        ptn.create_model(f"{NAME}.r160_in1k", image_size=32)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ptn.create_model("timm:resnet81"), "timm has no model 'resnet81': did you mean timm:resnet"),
        (lambda: ptn.create_model("timm:qqqqqqqq"), "timm.list_models.. names them all"),
        (
            lambda: ptn.create_model(f"{NAME}.nosuchtag"),
            "could not make test_resnet.nosuchtag: Invalid pretrained tag",
        ),
        (lambda: ptn.create_model(NAME, colour=1), "unknown option of timm:test_resnet 'colour'"),
        (lambda: ptn.create_model(NAME, angles=40), "angles must be a multiple of 32"),
        (lambda: ptn.create_model(NAME, layout={"rows": 3}), "layout must be what an earlier network"),
        (lambda: ptn.create_model("timm:test_vit"), "cannot polarize VisionTransformer"),
    ],
)
def test_mistakes_get_one_clear_line(call, says):
    with pytest.raises(ptn.InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_backbone_as_it_is_looks_at_enlarged_images(timm, tmp_path):
    model = ptn.create_model("timm-plain:test_resnet", num_classes=4, image_size=32, in_chans=3, upsample=2.0)
    assert list_options("timm-plain:test_resnet") == ["upsample"]
    images, seen = torch.rand(2, 3, 32, 32), []
    model.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    logits = model.eval()(images)
    assert (logits.shape, seen[0].shape) == ((2, 4), (2, 3, 64, 64))
    assert model.mean.tolist() == list(timm.create_model("test_resnet").pretrained_cfg["mean"])
    assert torch.equal(model.explain(images).logits, logits)
    ptn.save_weights(model, tmp_path / "w.safetensors")
    assert torch.equal(ptn.load_model(tmp_path / "w.safetensors")(images), logits)
    with pytest.raises(ptn.InputError, match="upsample must be at least 1"):
        ptn.create_model("timm-plain:test_resnet", image_size=32, upsample=0.5)


def test_without_timm_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ptn.InputError, match="this needs the package timm: pip install 'timm'"):
        ptn.create_model(NAME)


def test_a_timm_that_fails_to_import_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ptn.InputError, match=r"timm fails to import .*: install the torchvision that fits"):
        ptn.create_model(NAME)
