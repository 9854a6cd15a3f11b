"""The settings of a recipe can be changed by name, and mistakes name the nearest."""

import pytest

from ptn import InputError
from ptn.training import find_recipe, override, parse_setting
from ptn.training.settings import setting_names

RECIPE = "rotmnist/ptn_b/paper+"


def test_settings_change_by_their_dotted_names():
    changed = override(
        find_recipe(RECIPE),
        {
            "optimizer.lr": 0.005,
            "schedule.kind": "cosine",
            "augment.scale": [0.8, 1.2],
            "model.options.wrap": False,
        },
    )
    assert changed.optimizer.lr == 0.005
    assert changed.schedule.kind == "cosine"
    assert changed.augment.scale == (0.8, 1.2)
    assert changed.model.options == {"heatmap": "linear", "wrap": False}


def test_a_recipe_that_trains_differently_fills_no_row_but_another_seed_does():
    recipe = find_recipe(RECIPE)
    assert override(recipe, {"epochs": 3}).rows == ()
    assert override(recipe, {"epochs": 3}).form == "own"
    assert override(recipe, {"seed": 7}).rows == recipe.rows
    assert override(recipe, {"seed": 7}).sha256 == recipe.sha256
    assert override(recipe, {"epochs": 3}).sha256 != recipe.sha256


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optimizer.lr=0.005", ("optimizer.lr", 0.005)),
        ("schedule.kind=cosine", ("schedule.kind", "cosine")),
        ("augment.scale=[1,2]", ("augment.scale", [1, 2])),
        ("data.valid=null", ("data.valid", None)),
        ("model.options.upright=True", ("model.options.upright", True)),
    ],
)
def test_settings_are_written_as_key_and_json_value(text, expected):
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimiser.lr": 1}, "did you mean 'optimizer.lr'"),
        ({"optimizer.lrr": 1}, "did you mean 'optimizer.lr'"),
        ({"upright": True}, "did you mean 'model.options.upright'"),
        ({"optimizer": 1}, "unknown setting 'optimizer'"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"schedule.kind": "cosin"}, "did you mean 'cosine'"),
        ({"precision": "fp16"}, "did you mean"),
        ({"augment.scale": [1, 2, 3]}, "must have 2 numbers"),
        ({"augment.scale": [2, 1]}, "two positive numbers in order"),
        ({"optimizer.lr": -1}, "optimizer.lr must be positive"),
        ({"selection": "valid"}, "set data.valid"),
        ({"deterministic": "yes"}, "must be true or false"),
    ],
)
def test_mistakes_are_named(settings, says):
    with pytest.raises(InputError, match=says):
        override(find_recipe(RECIPE), settings)


def test_a_setting_without_a_value_is_an_error():
    with pytest.raises(InputError, match=r"a setting looks like optimizer.lr=0.005"):
        parse_setting("optimizer.lr")


def test_setting_names_are_all_of_them():
    names = setting_names()
    assert {"optimizer.lr", "data.train", "augment.rotation_deg", "seed", "ema"} <= set(names)
