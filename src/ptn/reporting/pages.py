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
_BEGIN = r"<!-- report:(?P<what>[^>]*?)-->[ \t]*\n"
# up to its end, or else to what comes before the next one
_BLOCK = re.compile(rf"({_BEGIN})(?:(?!<!-- report:).)*?(?P<end>{_END}|(?=<!-- report:)|\Z)", re.DOTALL)


def refresh(page: str, records: Sequence[Record]) -> str:
    """`page` with every report in it as the records have it now."""

    def renew(block: re.Match[str]) -> str:
        words = block["what"].split()
        if not block["end"]:
            raise InputError(f"<!-- report: {' '.join(words)} --> has no {_END} after it")
        return f"{block[1]}\n{_made(words, records)}\n{block['end']}"

    if "<!-- report:" not in page:
        raise InputError(f"mark where tables belong in it, say <!-- report: brief rotmnist --> and {_END}")
    return _BLOCK.sub(renew, page)


def _made(words: Sequence[str], records: Sequence[Record]) -> str:
    kind, *names = words or [""]
    if kind == "own":
        wanted = [record for record in records if record.recipe.startswith(tuple(names or [""]))]
        return render_own(summarise_own(wanted), heading=False)
    tables = names if kind == "brief" else list(words)
    if not tables:
        raise InputError(f"say which table, one of {', '.join(TABLES)}: <!-- report: {kind or 'rotmnist'} …")
    for name in tables:
        check_choice("table", name, TABLES)
    built = build_tables(records, tables)
    return render_brief(built) if kind == "brief" else render_markdown(built)
