"""Tables as Markdown that reads as well in a terminal as on a page."""

from collections.abc import Iterable, Sequence

from .published import FORMS, PAPER, PUBLISHED, TABLES, PublishedRow
from .tables import Result, Table, TableRow

_REGENERATED = (
    "The published numbers were measured on the original rotated MNIST, ours on a set regenerated from MNIST. "
    "Whether the two are equally hard is open; CCNN-B+ and PTN-B+ by the paper's recipe tell."
)


def render_markdown(tables: Iterable[Table]) -> str:
    """Each table under a heading, with notes that say what its numbers are and where they come from."""
    return "\n".join(map(_render, tables))


def _render(table: Table) -> str:
    lines = _align(_columns(table))
    notes = [f"- {note}" for note in _notes(table)]
    return "\n".join([f"## {_title(table)}", "", *lines, "", *notes, ""])


def _title(table: Table) -> str:
    info = TABLES[table.name]
    if not table.devices:
        return f"{info.title} (no finished runs yet)"
    if "rotmnist" in info.datasets:
        return f"{info.title} ({' and '.join(table.sources)} data)"
    return info.title


def _columns(table: Table) -> list[list[str]]:
    """The columns of a table, each with its heading; those that would say nothing are left out."""
    info, rows = TABLES[table.name], table.rows
    digits = _digits(table.name)
    columns = [["row", *(_label(row) for row in rows)]]
    if len(info.datasets) > 1:
        columns.insert(0, ["data set", *(info.datasets.get(row.dataset, row.dataset) for row in rows)])
    columns.append(["published", *(_published(row.published, digits, accuracy=info.accuracy) for row in rows)])
    for form in FORMS:
        cells = [_ours(row.results.get(form), digits, accuracy=info.accuracy) for row in rows]
        columns.append([f"ours, {form} recipe", *cells])
    columns.append(["params published", *(_rounded(row.published and row.published.params) for row in rows)])
    columns.append(["params ours", *(_both(row, [_count(r.params) for r in row.results.values()]) for row in rows)])
    published_seconds = [_seconds(row.published and row.published.seconds_per_epoch) for row in rows]
    columns.append(["s/epoch published", *published_seconds])
    seconds = [_both(row, [_seconds(r.seconds_per_epoch) for r in row.results.values()]) for row in rows]
    columns.append(["s/epoch ours", *seconds])
    return [column for column in columns if any(column[1:])]


def _label(row: TableRow) -> str:
    return f"{row.row} (quoted)" if row.quoted else row.row


def _digits(table: str) -> int:
    """Digits after the point: as many as the most precise published number of the table has."""
    means = [row.mean for row in PUBLISHED if row.table == table and row.mean is not None]
    return max(len(f"{mean:g}".partition(".")[2]) for mean in means)


def _published(row: PublishedRow | None, digits: int, *, accuracy: bool) -> str:
    if row is None or (row.mean is None and row.class_mean is None):
        return ""
    if accuracy:
        pair = (row.mean, row.class_mean)
        return " / ".join("–" if value is None else f"{value:.{digits}f}" for value in pair)
    if row.std is None:
        return f"{row.mean:g}"
    own = max(2, len(f"{row.mean:g}".partition(".")[2]))
    return f"{row.mean:.{own}f} ± {row.std:.{own}f}"


def _ours(result: Result | None, digits: int, *, accuracy: bool) -> str:
    if result is None:
        return ""
    failed = [f"{result.failed} failed"] if result.failed else []
    if result.n == 0:
        return " ".join(["missing", *(f"({text})" for text in failed)])
    spread = _spread(result.mean, result.std, digits)
    if accuracy:
        spread += f" / {_spread(result.class_mean, result.class_std, digits)}"
    return f"{spread} ({', '.join([f'n={result.n}', *failed])})"


def _spread(mean: float | None, std: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def _rounded(params: int | None) -> str:
    """A count of parameters as papers print it."""
    if params is None:
        return ""
    return f"{params // 1000}k" if params < 1_000_000 else f"≈{params // 1_000_000}M"


def _count(params: int | None) -> str:
    return "" if params is None else f"{params:,}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.3f}"


def _both(row: TableRow, values: Sequence[str]) -> str:
    """What there is to say of the row's forms: once where they agree, "paper / modern" where they do not."""
    if len(set(values)) <= 1:
        return values[0] if values else ""
    return " / ".join(value or "–" for value in values)


def _align(columns: list[list[str]]) -> list[str]:
    """The lines of a Markdown table: text columns (up to the row's name) to the left, numbers to the right."""
    texts = [column[0] in ("data set", "row") for column in columns]
    widths = [max(map(len, column)) for column in columns]
    pads = [str.ljust if text else str.rjust for text in texts]
    rules = ["-" * width if text else "-" * (width - 1) + ":" for text, width in zip(texts, widths, strict=True)]
    body = [
        [pad(cell, width) for cell, pad, width in zip(cells, pads, widths, strict=True)]
        for cells in zip(*columns, strict=True)
    ]
    return [f"| {' | '.join(cells)} |" for cells in (body[0], rules, *body[1:])]


def _notes(table: Table) -> Iterable[str]:
    info = TABLES[table.name]
    what = "Accuracy in %, over instances / over classes" if info.accuracy else "Test error in %"
    yield f"{what}: mean ± sample standard deviation over n seeds. Published: {PAPER}."
    if "rotmnist" in info.datasets and "regenerated" in table.sources:
        yield _REGENERATED
    yield from info.notes
    if any(len(set(_pair(row))) > 1 for row in table.rows):
        yield "Two numbers of ours, a / b: by the paper's recipe / by the modern one."
    timed = any(row.published and row.published.seconds_per_epoch for row in table.rows)
    if table.devices:
        yield (
            ("Published times: a GPU of 2017; ours: " if timed else "Ours ran on: ")
            + "; ".join(table.devices)
            + "."
        )
    sources = [f"{row.row}: {row.published.source}" for row in table.rows if row.quoted and row.published]
    if sources:
        yield f"Quoted, not run by us. {'; '.join(sources)}."
    yield from table.warnings


def _pair(row: TableRow) -> list[tuple[int | None, float | None]]:
    return [(result.params, result.seconds_per_epoch) for result in row.results.values()]
