"""`python -m experiments`: train recipes, search settings, reproduce and report the tables, release weights."""

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import ptn.cli.train as cli
from ptn.cli import main
from ptn.cli.options import DeviceOption, JsonOption, warn
from ptn.config import override
from ptn.data.store import reading
from ptn.device import choose_device
from ptn.errors import InputError, check_choice, unknown_name
from ptn.files import write_text
from ptn.training.recipe import EvaluationSpec, Recipe
from ptn.training.records import Record
from ptn.training.session import with_seeds

from . import bench, figures, release, search, segmentation
from .ensembles import add_ensembles
from .markdown import refresh, render
from .metrics import extra_metrics
from .peers import build_network
from .published import TABLES, find_table, row_title
from .recipes import FORMS, ensembles, find_recipe, form_of, recipe_names
from .tables import RESULTS, build_tables, load_records, missing_runs, to_json

app = typer.Typer(
    name="experiments",
    help="Experiments of the paper: training, tables, figures, benchmarks and released weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def train(
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes, such as rotmnist/ptn_b/modern+.", show_default=False)
    ] = None,
    seeds: cli.SeedsOption = "0",
    settings: cli.SettingsOption = None,
    output: cli.OutputOption = Path("runs"),
    results: cli.ResultsOption = None,
    device: DeviceOption = "auto",
    resume: cli.ResumeOption = False,
    fresh: cli.FreshOption = False,
    budget_seconds: cli.BudgetOption = None,
    at_once: cli.AtOnceOption = 16,
    show_list: Annotated[bool, typer.Option("--list", help="Print the names of the recipes.")] = False,
) -> None:
    """Train recipes, test each once, and write weights and records."""
    if show_list:
        print("\n".join(recipe_names()))
        return
    if not recipes:
        raise InputError("no recipe to train: --list prints their names")
    changes = cli.parse_settings(settings)
    chosen = [change(find_recipe(name), changes) for name in recipes]
    code = cli.run_session(
        [run for recipe in chosen for run in with_seeds(recipe, cli.parse_seeds(seeds))],
        output=output,
        results=results,
        device=device,
        resume=resume,
        fresh=fresh,
        budget_seconds=budget_seconds,
        at_once=at_once,
        extra_metrics=extra_metrics,
        build_network=build_network,
    )
    raise typer.Exit(code)


def change(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Returns the recipe with dotted keys set. A recipe with changed training settings has no table row."""
    changed = override(recipe, settings)
    return changed if changed.sha256 == recipe.sha256 else replace(changed, evaluations=(EvaluationSpec(),))


@app.command()
def reproduce(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE...", help=f"{', '.join(TABLES)}.", show_default=False)
    ],
    forms: Annotated[str, typer.Option(help="paper, modern, or both.")] = ",".join(FORMS),
    recipes: Annotated[
        str, typer.Option(help="Only these recipes, in this order: names with wildcards, rotmnist/ptn_?/modern*.")
    ] = "*",
    seeds: Annotated[str, typer.Option(help="Seeds that every row must have.")] = "0-4",
    results: Annotated[Path, typer.Option(help="Folder of records.")] = RESULTS,
    output: cli.OutputOption = Path("runs"),
    device: DeviceOption = "auto",
    budget_seconds: cli.BudgetOption = None,
    at_once: cli.AtOnceOption = 16,
) -> None:
    """Train the missing recipes and seeds of tables, evaluate their ensembles, and print them.

    If the budget ends before all runs are finished, the same command continues them.
    """
    files = {find_table(table).results for table in tables}
    if len(files) > 1:
        raise InputError(f"the records of {', '.join(tables)} are in several files: reproduce them one by one")
    file = results / f"{files.pop()}.jsonl"
    requested_forms, numbers, patterns = forms.split(","), cli.parse_seeds(seeds), recipes.split(",")
    for form in requested_forms:
        check_choice("form", form, FORMS)
    names = [name for pattern in patterns for name in _matching(pattern) if form_of(name) in requested_forms]
    chosen = [find_recipe(name) for name in dict.fromkeys(names)]
    missing = missing_runs(tables, load_records(results), chosen, numbers)
    print(f"{', '.join(tables)}: {len(missing)} runs are missing")
    code = 0
    if missing:
        code = cli.run_session(
            [replace(recipe, seed=seed) for recipe, seed in missing],
            output=output,
            results=file,
            device=device,
            resume=True,
            budget_seconds=budget_seconds,
            at_once=at_once,
            extra_metrics=extra_metrics,
            build_network=build_network,
            how_to_continue="the same command continues",
        )
    averages = [ensemble for ensemble in ensembles() if form_of(ensemble.name) in requested_forms]
    missing_ensembles = missing_runs(tables, load_records(results), averages, numbers)
    add_ensembles(missing_ensembles, runs=output, results=file, device=choose_device(device))
    print(render(build_tables(load_records(results), tables)), end="")
    raise typer.Exit(code)


def _matching(pattern: str) -> list[str]:
    names = fnmatch.filter(recipe_names(), pattern)
    if not names:
        raise unknown_name("recipe", pattern, recipe_names())
    return names


@app.command()
def report(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE", help=f"{', '.join(TABLES)}; by default those with records.", show_default=False
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of records (*.jsonl), or one file.")] = RESULTS,
    as_json: JsonOption = False,
    pages: Annotated[
        list[Path] | None,
        typer.Option(
            "--page",
            help="Update the tables in this Markdown file instead, between <!-- report: TABLE --> and "
            "<!-- end of report -->. Repeatable.",
        ),
    ] = None,
) -> None:
    """Print tables in Markdown: mean, standard deviation and number of runs beside the published numbers."""
    records = load_records(results)
    if not records:
        raise InputError(f"no records at {results}: see --results")
    if unknown := sorted({record.id for record in records if record.id and row_title(record.id) is None}):
        warn(f"records of unknown rows are left out: {', '.join(unknown)}")
    if pages:
        _update_pages(pages, records)
        return
    built = build_tables(records, tables)
    text = json.dumps(to_json(built), indent=2, ensure_ascii=False) + "\n" if as_json else render(built)
    print(text, end="")


def _update_pages(pages: Sequence[Path], records: Sequence[Record]) -> None:
    """Updates all of `pages`, or none if one of them is invalid."""
    updated = {}
    for page in pages:
        try:
            with reading(page):
                text = page.read_text(encoding="utf-8")
            updated[page] = refresh(text, records)
        except (InputError, UnicodeDecodeError) as error:
            raise InputError(f"{page}: {error}") from error
    for page, text in updated.items():
        write_text(page.resolve(), text)
        print(page)


for command in (figures.figures, bench.bench, release.release, search.search, segmentation.segmentation):
    app.command()(command)

if __name__ == "__main__":
    main(commands=app)
