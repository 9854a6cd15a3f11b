"""Exported files give the logits of the network for any batch size, or are not written."""

import importlib.util
import json
import logging

import numpy as np
import pytest
import torch
from torch import nn

import ptn
from ptn.models.export import sample_images

onnx = pytest.importorskip("onnx", reason="pip install 'ptn[export]'")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
from onnx import TensorProto, helper  # noqa: E402


@pytest.fixture(scope="module")
def exported(tmp_path_factory, trained_like):
    """A network, its ONNX file, and the result of the export."""
    model = trained_like("ptn_s", image_size=20, num_classes=3).train()
    model.classes = ("ant", "bee", "cow")
    model.metadata = {"fit": "pad", "dataset": "folder", "dataset_options": {"root": "/home/me", "size": 20}}
    path = tmp_path_factory.mktemp("onnx") / "folder" / "model.onnx"
    return model, path, ptn.export(model, path)


def test_an_onnx_file_gives_the_logits_for_any_batch_size(exported):
    model, path, result = exported
    assert (result.path, result.images, result.batches) == (path, 24, (1, 2, 5, 16))
    assert result.difference <= 1e-5
    assert all(module.training for module in model.modules())
    loaded = ptn.load_model(path)
    for count in (1, 3, 40):
        images = sample_images((1, 20, 20), count, seed=3)
        expected = model.explain(images).logits
        assert torch.allclose(loaded(images), expected, atol=1e-4)
        assert torch.equal(loaded.explain(images).logits, loaded(images))
    assert list(path.parent.iterdir()) == [path]


def test_an_onnx_file_has_configuration_classes_and_metadata_but_no_paths(exported):
    model, path, _ = exported
    loaded = ptn.OnnxModel(path)
    assert (loaded.config, loaded.classes) == (model.config, ("ant", "bee", "cow"))
    assert loaded.metadata["dataset_options"] == {"size": 20}
    assert loaded.metadata["fit"] == "pad"
    assert model.metadata["dataset_options"]["root"] == "/home/me"
    texts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(texts["classes"]) == ["ant", "bee", "cow"]
    assert (texts["model"], texts["image_size"], texts["in_chans"]) == ("ptn_s", "[20, 20]", "1")
    assert texts["ptn_version"] == ptn.__version__
    assert b"networks.py" not in path.read_bytes()


def test_normalization_is_part_of_the_file(exported):
    model, path, _ = exported
    images = sample_images((1, 20, 20), 2)
    plain = ptn.create_model("ptn_s", image_size=20, num_classes=3).eval()
    plain.load_state_dict(model.state_dict())
    plain.set_normalization([0.0], [1.0])
    assert (ptn.OnnxModel(path)(images) - plain(images)).abs().max() > 1e-2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_image_that_is_not_finite_has_no_finite_logits(exported, value):
    images = sample_images((1, 20, 20), 3)
    images[1, 0, 10, 10] = value
    logits = ptn.OnnxModel(exported[1])(images)
    assert torch.isfinite(logits).all(dim=1).tolist() == [True, False, True]


@pytest.mark.filterwarnings("default")  # torch.export calls deprecated functions of torch
def test_a_torch_file_gives_the_logits_for_any_batch_size(tmp_path, trained_like):
    model = trained_like("ccnn_s", image_size=20, num_classes=3).eval()
    model.classes = ("ant", "bee", "cow")
    path = tmp_path / "model.pt2"
    assert ptn.export(model, path).difference <= 1e-5
    assert b"networks.py" not in path.read_bytes()
    extra = {"metadata.json": ""}
    loaded = torch.export.load(path, extra_files=extra).module()
    for count in (1, 7):
        images = sample_images((1, 20, 20), count, seed=3)
        assert torch.allclose(loaded(images), model(images), atol=1e-5)
    assert json.loads(json.loads(extra["metadata.json"])["classes"]) == ["ant", "bee", "cow"]


@pytest.mark.slow
def test_a_file_with_other_logits_is_not_written(tmp_path, trained_like):
    model = trained_like("ccnn_s", image_size=20)
    path = tmp_path / "model.onnx"
    path.write_text("the old file")
    with pytest.raises(ptn.InputError, match="was not written"):
        ptn.export(model, path, tolerance=-1)
    nn.init.constant_(model.classifier.head.bias, torch.nan)
    with pytest.raises(ptn.InputError, match="was not written"):
        ptn.export(model, path, tolerance=1e9)
    assert path.read_text() == "the old file"
    assert list(tmp_path.iterdir()) == [path]


class DataDependent(nn.Module):
    def forward(self, images):
        return images.mean(dim=(1, 2)) if images.sum() > 0 else images.amax(dim=(1, 2))


@pytest.mark.parametrize(
    ("model", "images", "message"),
    [
        (len, None, "takes a torch.nn.Module"),
        (nn.Flatten(), None, "give images"),
        ("ccnn_s", torch.zeros(0, 1, 28, 28), "at least one image"),
        ("ccnn_s", torch.zeros(2, 1, 28, 28).byte(), "divide bytes by 255"),
        ("ccnn_s", torch.rand(2, 3, 8, 8), r"this model takes \(N, 1, 28, 28\)"),
        (nn.ReLU(), torch.rand(2, 3, 8, 8), r"returns \(1, 3, 8, 8\)"),
        (DataDependent(), torch.rand(2, 3, 8, 8), "cannot trace"),
    ],
)
def test_what_cannot_be_exported_is_named_in_one_line(model, images, message, tmp_path):
    model = ptn.create_model(model) if isinstance(model, str) else model
    with pytest.raises(ptn.InputError, match=message) as caught:
        ptn.export(model, tmp_path / "model.onnx", images=images)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_suffix_names_the_format(tmp_path):
    for name in ("model", "model.pt", "model.onnx.bak"):
        with pytest.raises(ptn.InputError, match=r"\.onnx or \.pt2"):
            ptn.export(ptn.create_model("ccnn_s"), tmp_path / name)
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ptn.InputError, match="is a folder"):
        ptn.export(ptn.create_model("ccnn_s"), tmp_path / "folder.onnx")


def test_any_classifier_can_be_exported_with_images(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = sample_images((3, 17, 23), 3)
    ptn.export(network, tmp_path / "other.onnx", images=images)
    loaded = ptn.OnnxModel(tmp_path / "other.onnx")
    assert (loaded.metadata["model"], loaded.input_shape, loaded.classes) == ("Sequential", (3, 17, 23), None)
    assert torch.allclose(loaded(images), network(images), atol=1e-5)
    with pytest.raises(ptn.InputError, match="ONNX file already"):
        ptn.export(loaded, tmp_path / "again.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_can_be_exported(name, tmp_path, trained_like):
    settings = {"image_size": 32, "in_chans": 3} if "resnet32" in name else {"image_size": 20}
    model = trained_like(name, **settings).eval()
    ptn.export(model, tmp_path / "model.pt2")
    ptn.export(model, tmp_path / "model.onnx")
    images = sample_images(model.input_shape, 3, seed=5)
    logits = model.explain(images).logits
    actual = ptn.OnnxModel(tmp_path / "model.onnx")(images)
    assert torch.allclose(actual, logits, atol=1e-4 * max(1.0, float(logits.abs().max())))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"mode": "bicubic"}, {"mode": "nearest"}, {"origin_turns": 4}])
def test_options_can_be_exported(options, tmp_path, trained_like):
    model = trained_like("ptn_s", image_size=20, **options)
    for name in ("model.onnx", "model.pt2"):
        assert ptn.export(model, tmp_path / name).difference <= 1e-4


@pytest.mark.slow
def test_a_polarized_network_can_be_exported(tmp_path):
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    model = ptn.polarize(backbone, image_size=32).eval()
    for name in ("own.onnx", "own.pt2"):
        assert ptn.export(model, tmp_path / name).difference <= 1e-4


@pytest.mark.slow
def test_warnings_about_torchvision_are_hidden_during_the_export_only(tmp_path, monkeypatch, caplog):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torchvision" else find_spec(name)
    )
    registry = logging.getLogger("torch.onnx._internal.exporter._registration")
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    ptn.export(ptn.create_model("ccnn_s"), tmp_path / "model.onnx")
    assert "torchvision" not in caplog.text
    registry.warning("torchvision is not installed")
    assert "torchvision is not installed" in caplog.text


# ONNX files of other programs


@pytest.fixture
def write(tmp_path):
    """`write((None, 1, 4, 4))`: a file whose logits are the means of the channels."""

    def create(shape, *, kind=TensorProto.FLOAT, inputs=1, pool=True, name="model"):
        dims = [side if side is not None else f"side{i}" for i, side in enumerate(shape)]
        infos = [helper.make_tensor_value_info(f"in{k}", kind, dims) for k in range(inputs)]
        out = helper.make_tensor_value_info("out", kind, None)
        constants, nodes = [], [helper.make_node("Identity", ["in0"], ["out"])]
        if pool:
            constants = [helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])]
            nodes = [helper.make_node("ReduceMean", ["in0", "axes"], ["out"], keepdims=0)]
        graph = helper.make_graph(nodes, name, infos, [out], initializer=constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return create


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_a_file_of_any_float_type_returns_float32(write, kind):
    model = ptn.OnnxModel(write((None, 3, 6, 8), kind=kind, name="foreign"))
    images = torch.from_numpy(np.random.default_rng(0).random((5, 6, 8, 3), dtype=np.float32)).permute(0, 3, 1, 2)
    logits = model(images)
    assert logits.dtype == torch.float32
    assert torch.allclose(logits, images.mean(dim=(2, 3)), atol=2e-3)
    assert (model.config.name, model.config.num_classes, model.config.image_size) == ("foreign", 3, (6, 8))
    assert (model.input_shape, model.metadata, model.classes) == ((3, 6, 8), {}, None)
    assert model.explain(images).feature_maps is None


@pytest.mark.parametrize("count", [1, 4, 5, 11])
def test_a_file_with_a_fixed_batch_takes_any_number_of_images(write, count):
    images = torch.rand(count, 3, 6, 8)
    logits = ptn.OnnxModel(write((4, 3, 6, 8)))(images)
    assert torch.allclose(logits, images.mean(dim=(2, 3)), atol=1e-6)


def test_a_file_may_leave_the_size_of_the_images_open(write):
    model = ptn.OnnxModel(write((None, 3, None, None)))
    for size in ((6, 8), (11, 5)):
        images = torch.rand(2, 3, *size)
        assert torch.allclose(model(images), images.mean(dim=(2, 3)), atol=1e-6)
    with pytest.raises(ptn.InputError, match=r"any size, \(N, 3, H, W\)"):
        _ = model.input_shape


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((None, 3, 6, 8), {"inputs": 2}, "2 inputs and 1 outputs"),
        ((1, 3), {"kind": TensorProto.UINT8, "pool": False}, r"takes tensor\(uint8\)"),
        ((None, 3, 6), {"pool": False}, r"expected images \(N, C, H, W\)"),
        ((None, 3, 6, 8), {"pool": False}, r"returns \(2, 3, 8, 8\)|returns \(2, 3, 6, 8\)"),
    ],
)
def test_files_that_are_no_classifiers_are_refused(write, shape, options, message):
    with pytest.raises(ptn.InputError, match=message):
        ptn.OnnxModel(write(shape, **options))(torch.rand(2, 3, 6, 8))


def test_broken_files_and_other_images_are_refused(write, tmp_path):
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(ptn.InputError, match="ONNX Runtime cannot load"):
        ptn.OnnxModel(tmp_path / "text.onnx")
    model = ptn.OnnxModel(write((None, 3, 6, 8)))
    for shape in ((2, 3, 8, 8), (2, 3)):
        with pytest.raises(ptn.InputError, match=r"takes \(N, 3, 6, 8\)"):
            model(torch.rand(shape))


@pytest.mark.parametrize("shape", [(1, 20, 20), (3, 24, 40), (1, 12, 14, 16)])
def test_sample_images_are_distinct_and_reproducible(shape):
    images = sample_images(shape, 4)
    assert images.shape == (4, *shape)
    assert 0 <= images.min() < images.max() <= 1
    assert len({float(image.mean()) for image in images}) == 4
    assert torch.equal(images, sample_images(shape, 4))
    assert not torch.equal(images, sample_images(shape, 4, seed=1))
