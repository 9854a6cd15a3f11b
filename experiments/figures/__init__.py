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
}


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"{', '.join(FIGURES)}.", show_default="all")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path("out"),
) -> None:
    """Draw figures of the paper, from data, records and released networks, and print their paths.

    Without names, figures whose data are missing are skipped with a message.
    """
    for name in names or []:
        check_choice("figure", name, FIGURES)
    optional_module("matplotlib", "ptn[figures]")
    from ptn.figures import paper

    from . import sources

    for name in dict.fromkeys(names or FIGURES):
        path = output / f"{name}.{FIGURES[name]}"
        try:
            with paper():
                getattr(sources, name)(path)
        except InputError as error:
            if names:
                raise
            print(f"skipped {name}: {error}", file=sys.stderr)
        else:
            print(path)
