"""Exported files give the logits of the network for any batch size, or are not written."""

import json

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
    """A network, its ONNX file, and the largest difference of the logits."""
    model = trained_like("ptn_s", image_size=20, num_classes=3).train()
    model.classes = ("ant", "bee", "cow")
    model.metadata = {"fit": "pad", "dataset": "folder", "dataset_options": {"root": "/private/photos", "size": 20}}
    path = tmp_path_factory.mktemp("onnx") / "folder" / "model.onnx"
    return model, path, ptn.export(model, path)


def test_an_onnx_file_gives_the_logits_for_any_batch_size(exported):
    model, path, difference = exported
    assert difference <= 1e-5
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
    assert (loaded.metadata["fit"], loaded.metadata["dataset_options"]) == ("pad", {"size": 20})
    assert loaded.metadata["ptn_version"] == ptn.__version__
    assert model.metadata["dataset_options"]["root"] == "/private/photos"
    assert b"networks.py" not in path.read_bytes()


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
    assert ptn.export(model, path) <= 1e-5
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
        (nn.Flatten(), None, "give images"),
        ("ccnn_s", torch.full((2, 1, 28, 28), 255).byte(), "divide them by 255"),
        ("ccnn_s", torch.rand(2, 3, 8, 8), r"this model takes \(N, 1, 28, 28\)"),
        (nn.Flatten(2), torch.rand(2, 3, 8, 8), r"returns \(1, 3, 64\)"),
        (DataDependent(), torch.rand(2, 3, 8, 8), "cannot trace"),
    ],
)
def test_what_cannot_be_exported_is_named(model, images, message, tmp_path):
    model = ptn.create_model(model) if isinstance(model, str) else model
    with pytest.raises(ptn.InputError, match=message):
        ptn.export(model, tmp_path / "model.onnx", images=images)
    assert list(tmp_path.iterdir()) == []


def test_any_classifier_can_be_exported_with_images(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = sample_images((3, 17, 23), 3)
    ptn.export(network, tmp_path / "other.onnx", images=images)
    loaded = ptn.OnnxModel(tmp_path / "other.onnx")
    assert (loaded.input_shape, loaded.classes) == ((3, 17, 23), None)
    assert torch.allclose(loaded(images), network(images), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("stn_s", "ptn_cnn_b", "cylindrical")),
        *(
            ("ptn_s", options)
            for options in ({"mode": "bicubic", "frame": "disc"}, {"origin_turns": 4}, {"heatmap": "evidence"})
        ),
    ],
)
def test_every_kind_of_network_can_be_exported(name, options, tmp_path, trained_like):
    model = trained_like(name, image_size=20, **options).eval()
    images = sample_images(model.input_shape, 3, seed=5)
    logits = model.explain(images).logits
    ptn.export(model, tmp_path / "model.pt2")
    ptn.export(model, tmp_path / "model.onnx")
    actual = ptn.OnnxModel(tmp_path / "model.onnx")(images)
    assert torch.allclose(actual, logits, atol=1e-4 * max(1.0, float(logits.abs().max())))


# ONNX files of other programs


@pytest.fixture
def write(tmp_path):
    """`write((None, 1, 4, 4))`: a file whose logits are the means of the channels."""

    def create(shape, *, kind=TensorProto.FLOAT, inputs=1, pool=True):
        dims = [side if side is not None else f"side{i}" for i, side in enumerate(shape)]
        infos = [helper.make_tensor_value_info(f"in{k}", kind, dims) for k in range(inputs)]
        out = helper.make_tensor_value_info("out", kind, None)
        constants, nodes = [], [helper.make_node("Identity", ["in0"], ["out"])]
        if pool:
            constants = [helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])]
            nodes = [helper.make_node("ReduceMean", ["in0", "axes"], ["out"], keepdims=0)]
        graph = helper.make_graph(nodes, "foreign", infos, [out], initializer=constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        path = tmp_path / "foreign.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return create


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_a_file_of_any_float_type_returns_float32(write, kind):
    model = ptn.OnnxModel(write((None, 3, 6, 8), kind=kind))
    images = torch.from_numpy(np.random.default_rng(0).random((5, 6, 8, 3), dtype=np.float32)).permute(0, 3, 1, 2)
    logits = model(images)
    assert logits.dtype == torch.float32
    assert torch.allclose(logits, images.mean(dim=(2, 3)), atol=2e-3)
    assert (model.config.name, model.config.num_classes, model.config.image_size) == ("foreign", 3, (6, 8))
    assert (model.input_shape, model.metadata, model.classes) == ((3, 6, 8), {}, None)


@pytest.mark.parametrize("shape", [(4, 3, 6, 8), (None, 3, None, None)])
def test_a_file_with_a_fixed_batch_or_an_open_size_takes_any_number_of_images(write, shape):
    model = ptn.OnnxModel(write(shape))
    for count in (1, 4, 5, 11):
        images = torch.rand(count, 3, 6, 8)
        assert torch.allclose(model(images), images.mean(dim=(2, 3)), atol=1e-6)
    if None in shape[1:]:
        with pytest.raises(ptn.InputError, match="any size"):
            _ = model.input_shape


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((None, 3, 6, 8), {"inputs": 2}, "one input"),
        ((1, 3, 6, 8), {"kind": TensorProto.UINT8, "pool": False}, "of floats"),
        ((None, 3, 6), {"pool": False}, r"\(N, C, H, W\)"),
        ((None, 3, 8, 8), {}, "resize the images"),
    ],
)
def test_files_that_are_no_classifiers_of_these_images_are_refused(write, shape, options, message, tmp_path):
    with pytest.raises(ptn.InputError, match=message):
        ptn.OnnxModel(write(shape, **options))(torch.rand(2, 3, 6, 8))
    with pytest.raises(ptn.InputError, match=r"here; got \(2, 3, 6, 8\)"):  # a segmenter
        ptn.predict(ptn.OnnxModel(write((None, 3, 6, 8), pool=False)), torch.rand(2, 3, 6, 8))
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(ptn.InputError, match="ONNX Runtime cannot load"):
        ptn.OnnxModel(tmp_path / "text.onnx")
