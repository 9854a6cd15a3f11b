"""Files that answer like the network, at any number of images, or are not written at all."""

import importlib.util
import json
import logging

import pytest
import torch
from torch import nn

import ptn
from ptn.models.sample_images import sample_images

onnx = pytest.importorskip("onnx", reason="export needs pip install 'ptn[export]'")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def written(tmp_path_factory, lively_model):
    """A network, and the ONNX file made of it."""
    model = lively_model("ptn_s", image_size=20, num_classes=3).train()
    path = tmp_path_factory.mktemp("onnx") / "made" / "model.onnx"
    done = ptn.export_onnx(model, path, classes=("ant", "bee", "cow"), metadata={"fit": "pad"})
    return model, path, done


def test_the_onnx_file_gives_the_networks_logits_for_any_number_of_images(written):
    model, path, done = written
    assert done.path == path
    assert done.difference <= 1e-5
    assert (done.images, done.batches) == (24, (1, 2, 5, 16))
    read = ptn.OnnxModel(path)
    model.eval()
    for count in (1, 3, 40):
        images = sample_images((1, 20, 20), count, seed=3)
        assert torch.allclose(read(images), model(images), atol=1e-4)
    model.train()


@pytest.mark.slow
def test_somebodys_own_network_made_polar_is_exported_too(tmp_path):
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    model = ptn.polarize(backbone, image_size=32).eval()
    assert ptn.export_onnx(model, tmp_path / "own.onnx").difference <= 1e-4
    assert ptn.export_torch(model, tmp_path / "own.pt2").difference <= 1e-4


def test_the_network_is_left_as_it_was(written):
    model, _, _ = written
    assert all(module.training for module in model.modules())


def test_it_is_one_file_that_names_what_it_is(written):
    _, path, _ = written
    assert list(path.parent.iterdir()) == [path]
    proto = onnx.load(path)
    assert proto.opset_import[0].version == 18
    texts = {entry.key: entry.value for entry in proto.metadata_props}
    assert texts["model"] == "ptn_s"
    assert json.loads(texts["classes"]) == ["ant", "bee", "cow"]
    assert json.loads(texts["image_size"]) == [20, 20]
    assert texts["in_chans"] == "1"
    assert texts["ptn_version"] == ptn.__version__
    assert texts["fit"] == "pad"
    assert ptn.OnnxModel(path).config == ptn.create_model("ptn_s", image_size=20, num_classes=3).config


def test_it_tells_nothing_about_the_machine_it_was_made_on(written):
    _, path, _ = written
    assert b"networks.py" not in path.read_bytes()


def test_normalisation_is_part_of_the_file(written):
    model, path, _ = written
    images = sample_images((1, 20, 20), 2)
    plain = ptn.create_model("ptn_s", image_size=20, num_classes=3).eval()
    plain.load_state_dict(model.state_dict())
    plain.set_normalization([0.0], [1.0])
    assert (ptn.OnnxModel(path)(images) - plain(images)).abs().max() > 1e-2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_image_has_no_logits_in_the_file_either(written, value):
    _, path, _ = written
    images = sample_images((1, 20, 20), 3)
    images[1, 0, 10, 10] = value
    logits = ptn.OnnxModel(path)(images)
    assert torch.isfinite(logits).all(dim=1).tolist() == [True, False, True]


def test_a_file_that_disagrees_is_not_written(tmp_path, lively_model):
    model = lively_model("ccnn_s", image_size=20)
    path = tmp_path / "model.onnx"
    path.write_text("what was here before")
    with pytest.raises(ptn.InputError, match=r"model\.onnx was not written: for 1 images .* by .*tolerance -1"):
        ptn.export_onnx(model, path, tolerance=-1)
    assert path.read_text() == "what was here before"
    assert list(tmp_path.iterdir()) == [path]


def test_logits_that_are_no_numbers_are_no_agreement(tmp_path, lively_model):
    model = lively_model("ccnn_s", image_size=20)
    nn.init.constant_(model.classifier.head.bias, torch.nan)
    with pytest.raises(ptn.InputError, match="was not written"):
        ptn.export_onnx(model, tmp_path / "model.onnx", tolerance=1e9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("default")  # torch.export calls deprecated parts of torch itself
def test_torch_export_gives_the_networks_logits_for_any_number_of_images(tmp_path, lively_model):
    model = lively_model("ccnn_s", image_size=20, num_classes=3)
    path = tmp_path / "model.pt2"
    done = ptn.export_torch(model, path, classes=("ant", "bee", "cow"))
    assert done.difference <= 1e-5
    assert b"networks.py" not in path.read_bytes()
    extra = {"metadata.json": ""}
    again = torch.export.load(path, extra_files=extra).module()
    model.eval()
    for count in (1, 7):
        images = sample_images((1, 20, 20), count, seed=3)
        assert torch.allclose(again(images), model(images), atol=1e-5)
    assert json.loads(json.loads(extra["metadata.json"])["classes"]) == ["ant", "bee", "cow"]


class Shaky(nn.Module):
    """Takes a way that depends on values."""

    def forward(self, images):
        return images.mean(dim=(1, 2)) if images.sum() > 0 else images.amax(dim=(1, 2))


def test_mistakes_are_one_line(tmp_path, lively_model):
    model = lively_model("ccnn_s", image_size=20)
    target = tmp_path / "model.onnx"
    images = torch.rand(2, 3, 8, 8)
    mistakes = [
        ("opset must be a whole number from 18 to 25; got 17", lambda: ptn.export_onnx(model, target, opset=17)),
        ("only a torch module", lambda: ptn.export_onnx(len, target)),
        ("the network itself does not say", lambda: ptn.export_onnx(nn.Flatten(), target)),
        ("at least one image", lambda: ptn.export_onnx(model, target, images=torch.zeros(0, 1, 20, 20))),
        ("divide bytes by 255", lambda: ptn.export_onnx(model, target, images=torch.zeros(2, 1, 20, 20).byte())),
        (r"this model takes \(N, 1, 20, 20\)", lambda: ptn.export_onnx(model, target, images=images)),
        ("the network has 10 classes; got 2 names", lambda: ptn.export_onnx(model, target, classes=("a", "b"))),
        (r"gives \(1, 3, 8, 8\)", lambda: ptn.export_onnx(nn.ReLU(), target, images=images)),
        ("is a folder: name the file", lambda: ptn.export_onnx(model, tmp_path)),
        ("torch.export cannot follow this network", lambda: ptn.export_torch(Shaky(), target, images=images)),
    ]
    for says, export in mistakes:
        with pytest.raises(ptn.InputError, match=says) as caught:
            export()
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_networks_of_others_can_be_exported(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = sample_images((3, 17, 23), 3)
    ptn.export_onnx(network, tmp_path / "other.onnx", images=images)
    read = ptn.OnnxModel(tmp_path / "other.onnx")
    assert (read.metadata["model"], read.input_shape) == ("Sequential", (3, 17, 23))
    assert torch.allclose(read(images), network(images), atol=1e-5)


SIZES = {"resnet32": {"image_size": 32, "in_chans": 3}, "ptn_resnet32": {"image_size": 32, "in_chans": 3}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_can_be_exported_both_ways(name, tmp_path, lively_model):
    model = lively_model(name, **SIZES.get(name, {"image_size": 20}))
    assert ptn.export_onnx(model, tmp_path / "model.onnx").difference <= 1e-4
    assert ptn.export_torch(model, tmp_path / "model.pt2").difference <= 1e-4
    model.eval()
    read = ptn.OnnxModel(tmp_path / "model.onnx")
    for count in (1, 3):
        images = sample_images(model.input_shape, count, seed=5)
        assert torch.allclose(read(images), model(images), atol=1e-4)


@pytest.mark.slow
def test_an_origin_that_turns_with_the_image_is_exported_too(tmp_path, lively_model):
    model = lively_model("ptn_s", image_size=20, origin_turns=4)
    assert ptn.export_onnx(model, tmp_path / "model.onnx").difference <= 1e-4
    assert ptn.export_torch(model, tmp_path / "model.pt2").difference <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 20, 25])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_every_interpolation_can_be_exported(opset, mode, tmp_path, lively_model):
    model = lively_model("ptn_s", image_size=20, mode=mode)
    path = tmp_path / "model.onnx"
    assert ptn.export_onnx(model, path, opset=opset).difference <= 1e-4
    assert onnx.load(path).opset_import[0].version == opset


@pytest.mark.slow
def test_real_digits_have_the_same_logits(real_data, tmp_path, lively_model):
    digits = ptn.load_dataset("rotmnist", "test").images[:200].float() / 255
    model = lively_model("ptn_b")
    assert ptn.export_onnx(model, tmp_path / "model.onnx", images=digits).difference <= 1e-4
    model.eval()
    assert torch.allclose(ptn.OnnxModel(tmp_path / "model.onnx")(digits), model(digits), atol=1e-4)


def test_the_exporter_does_not_ask_for_torchvision(tmp_path, monkeypatch, caplog):
    """Without it, the exporter says of each of its operators that it is skipped; what else it says is heard."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchvision" else found(name))
    registry = logging.getLogger("torch.onnx._internal.exporter._registration")
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    ptn.export_onnx(ptn.create_model("ccnn_s"), tmp_path / "model.onnx")
    assert "torchvision" not in caplog.text
    registry.warning("torchvision is not installed: outside of an export this is heard")
    assert "torchvision is not installed" in caplog.text
