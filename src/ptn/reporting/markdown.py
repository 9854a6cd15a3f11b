"""Tables as Markdown that reads as well in a terminal as on a page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..training.recipe import FORMS
from .align import align
from .published import PAPER, PUBLISHED, TABLES, PublishedRow
from .tables import Result, Table, ratios_to_baseline

_NAMES = ("data set", "row")
_BRIEF = (*_NAMES, "published", *(f"ours, {form} recipe" for form in FORMS))
_REGENERATED = (
    "The published numbers were measured on the original rotated MNIST, ours on a set regenerated from MNIST. "
    "Whether the two are equally hard is open: ours by the paper's recipe tell what can be told."
)


def render_markdown(tables: Iterable[Table]) -> str:
    """Each table under a heading, with notes that say what its numbers are and where they come from."""
    return "\n".join(map(_render, tables))


def render_brief(tables: Iterable[Table]) -> str:
    """Each table without a heading, with no more than its errors and whether its data are the original's."""
    parts = []
    for table in tables:
        columns = {heading: cells for heading, cells in _columns(table).items() if heading in _BRIEF}
        notes = [f"- {note}" for note in list(_notes(table, columns))[:2]]
        parts.append("\n".join([*align(columns, names=_NAMES), "", *notes, ""]))
    return "\n".join(parts)


def _render(table: Table) -> str:
    columns = _columns(table)
    notes = [f"- {note}" for note in _notes(table, columns)]
    return "\n".join([f"## {_title(table)}", "", *align(columns, names=_NAMES), "", *notes, ""])


def _title(table: Table) -> str:
    info = TABLES[table.name]
    if not table.devices:
        return f"{info.title} (no finished runs yet)"
    if "rotmnist" in info.datasets:
        return f"{info.title} ({' and '.join(table.sources)} data)"
    return info.title


def _columns(table: Table) -> dict[str, list[str]]:
    """The cells of a table by the heading of their column; columns that would say nothing are left out."""
    info, digits = TABLES[table.name], _digits(table.name)
    known = [row.published for row in table.rows]
    results = [list(row.results.values()) for row in table.rows]
    datasets = [info.datasets.get(row.dataset, row.dataset) for row in known]
    columns = {
        "data set": datasets if len(set(datasets)) > 1 else [],
        "row": [f"{row.row} (quoted)" if row.quoted else row.row for row in known],
        "published": [_published(row, digits, accuracy=info.accuracy) for row in known],
    }
    for form in FORMS:
        ours = [row.results.get(form) for row in table.rows]
        columns[f"ours, {form} recipe"] = [_ours(result, digits, accuracy=info.accuracy) for result in ours]
    ratios = [ratios_to_baseline(table, row) for row in table.rows]
    columns |= {
        heading: [_both(_metrics(result, names, digits) for result in row) for row in results]
        for heading, names in info.columns.items()
    }
    columns |= {
        "ratio publ.": ["" if row is None else _ratio(row.published) for row in ratios],
        "ratio ours": ["" if row is None else _both(map(_ratio, row.ours)) for row in ratios],
        "params publ.": [_rounded(row.params) for row in known],
        "params ours": [_both(_count(result.params) for result in row) for row in results],
        "s/epoch publ.": [_seconds(row.seconds_per_epoch) for row in known],
        "s/epoch ours": [_both(_seconds(result.seconds_per_epoch) for result in row) for row in results],
    }
    return {heading: cells for heading, cells in columns.items() if any(cells)}


def _digits(table: str) -> int:
    """Digits after the point: as many as the most precise published number of the table has."""
    means = [row.mean for row in PUBLISHED if row.table == table and row.mean is not None]
    return max((len(f"{mean:g}".partition(".")[2]) for mean in means), default=2)


def _published(row: PublishedRow, digits: int, *, accuracy: bool) -> str:
    if row.mean is None and row.class_mean is None:
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


def _metrics(result: Result, names: Sequence[str], digits: int) -> str:
    """Metrics in one cell; nothing where runs do not have them."""
    if any(name not in result.metrics for name in names):
        return ""
    return ", ".join(f"{result.metrics[name]:.{digits}f}" for name in names)


def _spread(mean: float | None, std: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


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


def _both(values: Iterable[str]) -> str:
    """What there is to say of a row's forms: once where they agree, "paper / modern" where they do not."""
    cells = list(values)
    return " / ".join(cell or "–" for cell in cells) if len(set(cells)) > 1 else "".join(cells[:1])


def _notes(table: Table, columns: Mapping[str, list[str]]) -> Iterator[str]:
    info = TABLES[table.name]
    published = f" Published: {PAPER}." if "published" in columns else ""
    yield f"{info.what}: mean ± sample standard deviation over n seeds.{published}"
    if "rotmnist" in info.datasets and "regenerated" in table.sources:
        yield _REGENERATED
    yield from info.notes
    if "ratio ours" in columns or "ratio publ." in columns:
        yield "Ratio: error over that of the row beside it without PTN, by the same recipe."
    pairs = ("ratio ours", "params ours", "s/epoch ours")
    if any(" / " in cell for heading in pairs for cell in columns.get(heading, ())):
        yield "Of ours, a / b: by the paper's recipe / by the modern one."
    if table.devices:
        times = "Published times: on a GPU of 2017; ours" if "s/epoch publ." in columns else "Ours"
        yield f"{times}: on {', '.join(table.devices)}."
    yield from table.warnings
    sources: dict[str, list[str]] = {}
    for row in table.rows:
        if row.published.quoted:
            sources.setdefault(row.published.source, []).append(row.published.row)
    if sources:
        quoted = (f"\n  - {', '.join(rows)}: {source}" for source, rows in sources.items())
        yield f"Quoted, not run by us:{''.join(quoted)}"
