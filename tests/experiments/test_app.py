"""`python -m experiments` as a whole: invalid arguments of every command, the list of recipes, changed recipes."""

import shlex

import pytest

from experiments.__main__ import change
from experiments.recipes import find_recipe, recipe_names
from ptn.training import EvaluationSpec

PTN = "rotmnist/pcnn_s/modern"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("train", "--list"),
        ("train rotmnist/ptn_b/modren+", "did you mean"),
        (f"train {PTN} --set lr=1", "optimizer.lr"),
        (f"train {PTN} --seeds x", "--seeds"),
        ("reproduce rotmist", "did you mean 'rotmnist'"),
        ("reproduce rotmnist svhn", "one by one"),
        ("reproduce rotmnist --forms modren", "did you mean 'modern'"),
        ("reproduce rotmnist --recipes rotmnist/ptn_x*", "recipe"),
        ("reproduce rotmnist --seeds x", "--seeds"),
        ("report rotminst", "did you mean 'rotmnist'"),
        ("report --page missing.md", "missing.md"),
        ("report --page latin.md", "latin.md"),
        ("report --results nowhere", "no records"),
        ("report --results broken.jsonl", "broken.jsonl, line 1"),
        ("bench samplin", "sampling"),
        ("bench sampling --page x.md", "--page"),
        ("bench --page x.md -o nowhere", "nowhere"),
        ("figures azimut", "azimuth"),
        ("figures cylinder", "modelnet40"),
        ("search sim2mnist/ptn_b/modern", "held-out"),
        (f"search '{PTN} epochs=1 epochz=2'", "epochs"),
        (f"search '{PTN} epochs'", "epochs"),
        (f"search '{PTN} data.test=test'", "data.test"),
        (f"search '{PTN} name=a'", "name"),
        (f"search '{PTN} evaluations=[{{\"rotations\":2}}]'", "evaluations"),
        (f"search '{PTN} data.train=test'", "train and valid only"),
        (f"search '{PTN} data.train=train+spare'", "train and valid only"),
        ("search 'rotmnist/ptn_s/paper data.valid=spare'", "train and valid only"),
        ("search 'mnist-anywhere/p4cnn/modern data.valid=valid'", "fit only"),
    ],
)
def test_invalid_arguments_are_errors_of_one_line(experiments, tmp_path, monkeypatch, arguments, word):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.jsonl").write_text("broken\n")
    (tmp_path / "latin.md").write_bytes(b"\xff")
    before = sorted(tmp_path.rglob("*"))
    outcome = experiments(*shlex.split(arguments))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert word in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_recipe_that_trains_differently_fills_no_row():
    recipe = find_recipe("sim2mnist/ccnn_b/paper")
    assert change(recipe, {"optimizer.lr": 0.005}).evaluations == (EvaluationSpec(),)
    assert change(recipe, {"seed": 3, "dropout": 0.0}).evaluations == recipe.evaluations


def test_the_list_of_recipes(experiments):
    assert experiments("train", "--list").out.splitlines() == recipe_names()
