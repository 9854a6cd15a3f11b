"""Every registered network, weights files, and what `create_model` and `load_model` accept."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

import ptn
from ptn.models import count_parameters

PREDICTOR = 7_581
SINGLE = [name for name in ptn.list_models() if name != "ptn_cnn_b"]


def parameters(name, **settings):
    with torch.device("meta"):
        return count_parameters(ptn.create_model(name, **settings))


@pytest.mark.parametrize(
    ("name", "size", "count"),
    [
        ("ptn_s", 28, 27_931),
        ("ptn_b", 28, 131_959),
        ("ptn_s", 42, 31_591),
        ("ptn_b", 42, 136_663),
        ("ptn_s", 96, 35_251),
        ("ptn_b", 96, 136_663),
    ],
)
def test_parameter_counts_are_those_of_the_paper(name, size, count):
    assert parameters(name, image_size=size) == count
    for other in ("ccnn", "pcnn"):
        assert parameters(name.replace("ptn", other), image_size=size) == count - PREDICTOR


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_runs_backward_explains_itself_and_can_be_copied_saved_and_loaded(name, tmp_path):
    settings = {"num_classes": 3, "image_size": 20, "in_chans": 2}
    model = ptn.create_model(name, **settings)
    model.classes = ("a", "b", "c")
    images = torch.rand(2, *model.input_shape)
    logits = model(images)
    assert logits.shape == (2, 3)
    logits.square().sum().backward()
    unused = [key for key, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()]
    assert unused == []

    explanation = model.explain(images)
    assert model.training
    expected = model.eval()(images)
    assert torch.allclose(explanation.logits, expected, atol=1e-5)
    has_origin = name.startswith(("ptn", "pcnn", "cylindrical"))
    assert (explanation.polar_images is not None) == (explanation.origins is not None) == has_origin
    again = ptn.create_model(name, **settings).eval()
    again.load_state_dict(model.state_dict())
    ptn.save_weights(model, tmp_path / "weights.safetensors")
    loaded = ptn.load_model(tmp_path / "weights.safetensors")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), again, loaded):
        assert torch.equal(other(images), expected)
    assert loaded.config == model.config
    assert loaded.classes == ("a", "b", "c")
    assert not loaded.training


@pytest.mark.parametrize("name", SINGLE)
def test_a_network_without_a_head_gives_pooled_features(name, tmp_path):
    model = ptn.create_model(name, image_size=20).eval()
    images = torch.rand(2, *model.input_shape)
    maps = model.explain(images).feature_maps
    ptn.save_weights(model, tmp_path / "w.safetensors")
    headless = ptn.create_model(name, pretrained=tmp_path / "w.safetensors", num_classes=0)
    assert torch.allclose(headless(images), maps.flatten(2).mean(dim=2), atol=1e-6)
    ptn.save_weights(headless, tmp_path / "h.safetensors")
    again = ptn.create_model(name, pretrained=tmp_path / "h.safetensors", num_classes=4)
    assert torch.equal(again.explain(images).feature_maps, maps)
    assert again(images).shape == (2, 4)


@pytest.mark.parametrize("size", [16, 64, 150, (128, 96)])
@pytest.mark.parametrize("name", ["ptn_s", "ptn_b", "ptn_l", "stn_s", "ptn_resnet32"])
def test_any_image_size_works(name, size):
    model = ptn.create_model(name, image_size=size, in_chans=3).eval()
    assert model(torch.rand(1, *model.input_shape)).shape == (1, 10)


def test_float16_weights_are_loaded_as_float32_and_large_values_are_stored_as_float32(tmp_path):
    model, path = ptn.create_model("ptn_s"), tmp_path / "ptn_s.safetensors"
    model.classifier.features[0].norm.running_var.fill_(1e6)
    ptn.save_weights(model, str(path), half=True)
    assert load_file(path)["classifier.head.weight"].dtype == torch.float16
    loaded = ptn.create_model("ptn_s", pretrained=path)
    assert loaded.classifier.head.weight.dtype == torch.float32
    assert torch.allclose(loaded.classifier.head.weight, model.classifier.head.weight, atol=1e-3)
    assert loaded.classifier.features[0].norm.running_var[0] == 1e6


def test_a_weights_file_has_sizes_options_normalization_and_metadata(tmp_path):
    model = ptn.create_model("ptn_s", num_classes=4, image_size=(30, 24), in_chans=3, heatmap="linear")
    model.set_normalization([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    model.classes = ("1", "true", "ü", "null")
    model.metadata = {"dataset": "folder", "dataset_options": {"root": "x", "sizes": [1, 2]}, "seed": 3}
    model.metadata |= {"test_error": 1.25, "recipe": "a/b=[1]"}
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded = ptn.create_model("ptn_s", pretrained=tmp_path / "w.safetensors")
    assert loaded.config == model.config
    assert loaded.transformer.predictor.heatmap == "linear"
    assert torch.equal(loaded.mean, model.mean)
    assert loaded.classes == model.classes
    assert loaded.metadata == model.metadata
    ptn.save_weights(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "w.safetensors").read_bytes()


def test_another_number_of_classes_gives_a_new_head_without_classes_and_metadata(tmp_path):
    model = ptn.create_model("ptn_s")
    model.classes, model.metadata = tuple("0123456789"), {"test_error": 1.0}
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded = ptn.create_model("ptn_s", num_classes=7, pretrained=tmp_path / "w.safetensors")
    assert loaded(torch.rand(1, 1, 28, 28)).shape == (1, 7)
    assert torch.equal(loaded.classifier.features[0].conv.weight, model.classifier.features[0].conv.weight)
    assert (loaded.classes, loaded.metadata) == (None, {})
    larger = ptn.create_model("ptn_s", image_size=32, pretrained=tmp_path / "w.safetensors")
    assert (larger.classes, larger.metadata) == (model.classes, {})


def test_options_of_an_ensemble_go_to_every_member_that_has_them(tmp_path):
    model = ptn.create_model("ptn_cnn_b", dropout=0.5, heatmap="linear", image_size=20)
    assert [member.classifier.dropout.rate for member in model.members] == [0.5, 0.5]
    assert model.members[0].transformer.predictor.heatmap == "linear"
    ptn.save_weights(model, tmp_path / "w.safetensors")
    loaded = ptn.create_model("ptn_cnn_b", num_classes=3, pretrained=tmp_path / "w.safetensors")
    assert loaded.config.options == model.config.options
    assert loaded(torch.rand(2, 1, 20, 20)).shape == (2, 3)


def test_load_model_reads_files_and_folders_and_prefers_an_existing_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ptn.create_model("ptn_s", num_classes=3).eval()
    ptn.save_weights(model, "me/model/weights.safetensors")
    ptn.save_weights(model, "ptn_s.rotmnist/weights.safetensors")
    (tmp_path / "copy").write_bytes((tmp_path / "me" / "model" / "weights.safetensors").read_bytes())
    images = torch.rand(1, 1, 28, 28)
    for source in ("me/model", tmp_path / "ptn_s.rotmnist", "ptn_s.rotmnist", "copy"):
        assert torch.equal(ptn.load_model(source)(images), model(images))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ptn_bb", {}, "did you mean 'ptn_b'"),
        ("ptn_b", {"heatmaps": "linear"}, "did you mean 'heatmap'"),
        ("cylindrical", {"origin": "lerned"}, "did you mean 'learned'"),
        ("ptn_b", {"kernel": 3}, "unknown option"),
        ("ptn_b", {"angles": 0}, "angles"),
        ("ptn_b", {"num_classes": -1}, "num_classes must be"),
        ("ptn_cnn_b", {"num_classes": 0}, "num_classes must be"),
        ("ptn_b", {"image_size": 2}, "image_size must be"),
        ("ptn_b", {"image_size": (28, 28, 28)}, "image_size must be"),
        ("cylindrical", {"image_size": (20, 30)}, "takes cubes"),
        ("ptn_b", {"r_min_px": "big"}, "r_min_px must be"),
        ("ptn_b", {"dropout": 1.0}, "dropout must be"),
        ("ptn_b", {"origin_turns": 3}, "origin_turns must be"),
        ("ptn_b.nowhere", {}, "no pretrained weights ptn_b.nowhere"),
        ("ptn_cnn_b.nowhere", {}, "no pretrained weights ptn_b.nowhere"),
        ("stn_b", {"pretrained": True}, "no default weights"),
        ("ptn_b", {"pretrained": "nowhere/x.safetensors"}, "no weights file at"),
    ],
)
def test_invalid_arguments_are_named(name, settings, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.create_model(name, **settings)


@pytest.mark.parametrize("source", ["nowhere", "none.safetensors", "none.onnx", "ptn_b", "a/b/c", "/no/where"])
def test_load_model_names_what_is_missing(source):
    with pytest.raises(ptn.InputError, match=r"no (model|weights file|ONNX file) at"):
        ptn.load_model(source)


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(ptn.InputError, match=r"weights\.safetensors"):
        ptn.load_model(tmp_path)
    path.write_bytes(b"not weights at all")
    with pytest.raises(ptn.InputError, match="is not a weights file"):
        ptn.load_model(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ptn.InputError, match="no model configuration"):
        ptn.load_model(path)
    ptn.save_weights(ptn.create_model("ccnn_s"), path)
    with pytest.raises(ptn.InputError, match="weights of ccnn_s, not of ptn_s"):
        ptn.create_model("ptn_s", pretrained=path)
    ptn.save_weights(ptn.create_model("ptn_s"), path)
    with pytest.raises(ptn.InputError, match="for images of 28×28 pixels"):
        ptn.create_model("ptn_s", image_size=64, pretrained=path)
    with pytest.raises(ptn.InputError, match=r"torch\.export\.load"):
        ptn.load_model(tmp_path / "model.pt2")


@pytest.mark.parametrize("name", ["ptn_s", "stn_s", "ptn_resnet32"])
def test_pretrained_weights_fit_another_number_of_channels(name, trained_like, tmp_path):
    model = trained_like(name).eval()
    model.set_normalization([0.1], [0.3])
    ptn.save_weights(model, tmp_path / "w.safetensors")
    colored = ptn.create_model(name, pretrained=tmp_path / "w.safetensors", in_chans=3)
    gray = torch.rand(2, 1, 28, 28)
    assert torch.allclose(colored(gray.expand(-1, 3, -1, -1)), model(gray), atol=1e-4)


CONFIG = '{"name": "ptn_s", "image_size": [28, 28]}'


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"config": "[1]"}, "configuration in"),
        ({"config": "{}"}, "no value for name"),
        ({"config": '{"name": "ptn_s", "image_size": [28]}'}, "image_size"),
        ({"config": '{"name": "ptn_q"}'}, "unknown model 'ptn_q'"),
        ({"config": '{"name": "ptn_s", "options": {"kernel": 3}}'}, "unknown option"),
        ({"config": CONFIG, "classes": "cat"}, "classes must be"),
        ({"config": CONFIG, "classes": '["cat"]'}, "names of 10 classes"),
    ],
)
def test_invalid_metadata_of_a_file_is_named(tmp_path, metadata, message):
    save_file({"a": torch.zeros(1)}, tmp_path / "w.safetensors", metadata)
    with pytest.raises(ptn.InputError, match=message):
        ptn.load_model(tmp_path / "w.safetensors")


def test_a_network_is_not_saved_with_a_wrong_number_of_classes(tmp_path):
    model = ptn.create_model("ptn_s")
    model.classes = ("cat", "dog")
    with pytest.raises(ptn.InputError, match="names of 10 classes"):
        ptn.save_weights(model, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []
