"""`ptn quickstart`: what `make demo` runs."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("quickstart")(quickstart)


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the picture.")] = Path("out"),
) -> None:
    """Turn and enlarge real digits, measure how their log-polar images shift, and draw it (Figure 1)."""
    from rich.console import Console
    from rich.table import Table

    from ..data.quickstart import load_digits
    from ..files import make_folder
    from ..reporting.figures import logpolar

    make_folder(output)
    source = load_digits()
    # one of each class
    chosen = [source.images[int((source.labels == label).nonzero()[0])].float() / 255 for label in range(10)]
    shifts = [shift for digit in chosen for shift in (*logpolar.turn(digit).shifts, *logpolar.dilate(digit).shifts)]

    table = Table(title="Shift of the log-polar image, measured on ten real digits")
    table.add_column("transform")
    table.add_column("unit")
    for heading in ("theory", "measured (mean)", "furthest from theory"):
        table.add_column(heading, justify="right")
    for row in logpolar.summarise(shifts):
        table.add_row(*row)
    console = Console()
    console.print(table)

    picture = output / "logpolar.png"
    logpolar.draw(chosen[3], picture)
    console.print(f"Picture: {picture}")
    console.print("Next: ptn models  ·  ptn polar photo.jpg -o out  ·  ptn --help")
