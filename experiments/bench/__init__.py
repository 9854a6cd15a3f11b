"""Benchmarks beside other packages: `python -m experiments bench [SUITE...]`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ptn.cli.options import DeviceOption, JsonOption
from ptn.device import choose_device
from ptn.errors import InputError, check_choice

# Training changes global settings of torch, so suites that train come last.
SUITES = ("sampling", "registration", "inference", "scaling", "training", "fleet", "voxels")
DEFAULT = ("sampling", "inference", "training")


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help=f"{', '.join(SUITES)}.", show_default=", ".join(DEFAULT)),
    ] = None,
    device: DeviceOption = "auto",
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
    from . import suites as functions
    from .page import render, write_page
    from .report import Bench, write_report

    if page is not None:
        if suites:
            raise InputError("--page measures nothing: give suites or --page, not both")
        for path in write_page(output or Path("benchmarks"), page):
            print(path)
        return
    for name in suites or []:
        check_choice("suite", name, SUITES)
    place = choose_device(device)
    reports = []
    for name in SUITES:
        if name in (suites or DEFAULT):
            print(f"measuring {name}", file=sys.stderr)
            measured = Bench(place)
            getattr(functions, name)(measured)
            reports.append(measured.report(name))
            if output is not None:
                write_report(reports[-1], output)
    if as_json:
        print(json.dumps([asdict(row) for report in reports for row in report.rows], indent=2, ensure_ascii=False))
    else:
        print("\n".join(map(render, reports)))
