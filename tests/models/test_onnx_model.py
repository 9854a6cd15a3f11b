"""ONNX files of any origin as classifiers, and those that are none."""

import numpy as np
import pytest
import torch

import ptn

onnx = pytest.importorskip("onnx", reason="ONNX files need pip install 'ptn[export]'")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402


@pytest.fixture
def write(tmp_path):
    """`write((None, 1, 4, 4))` -> a file whose scores are the means of the channels."""

    def make(shape, *, kind=TensorProto.FLOAT, inputs=1, flatten=True, name="made"):
        dims = [side if side is not None else f"side{i}" for i, side in enumerate(shape)]
        given = [helper.make_tensor_value_info(f"in{k}", kind, dims) for k in range(inputs)]
        out = helper.make_tensor_value_info("out", kind, None)
        constants = []
        if flatten:  # (N, C, H, W) -> (N, C): the mean of each channel
            constants = [helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])]
            nodes = [helper.make_node("ReduceMean", ["in0", "axes"], ["out"], keepdims=0)]
        else:
            nodes = [helper.make_node("Identity", ["in0"], ["out"])]
        graph = helper.make_graph(nodes, name, given, [out], initializer=constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return make


def means(images):
    return images.mean(dim=(2, 3))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_a_file_of_any_float_type_answers_in_float32(write, kind):
    model = ptn.OnnxModel(write((None, 3, 6, 8), kind=kind))
    images = torch.rand(5, 3, 6, 8)
    scores = model(images)
    assert scores.dtype == torch.float32
    assert torch.allclose(scores, means(images), atol=2e-3)


@pytest.mark.parametrize("count", [1, 4, 5, 11])
def test_a_file_with_a_fixed_batch_takes_any_number_of_images(write, count):
    model = ptn.OnnxModel(write((4, 3, 6, 8)))
    images = torch.rand(count, 3, 6, 8)
    assert torch.allclose(model(images), means(images), atol=1e-6)


def test_what_the_file_does_not_say_is_seen_from_outside(write):
    model = ptn.OnnxModel(write((None, 3, 6, 8), name="foreign"))
    assert model.input_shape == (3, 6, 8)
    assert (model.config.name, model.config.num_classes, model.config.image_size) == ("foreign", 3, (6, 8))
    assert model.metadata == {}


def test_a_file_may_leave_the_size_free(write):
    model = ptn.OnnxModel(write((None, 3, None, None)))
    for size in ((6, 8), (11, 5)):
        images = torch.rand(2, 3, *size)
        assert torch.allclose(model(images), means(images), atol=1e-6)
    with pytest.raises(ptn.InputError, match=r"takes images of several sizes, \(N, 3, H, W\)"):
        _ = model.input_shape


def test_explaining_has_the_logits_only(write):
    images = torch.rand(2, 3, 6, 8)
    explanation = ptn.OnnxModel(write((None, 3, 6, 8))).explain(images)
    assert torch.allclose(explanation.logits, means(images), atol=1e-6)
    assert explanation.feature_maps is None
    assert explanation.origins is None


def test_mistakes_are_one_line(write, tmp_path):
    fits = write((None, 3, 6, 8), name="fits")
    text = tmp_path / "text.onnx"
    text.write_text("this is no model")
    mistakes = [
        ("no ONNX file at", lambda: ptn.OnnxModel(tmp_path / "none.onnx")),
        ("is not a model that ONNX Runtime can run", lambda: ptn.OnnxModel(text)),
        ("2 inputs and 1 outputs", lambda: ptn.OnnxModel(write((None, 3, 6, 8), inputs=2, name="two"))),
        (r"takes tensor\(uint8\)", lambda: ptn.OnnxModel(write((1, 3), kind=TensorProto.UINT8, flatten=False))),
        (r"images are \(N, C, H, W\)", lambda: ptn.OnnxModel(write((None, 3, 6), flatten=False, name="flat"))),
        (r"takes \(N, 3, 6, 8\); got \(2, 3, 8, 8\)", lambda: ptn.OnnxModel(fits)(torch.rand(2, 3, 8, 8))),
        (r"takes \(N, 3, 6, 8\); got \(2, 3\)", lambda: ptn.OnnxModel(fits)(torch.rand(2, 3))),
        (
            r"gives \(2, 3, 6, 8\)",
            lambda: ptn.OnnxModel(write((None, 3, 6, 8), flatten=False, name="map"))(torch.rand(2, 3, 6, 8)),
        ),
    ]
    for says, read in mistakes:
        with pytest.raises(ptn.InputError, match=says) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_arrays_that_are_views_are_read_as_they_look(write):
    model = ptn.OnnxModel(write((None, 3, 6, 8)))
    images = torch.from_numpy(np.random.default_rng(0).random((2, 6, 8, 3), dtype=np.float32)).permute(0, 3, 1, 2)
    assert torch.allclose(model(images), means(images), atol=1e-6)
