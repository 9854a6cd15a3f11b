"""Pairs of networks that the demo offers."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import ptn
from ptn import InputError
from ptn.demo import models
from ptn.demo.models import encode_sheet, find_pairs, load_samples


@pytest.fixture
def save(tmp_path):
    def write(name, *, dataset="digits", classes=10, **options):
        path = tmp_path / f"{name}.{dataset}.safetensors"
        model = ptn.create_model(name, num_classes=classes, **options)
        model.classes, model.metadata = tuple(f"c{index}" for index in range(classes)), {"dataset": dataset}
        ptn.save_weights(model, path)
        return str(path)

    return write


@pytest.fixture
def release(monkeypatch, save):
    """`release("ptn_b", dataset="rotmnist")` adds a network to the released weights, which are empty at first."""
    tags = {}
    monkeypatch.setattr(models, "list_pretrained", lambda: sorted(tags))
    monkeypatch.setattr(models, "load_model", lambda name: ptn.load_model(tags.get(name, name)))

    def add(name, *, dataset, **options):
        tags[f"{name}.{dataset}"] = save(name, dataset=dataset, **options)

    return add


def test_a_ptn_is_paired_with_a_plain_network_of_its_dataset_and_size(release):
    for name in ("ptn_s", "ptn_b", "ccnn_b", "ccnn_s"):
        release(name, dataset="rotmnist")
    release("ccnn_b", dataset="mnist-r")
    pairs = {pair.polar_name: pair.plain_name for pair in find_pairs()}
    assert pairs == {"PTN-S": "CCNN-S", "PTN-B": "CCNN-B"}


def test_released_networks_without_a_partner_are_left_out_unless_they_take_color(release, real_data):
    release("ptn_s", dataset="rotmnist")
    release("ccnn_s", dataset="svhn")
    assert find_pairs() == []
    release("ptn_resnet32", dataset="rotsvhn", in_chans=3, image_size=32)
    (single,) = find_pairs()
    assert (single.title, single.plain) == ("rotated SVHN: PTN-ResNet32", None)


def test_own_networks_come_first(release, save):
    release("ptn_s", dataset="rotmnist")
    release("ccnn_s", dataset="rotmnist")
    own, released = find_pairs([save("ptn_s", dataset="folder", classes=3, image_size=(20, 24))])
    assert (own.plain, own.size, own.classes) == (None, (20, 24), ("c0", "c1", "c2"))
    assert own.title.startswith("your images: PTN-S (")
    assert own.title.endswith("ptn_s.folder.safetensors)")
    assert released.plain_name == "CCNN-S"
    (pair, _) = find_pairs([save("ccnn_b", dataset="rotmnist"), save("ptn_b", dataset="rotmnist")])
    assert (pair.polar_name, pair.plain_name) == ("PTN-B", "CCNN-B")


def test_data_with_all_transforms_come_first_and_digits_have_the_scale_of_the_data(release):
    for dataset, size in (("rotmnist", 28), ("sim2mnist", 96), ("svhn", 32)):
        release("ptn_s", dataset=dataset, image_size=size)
        release("ccnn_s", dataset=dataset, image_size=size)
    shown = [(pair.title, pair.digit_scale) for pair in find_pairs()]
    expected = [("SIM2MNIST: PTN-S", 1.7), ("rotated MNIST: PTN-S", 1.0), ("SVHN: PTN-S", pytest.approx(32 / 28))]
    assert shown == expected


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [("ccnn_s", {}, "no PTN"), ("stn_s", {}, "stn_s"), ("ptn_s", {"in_chans": 2}, "2 channels")],
)
def test_networks_that_cannot_be_shown_are_refused(release, save, name, options, word):
    with pytest.raises(InputError, match=word):
        find_pairs([save(name, dataset="unpaired", **options)])


def test_samples_are_test_images_of_the_data_folder(real_data):
    load_samples.cache_clear()
    images, labels, source = load_samples("digits")
    test = ptn.load_dataset("mnist", "test")
    assert torch.equal(images, test.images[:1000])
    assert torch.equal(labels, test.labels[:1000])
    assert source == "test digits of MNIST"
    assert load_samples("photographs").images.shape == (40, 3, 48, 48)


def test_without_a_data_folder_there_are_digits_and_no_photographs(monkeypatch, tmp_path):
    monkeypatch.delenv("PTN_DATA", raising=False)
    monkeypatch.setenv("PTN_CACHE", str(tmp_path))
    load_samples.cache_clear()
    images, labels, source = load_samples("digits")
    assert images.shape == (1000, 1, 28, 28)
    assert labels.bincount().tolist() == [100] * 10
    assert "training" in source
    assert len(load_samples("photographs").images) == 0
    load_samples.cache_clear()


def test_a_sheet_has_the_images_in_rows_of_forty():
    samples = load_samples("digits")
    sheet = np.array(Image.open(io.BytesIO(encode_sheet(samples))))
    assert sheet.shape == (25 * 28, 40 * 28)
    assert torch.equal(torch.from_numpy(sheet[28:56, 56:84].copy()), samples.images[42, 0])


def test_two_regimes_come_first_and_the_others_are_listed_under_more():
    pairs = find_pairs()
    regimes = [bool(pair.regime) for pair in pairs]
    assert regimes[:2] == [True, True]
    assert not any(regimes[2:])
    assert {pair.samples for pair in pairs if pair.channels == 3} <= {"photographs"}
