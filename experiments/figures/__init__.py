"""Figures of the paper and of the documentation: `python -m experiments figures NAME...`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ptn.errors import InputError, check_choice, optional_module

# Names of the figures and the formats that they have in docs/images.
FIGURES = {
    "logpolar": "webp",
    "responses": "webp",
    "architecture": "png",
    "moving": "webp",
    "sim2mnist": "webp",
    "cylinder": "webp",
    "azimuth": "webp",
    "rotsvhn": "webp",
    "angles": "webp",
    "origins": "webp",
    "cost": "png",
}


def register(app: typer.Typer) -> None:
    """Adds the command `figures`."""
    app.command("figures")(figures)


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"{', '.join(FIGURES)}.", show_default="all")
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Draw for a dark page: NAME.dark.png.")] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", help="png, webp, svg or pdf.", show_default="as in docs/images")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Network for architecture, moving, sim2mnist and origins.", show_default="released weights"
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path("out"),
) -> None:
    """Draw figures of the paper and print their paths.

    Without names, figures whose data are missing are skipped with a message.
    """
    from ptn.figures import FORMATS, paper

    for name in names or []:
        check_choice("figure", name, FIGURES)
    if file_format is not None:
        check_choice("format", file_format, FORMATS)
    optional_module("matplotlib", "ptn[figures]")
    from . import sources

    for name in dict.fromkeys(names or FIGURES):
        suffix = "webp" if name == "moving" else file_format or FIGURES[name]
        path = output / f"{name}{'.dark' if dark else ''}.{suffix}"
        try:
            with paper(dark=dark):
                getattr(sources, name)(path, weights)
        except InputError as error:
            if names:
                raise
            print(f"skipped {name}: {error}", file=sys.stderr)
        else:
            print(path)
