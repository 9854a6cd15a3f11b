"""`python -m experiments train`: changed recipes and invalid arguments."""

import pytest

from experiments.__main__ import change
from experiments.recipes import find_recipe, recipe_names
from ptn.training import EvaluationSpec

RECIPE = "sim2mnist/ccnn_b/paper"


def test_a_recipe_that_trains_differently_fills_no_row():
    recipe = find_recipe(RECIPE)
    assert change(recipe, {"optimizer.lr": 0.005}).evaluations == (EvaluationSpec(),)
    assert change(recipe, {"seed": 3, "dropout": 0.0}).evaluations == recipe.evaluations


def test_the_list_of_recipes(experiments):
    assert experiments("train", "--list").out.splitlines() == recipe_names()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--list"),
        (["rotmnist/ptn_b/modren+"], "did you mean"),
        ([RECIPE, "--set", "lr=1"], "optimizer.lr"),
        ([RECIPE, "--seeds", "x"], "--seeds"),
    ],
)
def test_invalid_arguments_are_errors_of_one_line(experiments, tmp_path, arguments, word):
    outcome = experiments("train", *arguments, "-o", tmp_path / "runs", "--device", "cpu")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert word in outcome.err
    assert not (tmp_path / "runs").exists()
