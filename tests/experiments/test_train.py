"""`python -m experiments train`: changed and varied recipes."""

import pytest

from experiments.__main__ import change, vary
from experiments.recipes import find_recipe, recipe_names
from ptn import InputError
from ptn.training import EvaluationSpec

RECIPE = "sim2mnist/ccnn_b/paper"


def test_a_recipe_that_trains_differently_fills_no_row():
    recipe = find_recipe(RECIPE)
    assert change(recipe, {"optimizer.lr": 0.005}).evaluations == (EvaluationSpec(),)
    assert change(recipe, {"seed": 3, "dropout": 0.0}).evaluations == recipe.evaluations


def test_every_combination_is_a_recipe_named_after_its_settings():
    variants = vary(find_recipe(RECIPE), {"data.options.clutter": [2, 4], "augment.scale": [[1, 1], [0.9, 1.1]]})
    assert [recipe.name for recipe in variants] == [
        f"{RECIPE}/clutter=2,scale=[1,1]",
        f"{RECIPE}/clutter=2,scale=[0.9,1.1]",
        f"{RECIPE}/clutter=4,scale=[1,1]",
        f"{RECIPE}/clutter=4,scale=[0.9,1.1]",
    ]
    assert [recipe.data.options["clutter"] for recipe in variants] == [2, 2, 4, 4]
    assert [recipe.augment.scale for recipe in variants[:2]] == [(1.0, 1.0), (0.9, 1.1)]
    assert len({recipe.sha256 for recipe in variants}) == 4


def test_a_variant_fills_no_row_even_with_the_settings_of_the_recipe():
    recipe = find_recipe(RECIPE)
    (same,) = vary(recipe, {"dropout": [0.0]})
    assert same.sha256 == recipe.sha256
    assert same.evaluations == (EvaluationSpec(),)
    assert vary(recipe, {}) == [recipe]


def test_settings_with_the_same_last_name_are_distinguished():
    (variant,) = vary(find_recipe(RECIPE), {"data.options.seed": [1], "seed": [2]})
    assert variant.name == f"{RECIPE}/data.options.seed=1,seed=2"


@pytest.mark.parametrize(
    ("choices", "word"), [({"dropout": 0.1}, "list"), ({"dropout": []}, "list"), ({"droput": [0.1]}, "'dropout'")]
)
def test_invalid_choices_are_errors(choices, word):
    with pytest.raises(InputError, match=word):
        vary(find_recipe(RECIPE), choices)


def test_the_list_of_recipes(experiments):
    assert experiments("train", "--list").out.splitlines() == recipe_names()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--list"),
        (["rotmnist/ptn_b/modren+"], "did you mean"),
        ([RECIPE, "--set", "lr=1"], "optimizer.lr"),
        ([RECIPE, "--set", "dropout"], "setting"),
        ([RECIPE, "--seeds", "x"], "--seeds"),
        ([RECIPE, "--resume", "--fresh"], "--fresh"),
    ],
)
def test_invalid_arguments_are_errors_of_one_line(experiments, tmp_path, arguments, word):
    outcome = experiments("train", *arguments, "-o", tmp_path / "runs", "--device", "cpu")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert word in outcome.err
    assert not (tmp_path / "runs").exists()
