"""Benchmarks beside other packages: `python -m experiments bench [SUITE...]`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ptn.errors import InputError, check_choice

if TYPE_CHECKING:
    from .report import Report, Row

# Training changes global settings of torch, so suites that train come last.
SUITES = ("sampling", "inference", "scaling", "training", "fleet", "voxels")
DEFAULT = ("sampling", "inference", "training")


def register(app: typer.Typer) -> None:
    """Adds the command `bench`."""
    app.command("bench")(bench)


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help=f"{', '.join(SUITES)}.", show_default=", ".join(DEFAULT)),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seconds: Annotated[float, typer.Option(help="Time to measure each row, at least.", min=0)] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for a report per suite, SUITE.DEVICE.json.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Measure nothing: write this page from the reports in --output.")
    ] = None,
) -> None:
    """Time our code and other packages alternately in one run.

    Packages that are not installed are skipped: pip install 'ptn\\[bench,export]'.
    """
    if page is not None:
        from .page import write_page

        if suites:
            raise InputError("--page measures nothing: give suites or --page, not both")
        for path in write_page(output or Path("benchmarks"), page):
            print(path)
        return
    for name in suites or []:
        check_choice("suite", name, SUITES)
    from ptn.device import choose_device

    from . import suites as measure
    from .report import Bench, write_report
    from .timing import Effort

    place = choose_device(device)
    reports = []
    for name in SUITES:
        if name not in (suites or DEFAULT):
            continue
        print(f"measuring {name}", file=sys.stderr)
        measured = Bench(place, Effort(seconds=seconds))
        measured.on_row = _print_progress
        getattr(measure, name)(measured)
        reports.append(measured.report(name))
        if output is not None:
            write_report(reports[-1], output)
    if as_json:
        print(json.dumps([asdict(row) for report in reports for row in report.rows], indent=2, ensure_ascii=False))
        return
    for report in reports:
        _print_table(report)


def _print_progress(row: "Row") -> None:
    peer = f", {row.ratio:g}× as fast as {row.peer}" if row.peer else ""
    print(f"{row.name}: {row.ours_ms:g} ms{peer}", file=sys.stderr)


def _print_table(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(title=f"{report.suite}, {report.machine['device']}")
    for heading in ("", "peer"):
        table.add_column(heading)
    for heading in ("ours, ms", "peer, ms", "ratio"):
        table.add_column(heading, justify="right")
    for row in report.rows:
        theirs = ("", "") if row.peer_ms is None else (f"{row.peer_ms:g}", f"{row.ratio:g}")
        table.add_row(row.name, row.peer or "", f"{row.ours_ms:g}", *theirs)
    if report.rows:
        console.print(table)
    for skipped in report.skipped:
        console.print(f"skipped for {skipped['name']}: {skipped['peer']} ({skipped['reason']})", markup=False)
