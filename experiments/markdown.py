"""Tables as Markdown, and tables inside pages.

In a page, `<!-- report: rotmnist ablation -->` is followed by the tables up to `<!-- end of report -->`;
`<!-- report: brief rotmnist -->` by the errors alone, `<!-- report: rows ID ID -->` by a table of some rows.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ptn.errors import InputError, unknown_name
from ptn.training.records import Record

from .published import PublishedRow, load_published, table_names
from .recipes import FORMS
from .tables import Result, Table, TableRow, build_tables, mean_and_std, newest

_NAMES = ("data set", "row")
_BRIEF = (*_NAMES, "published", *(f"ours, {form} recipe" for form in FORMS))
_REGENERATED = (
    "The published numbers are for the original rotated MNIST, ours for a set regenerated from MNIST, which may be "
    "easier or harder: compare with ours by the paper's recipe."
)
_END = "<!-- end of report -->"
# a marker and the text up to the end marker, or else up to the next marker
_BLOCK = re.compile(
    rf"(<!-- report:(?P<what>[^>]*?)-->[ \t]*\n)(?:(?!<!-- report:).)*?(?P<end>{_END}|(?=<!-- report:)|\Z)",
    re.DOTALL,
)


def align(columns: Mapping[str, Sequence[str]], *, names: Collection[str] = ()) -> list[str]:
    """Returns the lines of a Markdown table; columns in `names` are aligned left, all others right."""
    padded = []
    for heading, cells in columns.items():
        width = max(3, *map(len, (heading, *cells)))
        if heading in names:
            padded.append([heading.ljust(width), "-" * width, *(cell.ljust(width) for cell in cells)])
        else:
            padded.append([heading.rjust(width), "-" * (width - 1) + ":", *(cell.rjust(width) for cell in cells)])
    return [f"| {' | '.join(line)} |" for line in zip(*padded, strict=True)]


def spread(mean: float, std: float | None, digits: int) -> str:
    """Returns "mean ± std", or the mean alone for a single run."""
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def render(tables: Iterable[Table], *, brief: bool = False) -> str:
    """Returns each table with a heading and notes; `brief`: the errors alone, without a heading."""
    parts = []
    for table in tables:
        columns = _columns(table)
        notes = list(_notes(table, columns))
        heading = [] if brief else [f"## {_title(table)}", ""]
        if brief:
            columns = {name: cells for name, cells in columns.items() if name in _BRIEF}
            notes = notes[:2]
        parts.append("\n".join([*heading, *align(columns, names=_NAMES), "", *(f"- {note}" for note in notes), ""]))
    return "\n".join(parts)


def refresh(page: str, records: Sequence[Record]) -> str:
    """Returns a page with every table in it built from `records`.

    Raises:
        InputError: There is no marker, or one without an end or with an unknown table.
    """

    def renew(block: re.Match[str]) -> str:
        words = block["what"].split()
        if not block["end"]:
            raise InputError(f"<!-- report: {' '.join(words)} --> has no {_END} after it")
        kind = words[0] if words and words[0] in ("brief", "rows") else ""
        names = words[1:] if kind else words
        if not names:
            raise InputError(f"<!-- report: --> must name a table: {', '.join(table_names())}")
        if kind == "rows":
            text = _render_rows(build_tables(records), names)
        else:
            text = render(build_tables(records, names), brief=kind == "brief")
        return f"{block[1]}\n{text}\n{block['end']}"

    if "<!-- report:" not in page:
        raise InputError(f"there is no marker for a table, such as <!-- report: brief rotmnist --> and {_END}")
    return _BLOCK.sub(renew, page)


def summarize_other_runs(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Returns one object per recipe and test split of the records without a row id, such as those of `--vary`."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.id is None:
            split = record.config.get("data", {}).get("test", "test")
            groups.setdefault((record.recipe, split, record.config_sha256), []).append(record)
    rows = []
    for (recipe, split, _), group in groups.items():
        finished = newest(group)
        errors = [record.test_error for record in finished if record.test_error is not None]
        mean, std = mean_and_std(errors) if errors else (None, None)
        failed = {record.seed for record in group} - {record.seed for record in finished}
        rows.append(
            {"recipe": recipe, "split": split, "n": len(errors), "mean": mean, "std": std, "failed": len(failed)}
        )
    return rows


def render_other_runs(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of `summarize_other_runs`."""
    if not rows:
        return "There are no records without a table row.\n"
    columns = {
        "recipe": [row["recipe"] for row in rows],
        "split": [row["split"] for row in rows],
        "error": ["" if row["mean"] is None else spread(row["mean"], row["std"], 2) for row in rows],
        "n": [str(row["n"]) for row in rows],
        "failed": [str(row["failed"] or "") for row in rows],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    return "\n".join([*align(columns, names=("recipe", "split")), ""])


def _render_rows(tables: Sequence[Table], ids: Sequence[str]) -> str:
    """Returns one table of the rows with these ids, in their order: data set, row and errors."""
    lines: dict[str, list[str]] = {}
    for table in tables:
        columns = _columns(table, digits=2)
        for index, row in enumerate(table.rows):
            cells = [columns[name][index] if name in columns else "" for name in _BRIEF]
            lines[row.published.id] = [table.info.datasets[row.dataset], *cells[1:]]
    for id in ids:
        if id not in lines:
            raise unknown_name("row", id, lines)
    columns = dict(zip(_BRIEF, map(list, zip(*(lines[id] for id in ids), strict=True)), strict=True))
    return "\n".join([*align(columns, names=_NAMES), ""])


def _title(table: Table) -> str:
    if not table.devices:
        return f"{table.info.title} (no finished runs yet)"
    if "rotmnist" in table.info.datasets:
        return f"{table.info.title} ({' and '.join(table.sources)} data)"
    return table.info.title


def _columns(table: Table, digits: int | None = None) -> dict[str, list[str]]:
    """Returns the cells by heading, without empty columns; by default with as many decimals as published."""
    info, digits = table.info, _digits(table) if digits is None else digits
    published = [row.published for row in table.rows]
    results = [list(row.results.values()) for row in table.rows]
    columns = {
        "data set": [info.datasets[row.dataset] for row in table.rows] if len(info.datasets) > 1 else [],
        "row": [f"{row.title} (quoted)" if row.source else row.title for row in published],
        "published": [_published(row, digits, accuracy=info.accuracy) for row in published],
    }
    for form in FORMS:
        ours = [row.results.get(form) for row in table.rows]
        columns[f"ours, {form} recipe"] = [_ours(result, digits, accuracy=info.accuracy) for result in ours]
    columns |= {
        heading: [_by_form(_metrics(result, names, digits) for result in row) for row in results]
        for heading, names in info.columns.items()
    }
    ratios = [_ratios(table, row) for row in table.rows]
    columns |= {
        "ratio publ.": [_ratio(ratio) for ratio, _ in ratios],
        "ratio ours": [_by_form(map(_ratio, ours)) for _, ours in ratios],
        "params publ.": [_rounded(row.params) for row in published],
        "params ours": [
            _by_form("" if result.params is None else f"{result.params:,}" for result in row) for row in results
        ],
        "s/epoch publ.": [_seconds(row.seconds_per_epoch) for row in published],
        "s/epoch ours": [_by_form(_seconds(result.seconds_per_epoch) for result in row) for row in results],
    }
    return {heading: cells for heading, cells in columns.items() if any(cells)}


def _ratios(table: Table, row: TableRow) -> tuple[float | None, list[float | None]]:
    """Returns the error of a row over that of its baseline: as published, and ours by form."""
    baseline = next((other for other in table.rows if other.published.id == row.published.baseline), None)
    if baseline is None:
        return None, []
    ours = [
        _quotient(result.mean, baseline.results[form].mean if form in baseline.results else None)
        for form, result in row.results.items()
    ]
    return _quotient(row.published.mean, baseline.published.mean), ours


def _quotient(error: float | None, baseline: float | None) -> float | None:
    return error / baseline if error is not None and baseline else None


def _digits(table: Table) -> int:
    """Returns the number of decimals: that of the most precise published number of the table."""
    means = [row.published.mean for row in table.rows if row.published.mean is not None]
    return max(map(_decimals, means), default=2)


def _decimals(value: float) -> int:
    return len(f"{value:g}".partition(".")[2])


def _published(row: PublishedRow, digits: int, *, accuracy: bool) -> str:
    if row.mean is None and row.class_mean is None:
        return ""
    if accuracy:
        return " / ".join("–" if value is None else f"{value:.{digits}f}" for value in (row.mean, row.class_mean))
    if row.mean is None or row.std is None:
        return f"{row.mean:g}"
    return spread(row.mean, row.std, max(2, _decimals(row.mean)))


def _ours(result: Result | None, digits: int, *, accuracy: bool) -> str:
    if result is None:
        return ""
    failed = [f"{result.failed} failed"] if result.failed else []
    if result.mean is None:
        return " ".join(["missing", *(f"({text})" for text in failed)])
    text = spread(result.mean, result.std, digits)
    if accuracy and result.class_mean is not None:
        text += f" / {spread(result.class_mean, result.class_std, digits)}"
    return f"{text} ({', '.join([f'n={result.n}', *failed])})"


def _metrics(result: Result, names: Sequence[str], digits: int) -> str:
    if any(name not in result.metrics for name in names):
        return ""
    return ", ".join(f"{result.metrics[name]:.{digits}f}" for name in names)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _rounded(params: int | None) -> str:
    """A number of parameters as papers print it."""
    if params is None:
        return ""
    return f"{params // 1000}k" if params < 1_000_000 else f"≈{params // 1_000_000}M"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.3f}"


def _by_form(values: Iterable[str]) -> str:
    """One cell for the forms of a row: a single value if they agree, "paper / modern" if not."""
    cells = list(values)
    return " / ".join(cell or "–" for cell in cells) if len(set(cells)) > 1 else "".join(cells[:1])


def _notes(table: Table, columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    paper, info = load_published()[0], table.info
    what = "Accuracy in %, over instances / over classes" if info.accuracy else "Test error in %"
    published = f" Published: {paper}." if "published" in columns else ""
    yield f"{what}: mean ± sample standard deviation over n seeds.{published}"
    if "rotmnist" in info.datasets and "regenerated" in table.sources:
        yield _REGENERATED
    yield from info.notes
    if "ratio ours" in columns or "ratio publ." in columns:
        yield "Ratio: error over that of the baseline with the same recipe."
    both = [cell for name in ("ratio ours", "params ours", "s/epoch ours") for cell in columns.get(name, ())]
    if any(" / " in cell for cell in both):
        yield "Ours, a / b: paper recipe / modern recipe."
    if table.devices:
        times = "Published times: on a GPU of 2017; ours" if "s/epoch publ." in columns else "Ours"
        yield f"{times}: on {', '.join(table.devices)}."
    yield from table.warnings
    sources: dict[str, list[str]] = {}
    for row in table.rows:
        if row.published.source:
            sources.setdefault(row.published.source, []).append(row.published.title)
    if sources:
        quoted = (f"\n  - {', '.join(titles)}: {source}" for source, titles in sources.items())
        yield f"Quoted, not run by us:{''.join(quoted)}"
