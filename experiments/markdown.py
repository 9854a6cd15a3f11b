"""Tables as Markdown, and tables inside pages.

In a page, `<!-- report: rotmnist ablation -->` is followed by the tables up to `<!-- end of report -->`;
`<!-- report: brief rotmnist -->` by the errors alone, `<!-- report: rows ID ID -->` by a table of some rows, and
`<!-- report: folders -->` by the runs of `ptn train --folder`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ptn.errors import InputError, unknown_name
from ptn.training.records import Record

from .published import PAPER, TABLES, PublishedRow
from .recipes import FORMS
from .tables import Result, Table, build_tables, mean_and_std

_NAMES = ("data set", "row")
_BRIEF = (*_NAMES, "published", *(f"ours, {form} recipe" for form in FORMS))
_REGENERATED = (
    "The published numbers are for the original rotated MNIST, ours for a set regenerated from MNIST, which may be "
    "easier or harder: compare with ours by the paper's recipe."
)
_START, _END = "<!-- report:", "<!-- end of report -->"
_BLOCK = re.compile(rf"({_START}\s*(\w[^>]*?)-->[ \t]*\n)(?:(?!{_START}).)*?{_END}", re.DOTALL)


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
        heading = [] if brief else [f"## {table.info.title}", ""]
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
        kind, *names = block[2].split()
        if kind == "rows":
            text = _render_rows(build_tables(records, list(TABLES)), names)
        elif kind == "folders":
            text = _render_folders(records)
        elif kind == "brief":
            text = render(build_tables(records, names), brief=True)
        else:
            text = render(build_tables(records, [kind, *names]))
        return f"{block[1]}\n{text}\n{_END}"

    updated, count = _BLOCK.subn(renew, page)
    if not count or count < page.count(_START):
        raise InputError(f"every table needs a marker, such as {_START} brief rotmnist -->, and {_END} after it")
    return updated


def _render_rows(tables: Sequence[Table], ids: Sequence[str]) -> str:
    """Returns one table of the rows with these ids, in their order: data set, row and errors."""
    lines: dict[str, list[str]] = {}
    for table in tables:
        columns = _columns(table, digits=2)
        for index, (id, row) in enumerate(table.info.rows.items()):
            cells = [columns[name][index] if name in columns else "" for name in _BRIEF[1:]]
            lines[id] = [table.info.datasets[row.dataset], *cells]
    for id in ids:
        if id not in lines:
            raise unknown_name("row", id, lines)
    cells_by_column = zip(*(lines[id] for id in ids), strict=True)
    return "\n".join([*align(dict(zip(_BRIEF, cells_by_column, strict=True)), names=_NAMES), ""])


def _render_folders(records: Sequence[Record]) -> str:
    """Returns one table of the finished runs on folders of images, a row for each folder and model."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.dataset == "folder" and record.status == "done":
            groups.setdefault((record.recipe.split("/")[1], record.model), []).append(record)
    rows = []
    for (folder, model), runs in sorted(groups.items()):
        errors = [run.test_error or 0.0 for run in runs]
        epochs = sorted({run.epochs for run in runs})
        rows.append(
            (
                f"`{folder}`",
                f"`{model}`",
                f"{runs[0].params:,}",
                f"{spread(*mean_and_std(errors), 2)} (n={len(runs)})",
                f"{max(errors):.2f}",
                f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}",
                f"{mean_and_std([run.train_seconds for run in runs])[0]:.0f}",
            )
        )
    headings = ("folder", "network", "parameters", "test error in %", "worst seed", "epochs", "training, s")
    return "\n".join([*align(dict(zip(headings, zip(*rows, strict=True), strict=True)), names=headings[:2]), ""])


def _columns(table: Table, digits: int | None = None) -> dict[str, Sequence[str]]:
    """Returns the cells by heading, without empty columns; by default with as many decimals as published."""
    info, rows = table.info, list(table.info.rows.values())
    if digits is None:
        digits = max((_decimals(row.mean) for row in rows if row.mean is not None), default=2)
    results = [table.results[row.id] for row in rows]
    columns = {
        "data set": [info.datasets[row.dataset] for row in rows] if len(info.datasets) > 1 else [],
        "row": [f"{row.title} (quoted)" if row.source else row.title for row in rows],
        "published": [_published(row, digits, accuracy=info.accuracy) for row in rows],
    }
    for form in FORMS:
        ours = [_ours(by_form.get(form), digits, accuracy=info.accuracy) for by_form in results]
        columns[f"ours, {form} recipe"] = ours
    for heading, names in info.columns.items():
        columns[heading] = [
            _by_form(_metrics(result, names, digits) for result in by_form.values()) for by_form in results
        ]
    ratios = [_ratios(table, row) for row in rows]
    columns |= {
        "ratio publ.": [published for published, _ in ratios],
        "ratio ours": [ours for _, ours in ratios],
        "params publ.": [_number(row.params, ",") for row in rows],
        "params ours": [
            _by_form(_number(result.params, ",") for result in by_form.values()) for by_form in results
        ],
        "s/epoch publ.": [_number(row.seconds_per_epoch, ".2f") for row in rows],
        "s/epoch ours": [
            _by_form(_number(result.seconds_per_epoch, ".3f") for result in by_form.values()) for by_form in results
        ],
    }
    return {heading: cells for heading, cells in columns.items() if any(cells)}


def _ratios(table: Table, row: PublishedRow) -> tuple[str, str]:
    """Returns the error of a row over that of its baseline: as published, and ours."""
    if row.baseline is None:
        return "", ""

    def ratio(error: float | None, baseline: float | None) -> str:
        return f"{error / baseline:.2f}" if error is not None and baseline else ""

    baselines = table.results[row.baseline]
    ours = [ratio(result.mean, baselines[form].mean) for form, result in table.results[row.id].items()]
    return ratio(row.mean, table.info.rows[row.baseline].mean), _by_form(ours)


def _decimals(value: float) -> int:
    return len(f"{value:g}".partition(".")[2])


def _published(row: PublishedRow, digits: int, *, accuracy: bool) -> str:
    if row.mean is None and row.class_mean is None:
        return ""
    if accuracy:
        return " / ".join(_number(value, f".{digits}f") or "–" for value in (row.mean, row.class_mean))
    if row.mean is None or row.std is None:
        return f"{row.mean:g}"
    return spread(row.mean, row.std, max(2, _decimals(row.mean)))


def _ours(result: Result | None, digits: int, *, accuracy: bool) -> str:
    if result is None:
        return ""
    failed = f"{result.failed} failed" if result.failed else ""
    if result.mean is None:
        return f"missing ({failed})" if failed else "missing"
    text = spread(result.mean, result.std, digits)
    if accuracy:
        text += f" / {spread(*result.metrics['class_accuracy'], digits)}"
    return f"{text} (n={result.n}{', ' * bool(failed)}{failed})"


def _metrics(result: Result, names: Sequence[str], digits: int) -> str:
    if any(name not in result.metrics for name in names):
        return ""
    return ", ".join(f"{result.metrics[name][0]:.{digits}f}" for name in names)


def _number(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def _by_form(values: Iterable[str]) -> str:
    """One cell for the forms of a row: a single value if they agree, "paper / modern" if not."""
    cells = list(values)
    return " / ".join(cell or "–" for cell in cells) if len(set(cells)) > 1 else "".join(cells[:1])


def _notes(table: Table, columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    info = table.info
    what = "Accuracy in %, over instances / over classes" if info.accuracy else "Test error in %"
    published = f" Published: {info.citation or PAPER}." if "published" in columns else ""
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
    for row in info.rows.values():
        if row.source:
            sources.setdefault(row.source, []).append(row.title)
    if sources:
        quoted = (f"\n  - {', '.join(titles)}: {source}" for source, titles in sources.items())
        yield f"Quoted, not run by us:{''.join(quoted)}"
