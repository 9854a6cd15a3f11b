"""Benchmarks beside other packages: `python -m experiments bench [SUITE...]`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ptn.cli.options import DeviceOption, JsonOption, print_table
from ptn.errors import InputError, check_choice

# Training changes global settings of torch, so suites that train come last.
SUITES = ("sampling", "inference", "scaling", "training", "fleet", "voxels")
DEFAULT = ("sampling", "inference", "training")


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help=f"{', '.join(SUITES)}.", show_default=", ".join(DEFAULT)),
    ] = None,
    device: DeviceOption = "auto",
    seconds: Annotated[float, typer.Option(help="Time to measure each row, at least.", min=0)] = 4.0,
    as_json: JsonOption = False,
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
        getattr(measure, name)(measured)
        reports.append(measured.report(name))
        if output is not None:
            write_report(reports[-1], output)
    if as_json:
        print(json.dumps([asdict(row) for report in reports for row in report.rows], indent=2, ensure_ascii=False))
        return
    headings = ("", "peer", "ours, ms", "peer, ms", "ratio")
    for report in reports:
        rows = [
            [row.name, row.peer or "", *(_number(value) for value in (row.ours_ms, row.peer_ms, row.ratio))]
            for row in report.rows
        ]
        if rows:
            print_table(f"{report.suite}, {report.machine['device']}", headings, rows, right=headings[2:])
        for skipped in report.skipped:
            print(f"skipped for {skipped['name']}: {skipped['peer']} ({skipped['reason']})")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
