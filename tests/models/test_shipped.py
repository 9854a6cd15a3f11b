"""The weights that come with the package: small, loaded without a download, and as good as their cards say."""

import math
import re

import pytest
import torch
from safetensors import safe_open

import ptn
from ptn.data import load_dataset
from ptn.data.store import MissingDataError
from ptn.errors import InputError
from ptn.evaluation import open_weights
from ptn.models.zoo import WEIGHTS, list_pretrained

MIB = 2**20


def test_all_are_half_precision_and_light_on_disk():
    assert "ptn_b.rotmnist" in list_pretrained()
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 8 * MIB
    for name in list_pretrained():
        with safe_open(WEIGHTS / f"{name}.safetensors", "pt") as file:
            kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
        assert kinds <= {"F16", "I64"}


@pytest.mark.parametrize("name", list_pretrained())
def test_each_loads_in_single_precision_and_has_a_card(name):
    model, _, tag = name.partition(".")
    loaded = ptn.create_model(model, pretrained=tag)
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    said = open_weights(name).metadata
    card = (WEIGHTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"ptn train {said['recipe']} --seeds 0`" in card
    assert f'ptn.create_model("{model}", pretrained="{tag}")' in card
    assert re.search(rf"\|\s+{float(said['test_error']):.2f} \|", card)
    assert re.search(r"\(n=[3-9]\)", card) or tag == "quickstart"


@pytest.mark.parametrize("name", ["ptn_s.rotmnist", "ptn_b.rotmnist", "ccnn_b.rotmnist", "ptn_cnn_b.rotmnist"])
def test_digits_are_told_apart_at_any_angle(name):
    try:
        digits = load_dataset("rotmnist", "test")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    model = open_weights(name).model.eval()
    images, labels = digits.images[:1000].float() / 255, digits.labels[:1000]
    with torch.no_grad():
        turned = ptn.similarity_warp(images, ptn.Similarity(torch.linspace(0, 2 * math.pi, 1000)))
        wrong = [float((model(seen).argmax(dim=1) != labels).float().mean()) for seen in (images, turned)]
    assert max(wrong) < 0.03


def test_a_pair_is_made_of_its_members():
    pair = ptn.create_model("ptn_cnn_b", pretrained="rotmnist").eval()
    members = [ptn.create_model(name, pretrained="rotmnist").eval() for name in ("ptn_b", "ccnn_b")]
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        expected = sum(member(images).softmax(dim=1) for member in members) / 2
        assert torch.allclose(pair(images).softmax(dim=1), expected, atol=1e-6)
    seven = ptn.create_model("ptn_cnn_b", pretrained="rotmnist", num_classes=7)
    assert seven(images).shape == (2, 7)
    with pytest.raises(InputError, match=r"no pretrained weights ptn_b\.nowhere"):
        ptn.create_model("ptn_cnn_b", pretrained="nowhere")


def test_a_pair_is_opened_ready_to_answer_and_says_nothing_that_holds_for_one_member(tmp_path, monkeypatch):
    opened = open_weights("ptn_cnn_b.rotmnist")
    assert not opened.model.training
    assert opened.dataset == "rotmnist"
    assert "test_error" not in opened.metadata
    ptn.save_weights(opened.model, tmp_path / "ptn_cnn_b.mine.safetensors")
    monkeypatch.chdir(tmp_path)
    assert open_weights("ptn_cnn_b.mine.safetensors").dataset is None


def test_saved_and_loaded_a_pair_is_the_same(tmp_path):
    pair = ptn.create_model("ptn_cnn_b", pretrained="rotmnist").eval()
    ptn.save_weights(pair, tmp_path / "pair.safetensors")
    again = ptn.load_model(tmp_path / "pair.safetensors").eval()
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(again(images), pair(images))
