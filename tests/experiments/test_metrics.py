"""House numbers in training: crops from tiles, light and colour, what records say of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from ptn import InputError
from ptn.data.dataset import subset
from ptn.training import Run, RunData, find_recipe
from ptn.training.fleet import train_fleet
from ptn.training.results import conclude_run
from ptn.training.session import load_split

CPU = torch.device("cpu")
COUNT = 70


@pytest.fixture(autouse=True)
def _house_numbers(tmp_path, monkeypatch):
    """A tiny SVHN of smooth random tiles: 70 of training and 70 of test."""
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "svhn").mkdir()
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = math.ceil(COUNT / 64)
        small = random.integers(0, 256, (rows * 12, 64 * 12, 3), dtype=np.uint8)
        atlas = Image.fromarray(small).resize((64 * 48, rows * 48), Image.Resampling.BICUBIC)
        atlas.save(tmp_path / "svhn" / f"{split}_00.jpg", quality=95)
        numbers = np.arange(COUNT)
        labels = {"y": numbers % 10, "image_id": numbers + 1, "frac_outside": np.zeros(COUNT)}
        np.savez(tmp_path / "svhn" / f"{split}_labels.npz", **labels)


def tiny_run(name, folder=None, **changes):
    recipe = replace(find_recipe(name), epochs=2, batch=24, precision="fp32", **changes)
    return Run(recipe, RunData(load_split(recipe.data, recipe.data.train)), CPU, folder)


def test_crops_come_from_tiles_and_answers_are_to_crops():
    run = tiny_run("rotsvhn/resnet32/modern+")
    assert run.data.train.images.shape == (COUNT, 3, 48, 48)
    assert run.model.input_shape == (3, 32, 32)
    seen = []
    run.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    next(run.steps())
    assert seen[0].shape == (24, 3, 32, 32)
    assert (seen[0].min() >= 0) & (seen[0].max() <= 1)


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("svhn/resnet32/paper", True),
        ("rotsvhn-minus/resnet32/modern", True),
        ("rotsvhn/resnet32/paper/scaled", False),
        ("svhn/holdout/resnet32/paper", False),
    ],
)
def test_records_of_the_usual_test_crops_have_accuracies_by_angle(name, measured):
    run = tiny_run(name)
    test = load_split(run.recipe.data, run.recipe.data.test)
    _, (record,) = conclude_run(run, test)
    assert ("angle_accuracy" in record.metrics) == measured
    if measured:
        assert len(record.metrics["angle_accuracy"]) == len(record.metrics["angle_deg"]) == 24
        assert record.metrics["angle_count"] == math.ceil(len(test) / 10)


def test_records_say_where_a_learned_origin_is(monkeypatch):
    run = tiny_run("svhn/ptn_resnet32/paper")
    test = load_split(run.recipe.data, "test")
    _, (record,) = conclude_run(run, test)
    assert record.metrics["origin_from_middle_px"] == [0, 0]  # untrained
    pulled = torch.tensor([[3.0, -1.0], [5.0, -1.0]], dtype=torch.float64)
    monkeypatch.setattr(
        "ptn.training.results.origin_offsets_px", lambda model, dataset: pulled[: len(dataset)]
    )
    _, (record,) = conclude_run(run, subset(test, torch.arange(2)))
    assert record.metrics["origin_from_middle_px"] == [4, -1]
    assert record.metrics["origin_deviation_px"] == [1, 0]
    _, (record,) = conclude_run(run, subset(test, torch.arange(1)))
    assert record.metrics["origin_deviation_px"] == [0, 0]
    _, (record,) = conclude_run(tiny_run("svhn/resnet32/paper"), test)
    assert "origin_from_middle_px" not in record.metrics


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    name = "svhn/ptn_resnet32/modern"
    whole = tiny_run(name)
    train_fleet([whole])
    half = tiny_run(name, tmp_path / "run")
    steps = half.steps()
    for _ in range(3):  # into the second epoch
        next(steps)
    half.save()
    again = tiny_run(name, tmp_path / "run")
    assert again.resume()
    train_fleet([again])
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key]), key


def test_a_crop_must_fit_into_the_images():
    recipe = find_recipe("svhn/resnet32/modern")
    with pytest.raises(InputError, match=r"augment.crop_px 50 is more than the images' 48"):
        tiny_run("svhn/resnet32/modern", augment=replace(recipe.augment, crop_px=50))


def test_augmentation_looks_at_no_value():
    """On the meta device nothing has one: what runs there can be captured as a CUDA graph."""
    spec = find_recipe("rotsvhn/resnet32/modern+").augment
    noise = torch.rand(4, spec.noise_per_image((3, 48, 48)), device="meta")
    images, left = spec.apply(torch.rand(4, 3, 48, 48, device="meta"), noise)
    assert images.shape == (4, 3, 32, 32)
    assert left is None
