"""The released weights: their files and accuracy."""

import pytest
import torch

import ptn
from ptn.data.store import MissingDataError


def test_pretrained_true_takes_the_default_tag():
    assert ptn.create_model("ptn_b", pretrained=True).metadata["dataset"] == "rotmnist"
    assert ptn.create_model("ptn_cnn_b", pretrained=True).metadata["dataset"] == "rotmnist"
    assert ptn.create_model("cylindrical", pretrained=True).classes[0] == "airplane"
    assert ptn.create_model("ptn_b.sim2mnist", pretrained=True).config.image_size == (96, 96)


@pytest.mark.parametrize("tag", ptn.list_pretrained())
def test_every_released_network_has_classes_and_metadata(tag):
    model = ptn.load_model(tag)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert len(model.classes) == model.config.num_classes
    assert {"dataset", "dataset_options", "fit", "recipe", "seed", "test_error"} <= model.metadata.keys()
    assert isinstance(model.metadata["seed"], int)


@pytest.mark.parametrize("tag", ["ptn_s.rotmnist", "ptn_cnn_b.rotmnist"])
def test_digits_are_recognized_at_any_rotation(tag):
    try:
        digits = ptn.load_dataset("rotmnist", "test")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    model = ptn.load_model(tag)
    images, labels = digits.images[:300].float() / 255, digits.labels[:300]
    with torch.no_grad():
        rotated = ptn.similarity_warp(images, ptn.Similarity(torch.linspace(0, 2 * torch.pi, 300)))
        errors = [float((model(x).argmax(dim=1) != labels).float().mean()) for x in (images, rotated)]
    assert max(errors) < 0.03


def test_a_released_ensemble_averages_its_released_members():
    ensemble = ptn.load_model("ptn_cnn_b.rotmnist")
    members = [ptn.load_model(f"{name}.rotmnist") for name in ("ptn_b", "ccnn_b")]
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        expected = sum(member(images).softmax(dim=1) for member in members) / 2
        assert torch.allclose(ensemble(images).softmax(dim=1), expected, atol=1e-6)
    assert ensemble.metadata["dataset"] == "rotmnist"
    assert "test_error" not in ensemble.metadata
    assert ensemble.classes == tuple("0123456789")
    assert ptn.create_model("ptn_cnn_b", pretrained="rotmnist", num_classes=7)(images).shape == (2, 7)
