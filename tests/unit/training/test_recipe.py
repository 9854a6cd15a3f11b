"""Recipes: their hash, what they refuse, and the defaults for folders and data sets."""

import json
from dataclasses import replace

import pytest
import torch

from ptn import InputError, create_model
from ptn.config import build, override
from ptn.data import list_datasets
from ptn.training import DataSpec, EvaluationSpec, ModelSpec, Recipe, dataset_recipe, folder_recipe
from tests.conftest import write_pictures


def test_a_recipe_survives_json(recipe):
    many = replace(recipe, seed=3, evaluations=(EvaluationSpec("a.b"), EvaluationSpec("a.c", 8, 5)))
    assert build(Recipe, json.loads(json.dumps(many.to_dict()))) == many


def test_the_configuration_of_a_record_builds_the_recipe_again(recipe):
    changed = replace(recipe, seed=3, evaluations=(EvaluationSpec("a"),)).changes()
    assert changed["schedule"] == {"kind": "cosine", "warmup": 0.1}
    assert not changed.keys() & {"name", "seed", "evaluations", "optimizer"}
    assert build(Recipe, {"name": recipe.name, **changed}) == recipe


def test_the_hash_depends_on_training_alone(recipe):
    same = replace(recipe, name="other", seed=7, evaluations=(EvaluationSpec("a", rotations=8),))
    assert same.sha256 == recipe.sha256
    assert replace(recipe, augment=replace(recipe.augment, rotation_deg=180)).sha256 == recipe.sha256  # not 180.0
    settings = {"epochs": 4, "optimizer.lr": 0.02, "augment.mirror": True, "model.options.wrap": False}
    others = [override(recipe, {key: value}) for key, value in settings.items()]
    assert len({other.sha256 for other in [recipe, *others]}) == 5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", 0, "epochs must be from 1"),
        ("schedule.kind", "cosin", "did you mean 'cosine'"),
        ("schedule.warmup", 1.0, "schedule.warmup must be a fraction"),
        ("optimizer.lr", float("nan"), "optimizer.lr must be a finite number"),
        ("augment.scale", [2, 1], "two positive numbers in order"),
        ("selection", "valid", "set data.valid"),
        ("evaluations", [{"rotations": 0}], "evaluations.rotations must be from 1"),
    ],
)
def test_bad_settings_are_named(recipe, key, value, message):
    with pytest.raises(InputError, match=message):
        override(recipe, {key: value})


def test_settings_that_depend_on_each_other_are_set_in_any_order(recipe):
    held = {"patience": 3, "schedule.kind": "hold", "selection": "valid", "data.valid": "valid"}
    settings = list(held.items())
    assert override(recipe, held) == override(recipe, dict(reversed(settings)))
    assert override(override(recipe, held), {"schedule.kind": "cosine", "patience": 0}).schedule == recipe.schedule


def test_patience_needs_validation(recipe):
    with pytest.raises(InputError, match="patience needs selection 'valid'"):
        override(recipe, {"patience": 3, "schedule.kind": "hold"})


@pytest.mark.parametrize("info", list_datasets(), ids=lambda info: info.name)
def test_every_data_set_has_a_recipe(info):
    recipe = dataset_recipe(info.name)
    train = "fit" if "svhn" in info.name or info.name == "mnist-anywhere" else "train"
    assert recipe.data == DataSpec(info.name, train, valid="valid" if "valid" in info.splits else None)
    assert recipe.selection == ("valid" if recipe.data.valid else "final")
    upright = ("svhn", "mnist", "quickstart", "sim2mnist-turned")  # in training
    assert recipe.augment.active == (not info.name.startswith(upright))
    channels, side, *_ = info.shape
    with torch.device("meta"):
        create_model(recipe.model.name, num_classes=info.classes, image_size=side, in_chans=channels)


@pytest.fixture
def photos(tmp_path):
    return write_pictures(tmp_path / "photos", count=30)


def test_a_folder_of_images_has_a_recipe(photos):
    recipe = folder_recipe(photos, model="ptn_s", image_size=16)
    assert recipe.name == "folder/photos/ptn_s"
    assert recipe.data.options == {"root": str(photos), "image_size": 16}
    assert (recipe.selection, recipe.model) == ("valid", ModelSpec("ptn_s", {"heatmap": "evidence"}))
    assert 2 <= recipe.batch <= 30


def test_models_that_cannot_be_trained_on_the_data_are_refused(photos):
    for model, message in (("ptn_x", "did you mean"), ("cylindrical", "on a folder"), ("ptn_cnn_b", "ensemble")):
        with pytest.raises(InputError, match=message):
            folder_recipe(photos, model=model)
    with pytest.raises(InputError, match="ptn_b cannot be trained on modelnet40"):
        dataset_recipe("modelnet40", model="ptn_b")
