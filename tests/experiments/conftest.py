"""Records and the command line of the experiments."""

from typing import NamedTuple

import pytest

from ptn.training.records import Record


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def experiments(capsys):
    """`experiments("report", "--json")` -> exit code, standard output, standard error."""
    from experiments.__main__ import app
    from ptn.cli import main

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments], app)
        out, err = capsys.readouterr()
        return Outcome(stop.value.code, out, err)

    return run


@pytest.fixture
def make_record():
    """Returns a function that creates a record of PTN-B+ by the modern recipe, with changes."""
    from experiments.recipes import recipe_sha256

    def make(id="rotmnist.ptn_b.plus", *, recipe="rotmnist/ptn_b/modern+", seed=0, **changes):
        values = {
            "id": id,
            "recipe": recipe,
            "dataset": recipe.split("/")[0],
            "model": recipe.split("/")[1],
            "params": 131_959,
            "seed": seed,
            "test_error": 1.0,
            "metrics": {"source": "regenerated"},
            "epochs": 200,
            "train_seconds": 12.0,
            "seconds_per_epoch": 0.06,
            "selection": "final",
            "data_sha256": "d",
            "config": {},
            "config_sha256": recipe_sha256(recipe) or "c",
            "git": "unknown",
            "torch": "2.13.0",
            "device": "NVIDIA H200",
            "precision": "bf16",
            "started": "2025-11-15T10:00:00+00:00",
            "status": "done",
        } | changes
        values.setdefault("run", f"{recipe}#{seed}@{values['started']}")
        if values["status"] == "failed":
            values["test_error"] = None
        return Record(**values)

    return make
