"""`python -m experiments search`: compares settings on digits held out of training, never on test digits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import ptn.cli.train as cli
from ptn.cli.options import DeviceOption, print_table
from ptn.config import override
from ptn.errors import InputError
from ptn.training.recipe import EvaluationSpec, Recipe
from ptn.training.records import read_records
from ptn.training.session import run_folder, with_seeds

from . import metrics
from .markdown import spread
from .peers import build_network
from .recipes import find_recipe
from .recipes.rotmnist import AVERAGED_ROTATIONS
from .tables import mean_and_std

# By data set: the splits that a candidate is trained and compared on, and the rotations that are averaged.
_HELD_OUT: dict[str, tuple[dict[str, Any], int]] = {
    "rotmnist": ({"test": "spare"}, AVERAGED_ROTATIONS),
    "mnist-anywhere": ({"train": "fit", "test": "valid"}, metrics.AVERAGED_ROTATIONS),
}


def search(
    candidates: Annotated[
        list[str],
        typer.Argument(
            help=f"Recipes on {' or '.join(_HELD_OUT)}, each with settings: "
            '"rotmnist/ptn_l/modern+ epochs=200 dropout=0.2".',
            show_default=False,
        ),
    ],
    seeds: cli.SeedsOption = "0-1",
    output: cli.OutputOption = Path("runs/search"),
    results: cli.ResultsOption = None,
    device: DeviceOption = "auto",
    resume: cli.ResumeOption = False,
    fresh: cli.FreshOption = False,
    budget_seconds: cli.BudgetOption = None,
    at_once: cli.AtOnceOption = 16,
) -> None:
    """Train candidates, recipes with other settings, and compare their errors on held-out digits.

    These are the digits that the other splits of rotated MNIST do not have, or the validation digits of MNIST
    anywhere.
    """
    chosen = {text: make_candidate(text) for text in candidates}
    numbers = cli.parse_seeds(seeds)
    code = cli.run_session(
        [run for candidate in chosen.values() for run in with_seeds(candidate, numbers)],
        output=output,
        results=results,
        device=device,
        resume=resume,
        fresh=fresh,
        budget_seconds=budget_seconds,
        at_once=at_once,
        extra_metrics=metrics.extra_metrics,
        build_network=build_network,
    )
    _print(chosen, numbers, output)
    raise typer.Exit(code)


def make_candidate(text: str) -> Recipe:
    """Returns the recipe "NAME KEY=VALUE KEY=VALUE …", tested on held-out digits."""
    name, *settings = text.split() or [""]
    recipe = find_recipe(name)
    if recipe.data.name not in _HELD_OUT:
        raise InputError(f"{recipe.data.name} has no held-out digits: search {' or '.join(_HELD_OUT)}")
    splits, rotations = _HELD_OUT[recipe.data.name]
    changed = override(recipe, cli.parse_settings(settings))
    return replace(
        changed,
        name=f"{name}/search/{changed.sha256[:8]}",
        data=replace(changed.data, **splits),
        evaluations=(EvaluationSpec(), EvaluationSpec(rotations=rotations)),
    )


def _print(chosen: dict[str, Recipe], seeds: Sequence[int], output: Path) -> None:
    """Prints the candidates with a finished run, the best first."""
    rows = []
    for text, recipe in chosen.items():
        files = [run_folder(run, output) / "result.jsonl" for run in with_seeds(recipe, seeds)]
        runs = [read_records(file) for file in files if file.exists()]
        runs = [records for records in runs if records[0].status == "done"]
        if runs:
            errors = [[run[index].test_error or 0.0 for run in runs] for index in range(2)]
            cells = [spread(*mean_and_std(values), 3) for values in errors]
            seconds = mean_and_std([run[0].train_seconds for run in runs])[0]
            rows.append((*cells, str(len(runs)), f"{runs[0][0].params:,}", f"{seconds:.1f}", text))
    headings = ("error", "rotations averaged", "n", "parameters", "s", "candidate")
    print_table("Held-out digits, error in %", headings, sorted(rows), right=headings[:-1])
