"""`ptn report`: the tables of the paper, ours beside the published numbers."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, check_choice

if TYPE_CHECKING:
    from ..training.records import Record


_OWN = "own"
"""What runs that are no row of a table are called."""


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="rotmnist, ablation, mnist-r, mnist-rts, sim2mnist, generalisation, svhn, svhn-holdout, "
            "modelnet40; by default all of these. Or own: runs that are no row of a table, such as those of ptn "
            "train --vary.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of records (*.jsonl), or one file of them.", metavar="FOLDER")
    ] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of Markdown.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write to instead of printing.", show_default=False),
    ] = None,
    pages: Annotated[
        list[Path] | None,
        typer.Option(
            "--page",
            help="Renew the tables in this Markdown file, between <!-- report: TABLE --> and "
            "<!-- end of report -->. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tables in Markdown, made from records: mean, std and number of runs beside the paper's numbers.

    Rows without runs show as missing; peers' published rows are marked as quoted.
    """
    from ..files import atomic_path
    from ..reporting.published import TABLES
    from ..reporting.tables import build_tables, to_json

    for name in tables or []:
        check_choice("table", name, [*TABLES, _OWN])
    if tables and _OWN in tables and tables != [_OWN]:
        raise InputError(f"{_OWN} is no table of the paper: ask for it by itself")
    records = load_records(results)
    if pages:
        if tables or as_json or output:
            raise InputError("--page says itself which tables it has: give it alone")
        if not records:
            raise InputError(f"no records at {results}, and so no tables: see --results")
        _renew(pages, records)
        return
    if not results.exists():
        print(
            f"ptn: no records at {results} yet: `ptn train --results` and `ptn reproduce` write them; "
            "the repository has its own in results/ (see --results)",
            file=sys.stderr,
        )
    rows: list[dict[str, Any]]
    if tables == [_OWN]:
        from ..reporting.own import render_own, summarise_own

        rows = summarise_own(records)
        text = render_own(rows)
    else:
        from ..reporting.markdown import render_markdown

        built = build_tables(records, tables or list(TABLES))
        if others := sorted({record.table for record in records if record.table} - set(TABLES)):
            print(f"ptn: not shown: records of other tables ({', '.join(others)})", file=sys.stderr)
        rows, text = to_json(built), render_markdown(built)
    if as_json:
        text = json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    with atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(output)


def _renew(pages: list[Path], records: "list[Record]") -> None:
    """All of `pages`, or none where one of them cannot be renewed."""
    from ..files import atomic_path
    from ..reporting.pages import refresh

    renewed = {}
    for page in pages:
        try:
            renewed[page.resolve()] = refresh(page.read_text(encoding="utf-8"), records)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {page}: {error}") from error
        except InputError as error:
            raise InputError(f"{page}: {error}") from error
    for page, text in renewed.items():
        with atomic_path(page) as temporary:
            temporary.write_text(text, encoding="utf-8")
    print("\n".join(map(str, pages)))


def load_records(results: Path) -> "list[Record]":
    """The records of every *.jsonl in the folder `results`, or of that file; none where there is nothing yet."""
    from ..training.records import read_records

    if results.is_file():
        return read_records(results)
    if results.exists() and not results.is_dir():
        raise InputError(f"{results} is neither a folder nor a file of records")
    return [record for path in sorted(results.glob("*.jsonl")) for record in read_records(path)]
