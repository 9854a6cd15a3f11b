"""Records and the command line of the experiments."""

from functools import partial

import pytest

from ptn.training.records import Record


@pytest.fixture
def experiments(ptn_cli):
    """`experiments("report", "--json")` -> exit code, standard output, standard error."""
    from experiments.__main__ import app

    return partial(ptn_cli, commands=app)


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
