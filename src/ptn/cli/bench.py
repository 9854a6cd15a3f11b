"""`ptn bench`: how fast it is, beside others, on this machine."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..bench import Report, Row


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE",
            help="sampling, inference, training (by default these), scaling, startup, data, audit, demo, fleet.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    seconds: Annotated[float, typer.Option(help="How long to measure each row, at least.")] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder to write a JSON file per suite to.", show_default=False
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Measure nothing: write the page of the results in --results.", show_default=False),
    ] = None,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="The results that --page shows.")] = Path(
        "benchmarks"
    ),
    epochs: Annotated[int, typer.Option(help="Epochs that fleet counts.", min=1)] = 20,
    fleets: Annotated[str, typer.Option(help="Runs at once in fleet.")] = "1,8,16",
    precisions: Annotated[str, typer.Option(help="Precisions of fleet.")] = "bf16,tf32",
) -> None:
    """Times of ours and of others, taken in turns in one run: medians after warming up.

    Others that are not installed are left out, and said to be: pip install 'ptn\\[bench,export]'.
    """
    if page is not None:
        from ..bench.page import write_page

        if suites:
            raise InputError("--page measures nothing: give suites or --page, not both")
        for path in write_page(results, page):
            print(path)
        return

    from ..bench import Effort, file_name, run_suites, write_report
    from ..device import choose_device

    if not seconds >= 0:
        raise InputError(f"--seconds must be at least 0; got {seconds}")
    options = {"fleet": {"epochs": epochs, "fleets": _counts(fleets), "precisions": precisions.split(",")}}

    def keep(report: "Report") -> None:
        if output is not None:
            write_report(report, output / file_name(report))

    reports = run_suites(
        suites or [],
        choose_device(device),
        Effort(seconds=seconds),
        options=options,
        on_suite=lambda name: print(f"ptn: measuring {name}", file=sys.stderr),
        on_row=_show_progress,
        on_report=keep,
    )
    if as_json:
        print(json.dumps([row.brief() for report in reports for row in report.rows], indent=2, ensure_ascii=False))
        return
    for report in reports:
        _show(report)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(f"--fleets are whole numbers with commas, such as 1,8; got {text!r}")
    return counts


def _show_progress(row: "Row") -> None:
    against = f", {row.ratio:g}× as fast as {row.peer}" if row.peer else ""
    print(f"ptn: {row.name}: {row.ours_ms:g} ms{against}", file=sys.stderr)


def _show(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    if report.rows:
        table = Table(title=f"{report.suite}, {report.machine['device']}")
        for heading in ("what", "beside"):
            table.add_column(heading)
        for heading in ("ours, ms", "theirs, ms", "times faster"):
            table.add_column(heading, justify="right")
        for row in report.rows:
            theirs = ("", "") if row.peer_ms is None else (f"{row.peer_ms:g}", f"{row.ratio:g}")
            table.add_row(row.name, row.peer or "", f"{row.ours_ms:g}", *theirs)
        console.print(table)
    for skipped in report.skipped:
        console.print(f"left out of {skipped['name']}: {skipped['peer']} ({skipped['reason']})", markup=False)
