"""Weights files say what they were trained on, and are refused in one line when they do not make sense."""

import json

import pytest
import torch
from safetensors.torch import save_file

import ptn
from ptn.errors import InputError
from ptn.evaluation import open_weights
from ptn.models import zoo


@pytest.fixture
def saved(tmp_path):
    """`saved(classes='["a"]')` -> the path of a small network's weights with that metadata."""

    def save(name="net.safetensors", **metadata):
        model = ptn.create_model("ptn_s", image_size=20, num_classes=3)
        ptn.save_weights(model, tmp_path / name, metadata=metadata)
        return tmp_path / name

    return save


def test_metadata_comes_back(saved):
    path = saved(
        classes=json.dumps(["ant", "bee", "cow"]),
        dataset="modelnet40",
        dataset_options=json.dumps({"size": 64}),
        fit="pad",
    )
    weights = open_weights(str(path))
    assert (weights.classes, weights.class_names) == (("ant", "bee", "cow"),) * 2
    assert (weights.dataset, weights.dataset_options, weights.fit) == ("modelnet40", {"size": 64}, "pad")
    assert weights.model.config.image_size == (20, 20)
    assert not weights.model.training


def test_without_metadata_classes_are_numbers_and_images_resized(saved):
    weights = open_weights(str(saved()))
    assert weights.classes is None
    assert weights.class_names == ("0", "1", "2")
    assert (weights.dataset, weights.dataset_options, weights.fit) == (None, {}, "resize")


def test_folders_of_runs_and_of_the_hub_open_too(saved, tmp_path):
    (tmp_path / "seed-0").mkdir()
    saved(classes='["a", "b", "c"]').rename(tmp_path / "seed-0" / "weights.safetensors")
    model = open_weights(str(tmp_path / "seed-0")).model
    shared = ptn.save_pretrained(model, tmp_path / "shared", classes=["d", "e", "f"])
    assert open_weights(str(tmp_path / "seed-0")).class_names == ("a", "b", "c")
    assert open_weights(f"{shared}/").class_names == ("d", "e", "f")
    with pytest.raises(InputError, match=r"has no weights.safetensors or model.safetensors in it: name the folder"):
        open_weights(str(tmp_path))


def test_a_tag_opens_shipped_weights(saved, monkeypatch):
    path = saved("ptn_s.toys.safetensors", classes='["a", "b", "c"]')
    monkeypatch.setattr(zoo, "WEIGHTS", path.parent)
    assert open_weights("ptn_s.toys").class_names == ("a", "b", "c")
    with pytest.raises(InputError, match=r"no pretrained weights ptn_s\.boys; available: ptn_s\.toys"):
        open_weights("ptn_s.boys")
    with pytest.raises(InputError, match=r"a pretrained tag \(ptn_s\.toys\); got 'ptn_s'"):
        open_weights("ptn_s")


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"classes": '["a", "b"]'}, "names 2 classes, but its network has 3"),
        ({"classes": "a, b, c"}, "'classes' is not a JSON list: 'a, b, c'"),
        ({"classes": '{"a": 1}'}, "'classes' is not a JSON list"),
        ({"dataset_options": "[]"}, "'dataset_options' is not a JSON dict"),
        ({"fit": "crop"}, "unknown fit in .*net.safetensors 'crop'"),
    ],
)
def test_metadata_that_makes_no_sense_is_refused(saved, metadata, says):
    with pytest.raises(InputError, match=says):
        open_weights(str(saved(**metadata)))


def test_what_is_no_weights_file_is_never_unpickled(tmp_path, saved):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    pickled = tmp_path / "trap.safetensors"
    torch.save({"model": Trap()}, pickled)
    with pytest.raises(InputError, match=r"trap\.safetensors is not a safetensors file"):
        open_weights(str(pickled))
    renamed = pickled.rename(tmp_path / "trap.pt")
    with pytest.raises(InputError, match=r"weights are a \.safetensors or \.onnx file, .* got '.*trap\.pt'"):
        open_weights(str(renamed))


def test_a_missing_a_cut_and_a_foreign_file_are_named(tmp_path, saved):
    with pytest.raises(InputError, match=r"no weights at .*none\.safetensors"):
        open_weights(str(tmp_path / "none.safetensors"))
    cut = saved("cut.safetensors")
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"cut\.safetensors is not a safetensors file"):
        open_weights(str(cut))
    save_file({"w": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(InputError, match=r"foreign\.safetensors has no model configuration"):
        open_weights(str(tmp_path / "foreign.safetensors"))
