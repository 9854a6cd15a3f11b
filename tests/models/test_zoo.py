"""Every registered model: sizes, forward and backward, copies, files, and names that are almost right."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ptn
from ptn.models import ModelConfig, count_parameters, list_options, load_model
from ptn.models.zoo import build_on_meta

PREDICTOR = 7_581


@pytest.mark.parametrize(
    ("name", "size", "parameters"),
    [
        ("ptn_s", 28, 27_931),
        ("ptn_b", 28, 131_959),
        ("ptn_s", 42, 31_591),
        ("ptn_b", 42, 136_663),
        ("ptn_s", 96, 35_251),
        ("ptn_b", 96, 136_663),
    ],
)
def test_parameter_counts_are_the_papers(name, size, parameters):
    assert count_parameters(build_on_meta(name, image_size=size)) == parameters
    for other in ("ccnn", "pcnn"):
        model = build_on_meta(name.replace("ptn", other), image_size=size)
        assert count_parameters(model) == parameters - PREDICTOR


def test_the_other_networks_have_about_the_papers_size():
    assert 950_000 < count_parameters(build_on_meta("cylindrical", num_classes=40, image_size=32)) < 1_100_000
    assert count_parameters(build_on_meta("ccnn_3d", num_classes=40, image_size=32)) == 1_002_984
    strong = build_on_meta("cylindrical_l", num_classes=40, image_size=64, in_chans=2)
    assert count_parameters(strong) == 1_295_137 < 1_500_000
    assert 455_000 < count_parameters(build_on_meta("resnet32", image_size=32, in_chans=3)) < 470_000
    assert count_parameters(build_on_meta("ptn_l")) < 1_000_000
    assert count_parameters(build_on_meta("stn_s")) == 33_274
    assert count_parameters(build_on_meta("stn_b")) == 137_302


def input_for(model, count=2):
    return torch.rand(count, *model.input_shape)


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_model_runs_forward_backward_copies_and_saves(name, tmp_path):
    model = ptn.create_model(name, num_classes=3, image_size=20, in_chans=2)
    images = input_for(model)
    logits = model(images)
    assert logits.shape == (2, 3)
    logits.square().sum().backward()
    dead = [key for key, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()]
    assert dead == []

    model.eval()
    expected = model(images)
    assert torch.equal(copy.deepcopy(model)(images), expected)
    again = ptn.create_model(name, num_classes=3, image_size=20, in_chans=2).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images), expected)
    ptn.save_weights(model, tmp_path / "weights.safetensors")
    assert torch.equal(load_model(tmp_path / "weights.safetensors")(images), expected)


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_model_explains_itself(name):
    model = ptn.create_model(name, image_size=20)
    images = input_for(model)
    model.train()
    explanation = model.explain(images)
    assert model.training
    model.eval()
    assert torch.allclose(explanation.logits, model(images), atol=1e-5)
    assert explanation.feature_maps.shape[0] == 2
    has_origin = name.startswith(("ptn", "pcnn", "cylindrical"))
    assert (explanation.origins is not None) == has_origin
    assert (explanation.polar_images is not None) == has_origin
    if name.startswith(("ptn", "cylindrical")):
        assert explanation.heatmaps.shape[0] == 2
        assert torch.allclose(explanation.origins, torch.zeros(2, 2))


@pytest.mark.parametrize("size", [28, 32, 42, 64, 96, 150, 224, (40, 60), (128, 96), 16])
@pytest.mark.parametrize("name", ["ptn_s", "ptn_b", "ptn_l", "stn_s", "ptn_resnet32"])
def test_any_image_size_works_by_rule(name, size):
    model = ptn.create_model(name, image_size=size, in_chans=3).eval()
    assert model(input_for(model, 1)).shape == (1, 10)


def test_defaults_are_ten_classes_28_pixels_one_channel():
    model = ptn.create_model("ptn_s")
    assert model.config == ModelConfig("ptn_s", 10, (28, 28), 1, {})
    assert model(torch.rand(1, 1, 28, 28)).shape == (1, 10)


def test_half_weights_are_half_on_disk_and_float32_when_loaded(tmp_path):
    model = ptn.create_model("ptn_s")
    path = tmp_path / "ptn_s.safetensors"
    ptn.save_weights(model, path, half=True)
    assert load_file(path)["classifier.head.weight"].dtype == torch.float16
    loaded = ptn.create_model("ptn_s", pretrained=path)
    assert loaded.classifier.head.weight.dtype == torch.float32
    assert torch.allclose(loaded.classifier.head.weight, model.classifier.head.weight, atol=1e-3)


def test_pretrained_takes_its_own_configuration_and_options(tmp_path):
    model = ptn.create_model("ptn_s", num_classes=4, image_size=(30, 24), in_chans=3, heatmap="linear")
    model.set_normalization([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded = ptn.create_model("ptn_s", pretrained=tmp_path / "w.safetensors")
    assert loaded.config == model.config
    assert loaded.transformer.predictor.activation == "linear"
    assert torch.equal(loaded.mean, torch.tensor([0.1, 0.2, 0.3]))


def test_another_number_of_classes_gets_a_fresh_final_layer(tmp_path):
    model = ptn.create_model("ptn_s")
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded = ptn.create_model("ptn_s", num_classes=7, pretrained=tmp_path / "w.safetensors")
    assert loaded(torch.rand(1, 1, 28, 28)).shape == (1, 7)
    first, kept = (m.classifier.features[0].conv.weight for m in (loaded, model))
    assert torch.equal(first, kept)


def test_weights_of_a_sum_keep_their_members_apart(tmp_path):
    model = ptn.create_model("ptn_cnn_b", heatmap="linear", image_size=20).eval()
    assert model.members[0].transformer.predictor.activation == "linear"
    ptn.save_weights(model, tmp_path / "w.safetensors")
    fresh = ptn.create_model("ptn_cnn_b", num_classes=3, pretrained=tmp_path / "w.safetensors")
    assert fresh(torch.rand(2, 1, 20, 20)).shape == (2, 3)


def test_options_are_listed_and_checked():
    assert "heatmap" in list_options("ptn_b")
    assert not {"heatmap", "heatmap_bias", "origin_turns", "origin"} & set(list_options("pcnn_b"))
    assert list_options("resnet32") == ["dropout"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda p: ptn.create_model("ptn_bb"), "unknown model 'ptn_bb'; did you mean 'ptn_b'"),
        (lambda p: ptn.create_model("ptn_b", heatmaps="linear"), "did you mean 'heatmap'"),
        (lambda p: ptn.create_model("ptn_b", heatmap="lineer"), "did you mean 'linear'"),
        (lambda p: ptn.create_model("ptn_b", angles=0), "angles must be a whole number"),
        (lambda p: ptn.create_model("ptn_b", num_classes=0), "num_classes must be a whole number of at least 1"),
        (
            lambda p: ptn.create_model("ptn_b", image_size=2),
            "image_size must be a number of pixels or .H, W., at least 4",
        ),
        (lambda p: ptn.create_model("ptn_b", pretrained="nowhere"), "no pretrained weights ptn_b.nowhere"),
        (lambda p: ptn.create_model("ptn_b.nowhere"), "no pretrained weights ptn_b.nowhere"),
        (lambda p: ptn.create_model("ptn_b", pretrained=p / "x.safetensors"), "no weights at"),
        (lambda p: ptn.create_model("cylindrical", image_size=(20, 30)), "takes cubes"),
        (lambda p: ptn.create_model("ptn_b", kernel=4), "kernel must be an odd number"),
        (lambda p: ptn.create_model("ptn_b", kernel=0), "kernel must be an odd number"),
        (lambda p: ptn.create_model("ptn_b", wrap="no"), "wrap must be True or False"),
        (lambda p: ptn.create_model("ptn_b", two_stream="no"), "two_stream must be True or False"),
        (lambda p: ptn.create_model("ptn_b", upright=1), "upright must be True or False"),
        (lambda p: ptn.create_model("ptn_b", stream_dropout="0.5"), "stream_dropout must be a number; got '0.5'"),
        (lambda p: ptn.create_model("ptn_b", stream_dropout=None), "stream_dropout must be a number; got None"),
        (lambda p: ptn.create_model("ptn_b", r_min_px="big"), "r_min_px must be a number; got 'big'"),
        (lambda p: ptn.create_model("ptn_cnn_b", dropout=True), "dropout must be a number; got True"),
        (lambda p: ptn.create_model("ptn_b", angle_stride=0), "angle_stride must be a whole number of at least 1"),
        (lambda p: ptn.create_model("ptn_b", heatmap_bias=0.0), "heatmap_bias must be a positive number"),
        (lambda p: ptn.create_model("ptn_b", origin_turns=3), "origin_turns must be 1 or 4"),
        (lambda p: ptn.create_model("cylindrical", origin="lerned"), "did you mean 'learned'"),
        (lambda p: ptn.create_model("ptn_b", num_classes="7"), "num_classes must be a whole number"),
        (lambda p: ptn.create_model("ptn_b", in_chans=1.5), "in_chans must be a whole number"),
        (lambda p: ptn.create_model("ptn_b", image_size=28.0), "image_size must be a number of pixels"),
        (lambda p: ptn.create_model("ptn_b", image_size=(28, 28, 28)), "image_size must be a number of pixels"),
        (lambda p: ptn.create_model(None), "a model is named by a text"),
        (lambda p: ptn.create_model("ptn_b", pretrained=p / "x.bin"), "no weights at"),
        (lambda p: ptn.load_model(p / "x.safetensors"), "no weights at"),
        (lambda p: ptn.load_model("ptn_b.sim2mnist"), r"create_model\('ptn_b.sim2mnist'\)"),
    ],
)
def test_mistakes_get_one_clear_line(call, says, tmp_path):
    with pytest.raises(ptn.InputError, match=says) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_ours_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"not weights at all")
    with pytest.raises(ptn.InputError, match="is not a safetensors file"):
        ptn.create_model("ptn_s", pretrained=path)
    ptn.save_weights(ptn.create_model("ccnn_s"), path)
    with pytest.raises(ptn.InputError, match="holds weights of ccnn_s, not of ptn_s"):
        ptn.create_model("ptn_s", pretrained=path)
    ptn.save_weights(ptn.create_model("ptn_s", in_chans=3), path)
    with pytest.raises(ptn.InputError, match="does not fit this model"):
        ptn.create_model("ptn_s", in_chans=1, pretrained=path)


def test_saving_into_a_folder_that_cannot_be_made_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ptn.InputError, match="cannot create folder"):
        ptn.save_weights(ptn.create_model("ptn_s"), tmp_path / "file" / "w.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_numpy_integers_are_numbers_too():
    model = ptn.create_model("ptn_s", num_classes=np.int64(3), image_size=np.int64(20))
    assert model.config == ModelConfig("ptn_s", 3, (20, 20), 1, {})


def test_what_float16_cannot_hold_stays_float32(tmp_path):
    model = ptn.create_model("ptn_s")
    model.classifier.features[0].norm.running_var.fill_(1e6)
    ptn.save_weights(model, str(tmp_path / "w.safetensors"), half=True)
    assert load_model(tmp_path / "w.safetensors").classifier.features[0].norm.running_var[0] == 1e6


@pytest.mark.parametrize("config", ["x", "{}", "[1]", '{"name": "ptn_s", "image_size": [28, 28], "colour": 1}'])
def test_a_broken_configuration_is_named(tmp_path, config):
    save_file({"a": torch.zeros(1)}, tmp_path / "w.safetensors", {"config": config})
    with pytest.raises(ptn.InputError, match="configuration that cannot be read"):
        load_model(tmp_path / "w.safetensors")


def test_options_of_a_sum_go_to_every_member_that_has_them():
    model = ptn.create_model("ptn_cnn_b", dropout=0.5, heatmap="linear", image_size=20)
    assert [member.classifier.dropout.rate for member in model.members] == [0.5, 0.5]
    assert model.members[0].transformer.predictor.activation == "linear"
