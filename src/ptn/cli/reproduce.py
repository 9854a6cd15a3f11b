"""`ptn reproduce`: run what a table still lacks, then report it."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("reproduce")(reproduce)


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="rotmnist, ablation, mnist-r, mnist-rts, sim2mnist, generalisation, svhn, svhn-holdout, "
            "modelnet40."
        ),
    ],
    forms: Annotated[str, typer.Option(help="paper, modern, or both.")] = "paper,modern",
    seeds: Annotated[str, typer.Option(help="Seeds that every row should have.")] = "0-4",
    results: Annotated[Path, typer.Option(help="Folder of records.")] = Path("results"),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for checkpoints and weights.")] = Path(
        "runs"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    budget_seconds: Annotated[float | None, typer.Option(help="Stop at a checkpoint after so long.")] = None,
    at_once: Annotated[int, typer.Option(help="How many runs share a GPU at most.", min=1)] = 16,
) -> None:
    """Train the recipes and seeds that a table still lacks, add the sums of networks, and print the table.

    Where the budget ends before the work does, what is there is reported, and the next call goes on.
    """
    from dataclasses import replace

    from ..device import choose_device
    from ..errors import check_choice
    from ..reporting.published import TABLES
    from ..reporting.tables import missing_runs
    from ..training.recipe import FORMS
    from ..training.recipes import find_recipe, recipe_names, sum_recipes
    from ..training.sums import add_sums
    from .report import load_records, report
    from .train import parse_seeds, run_session

    check_choice("table", table, TABLES)
    wanted = forms.split(",")
    for form in wanted:
        check_choice("form", form, FORMS)
    numbers = parse_seeds(seeds)
    recipes = [recipe for recipe in map(find_recipe, recipe_names()) if recipe.form in wanted]
    code = 0
    lacking = missing_runs(table, load_records(results), recipes, numbers)
    if lacking:
        runs = [replace(recipe, seed=seed) for recipe, seed in lacking]
        print(f"{len(runs)} runs are missing from {table}")
        code = run_session(
            runs,
            output=output,
            results=results / f"{_FILES.get(table, table)}.jsonl",
            device=device,
            resume=True,
            budget_seconds=budget_seconds,
            at_once=at_once,
            how_to_go_on="the same command goes on",
        )
    else:
        print(f"no run is missing from {table}")
    sums = [one for one in sum_recipes() if one.form in wanted and any(row.table == table for row in one.rows)]
    add_sums(
        missing_runs(table, load_records(results), sums, numbers),
        runs=output,
        results=results / f"{_FILES.get(table, table)}.jsonl",
        device=choose_device(device),
    )
    report([table], results=results)
    raise typer.Exit(code)


_FILES = {
    "ablation": "rotmnist",
    "mnist-r": "mnist_variants",
    "mnist-rts": "mnist_variants",
    "sim2mnist": "mnist_variants",
    "generalisation": "mnist_variants",
    "svhn-holdout": "svhn",
}
"""Tables whose records share a file with others."""
