"""`python -m experiments search`: compares settings on digits held out of training, never on test digits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import ptn.cli.train as cli
from ptn.cli.options import DeviceOption, print_table
from ptn.config import override
from ptn.data.dataset import split_names
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

# By data set: fixed splits, the splits that training and validation may use, and the rotations that are averaged.
_HELD_OUT: dict[str, tuple[dict[str, Any], set[str], int]] = {
    "rotmnist": ({"test": "spare"}, {"train", "valid"}, AVERAGED_ROTATIONS),
    "mnist-anywhere": ({"train": "fit", "test": "valid"}, {"fit"}, metrics.AVERAGED_ROTATIONS),
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
    changes = cli.parse_settings(settings)
    if fixed := sorted(changes.keys() & {"name", "data.test", "evaluations"}):
        raise InputError(f"{fixed[0]} cannot be set: every candidate is tested on held-out digits")
    changed = override(find_recipe(name), changes)
    if changed.data.name not in _HELD_OUT:
        raise InputError(f"{changed.data.name} has no held-out digits: search {' or '.join(_HELD_OUT)}")
    splits, allowed, rotations = _HELD_OUT[changed.data.name]
    data = replace(changed.data, **splits)
    used = {*split_names(data.train), *(split_names(data.valid) if data.valid is not None else ())}
    if not used <= allowed:
        raise InputError(
            f"candidates are trained on {' and '.join(sorted(allowed))} only; got {', '.join(sorted(used))}"
        )
    return replace(
        changed,
        name=f"{name}/search/{changed.sha256[:8]}",
        data=data,
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
