"""Which networks stand beside each other."""

import json
from pathlib import Path

import pytest
import torch

import ptn
from ptn import InputError
from ptn.demo import find_pairs, models
from ptn.models import save_weights


@pytest.fixture
def save(tmp_path):
    def write(name, *, dataset="digits", classes=10, **options):
        path = tmp_path / f"{name}.{dataset}.safetensors"
        metadata = {"classes": json.dumps([f"c{index}" for index in range(classes)]), "dataset": dataset}
        save_weights(ptn.create_model(name, num_classes=classes, **options), path, metadata=metadata)
        return str(path)

    return write


@pytest.fixture
def ship(monkeypatch, save):
    """`ship("ptn_b", dataset="rotmnist")`: as if it were among the shipped weights."""
    tags = {}
    monkeypatch.setattr(models, "list_pretrained", lambda: sorted(tags))
    monkeypatch.setattr(models, "open_weights", lambda name: ptn.evaluation.open_weights(tags.get(name, name)))

    def add(name, *, dataset, **options):
        tags[f"{name}.{dataset}"] = save(name, dataset=dataset, **options)

    return add


def test_a_ptn_stands_beside_the_plain_network_of_its_training_set_and_stack(ship):
    for name in ("ptn_s", "ptn_b", "ccnn_b", "ccnn_s"):
        ship(name, dataset="rotmnist")
    ship("ccnn_b", dataset="mnist-r")
    found = {pair.polar_name: pair.plain_name for pair in find_pairs()}
    assert found == {"PTN-S": "CCNN-S", "PTN-B": "CCNN-B"}


def test_shipped_networks_without_a_partner_are_left_out(ship):
    ship("ptn_s", dataset="rotmnist")
    ship("ccnn_s", dataset="svhn")
    with pytest.raises(InputError, match=r"no trained pair.*`ptn quickstart`.*--weights"):
        find_pairs()


def test_a_shipped_network_of_photographs_needs_no_partner(ship):
    ship("ptn_s", dataset="rotmnist")
    ship("ptn_resnet32", dataset="rotsvhn", in_chans=3, image_size=32)
    (alone,) = find_pairs()
    assert (alone.title, alone.plain) == ("rotated SVHN: PTN-ResNet32", None)


def test_networks_that_know_every_move_come_first(ship):
    for dataset in ("rotmnist", "sim2mnist"):
        for name in ("ptn_l", "ptn_b", "ptn_s", "ccnn_b"):
            ship(name, dataset=dataset, image_size=28)
    titles = [pair.title for pair in find_pairs()]
    assert titles[0] == "SIM2MNIST: PTN-B"
    assert titles[3] == "rotated MNIST: PTN-B"


def test_ones_own_ptn_comes_first_and_needs_no_partner(ship, save):
    ship("ptn_s", dataset="rotmnist")
    ship("ccnn_s", dataset="rotmnist")
    alone, shipped = find_pairs([save("ptn_s", dataset="folder", classes=3, image_size=(20, 24))])
    assert (alone.plain, alone.size, alone.classes) == (None, (20, 24), ("c0", "c1", "c2"))
    assert alone.title == "your images: PTN-S"
    assert alone.about.startswith("a folder of your own (")
    assert shipped.plain_name == "CCNN-S"


def test_titles_fit_a_phone_and_tell_pairs_apart(ship, save, tmp_path):
    first = save("ptn_resnet32", dataset="rotsvhn-minus", in_chans=3)
    second = tmp_path / "runs" / "rotsvhn-minus.ptn_resnet32.modern" / "seed-1" / "weights.safetensors"
    second.parent.mkdir(parents=True)
    second.write_bytes(Path(first).read_bytes())
    pairs = find_pairs([first, str(second)])
    assert [pair.title for pair in pairs] == [f"rotated SVHN−: PTN-ResNet32 ({number})" for number in (1, 2)]
    assert max(len(pair.title) for pair in pairs) <= 32
    assert pairs[1].about.endswith(" (rotsvhn-minus.ptn_resnet32.modern/seed-1/weights.safetensors)")


def test_ones_own_plain_network_stands_beside_a_shipped_ptn(ship, save):
    ship("ptn_s", dataset="rotmnist")
    (pair,) = find_pairs([save("ccnn_b", dataset="rotmnist")])
    assert (pair.polar_name, pair.plain_name) == ("PTN-S", "CCNN-B")


def test_digits_have_the_size_that_the_networks_know(ship):
    for dataset, size in (("rotmnist", 28), ("sim2mnist", 96), ("svhn", 32)):
        ship("ptn_s", dataset=dataset, image_size=size)
        ship("ccnn_s", dataset=dataset, image_size=size)
    scales = {pair.size[0]: pair.digit_scale for pair in find_pairs()}
    assert scales == {28: pytest.approx(1.0), 96: pytest.approx(1.7), 32: pytest.approx(32 / 28)}


def test_what_cannot_be_shown_is_said(ship, save, tmp_path):
    with pytest.raises(InputError, match="no PTN to show beside it"):
        find_pairs([save("ccnn_s", dataset="lonely")])
    with pytest.raises(InputError, match="holds stn_s; the page shows"):
        find_pairs([save("stn_s")])
    with pytest.raises(InputError, match="takes 2 channels"):
        find_pairs([save("ptn_s", in_chans=2)])
    with pytest.raises(InputError, match="no weights at"):
        find_pairs([str(tmp_path / "nothing.safetensors")])


def test_a_network_that_diverged_is_refused(tmp_path):
    model = ptn.create_model("ptn_s")
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    save_weights(model, tmp_path / "broken.safetensors")
    with pytest.raises(InputError, match="not finite"):
        find_pairs([str(tmp_path / "broken.safetensors")])
