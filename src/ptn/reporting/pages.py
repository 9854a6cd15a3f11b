"""Tables inside pages that people write: each stands between two marks, and is made anew from the records.

`<!-- report: rotmnist ablation -->` is followed by tables as `ptn report` prints them, up to
`<!-- end of report -->`; `<!-- report: brief rotmnist -->` by the errors alone, `<!-- report: own rotmnist/ -->` by
the runs whose names begin so.
"""

import re
from collections.abc import Sequence

from ..errors import InputError, check_choice
from ..training.records import Record
from .markdown import render_brief, render_markdown
from .own import render_own, summarise_own
from .published import TABLES
from .tables import build_tables

_END = "<!-- end of report -->"
_BLOCK = re.compile(rf"(<!-- report: (?P<what>[^>]+?) -->\n).*?(?P<end>{_END}|\Z)", re.DOTALL)


def refresh(page: str, records: Sequence[Record]) -> str:
    """`page` with every report in it as the records have it now."""

    def renew(block: re.Match[str]) -> str:
        if not block["end"]:
            raise InputError(f"<!-- report: {block['what']} --> has no {_END} after it")
        return f"{block[1]}\n{_made(block['what'].split(), records)}\n{block['end']}"

    renewed, count = _BLOCK.subn(renew, page)
    if not count:
        raise InputError(
            "no <!-- report: … --> in it: mark where tables belong, say <!-- report: brief rotmnist -->"
        )
    return renewed


def _made(words: Sequence[str], records: Sequence[Record]) -> str:
    kind, *names = words
    if kind == "own":
        wanted = [record for record in records if record.recipe.startswith(tuple(names or [""]))]
        return render_own(summarise_own(wanted), heading=False)
    tables = names if kind == "brief" else list(words)
    for name in tables:
        check_choice("table", name, TABLES)
    built = build_tables(records, tables)
    return render_brief(built) if kind == "brief" else render_markdown(built)
