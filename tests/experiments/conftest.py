"""Records and the command line of the experiments."""

from dataclasses import replace
from functools import partial

import pytest

from tests.unit.training.test_records import RECORD


@pytest.fixture
def experiments(ptn_cli):
    """`experiments("report", "--json")` -> exit code, standard output, standard error."""
    from experiments.__main__ import app

    return partial(ptn_cli, commands=app)


@pytest.fixture
def make_record():
    """Returns a function that creates a record of PTN-B+ by the modern recipe, with changes."""
    from experiments.recipes import recipe_sha256

    def make(id=RECORD.id, *, recipe=RECORD.recipe, seed=0, **changes):
        dataset, model, *_ = recipe.split("/")
        values = {"dataset": dataset, "model": model, "test_error": 1.0, "metrics": {"source": "regenerated"}}
        values |= {"config_sha256": recipe_sha256(recipe) or "c", "started": RECORD.started} | changes
        values.setdefault("run", f"{recipe}#{seed}@{values['started']}")
        if values.get("status") == "failed":
            values["test_error"] = None
        return replace(RECORD, id=id, recipe=recipe, seed=seed, **values)

    return make
