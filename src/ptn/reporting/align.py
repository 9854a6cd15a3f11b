"""Markdown tables whose columns line up, so that they read as well in a terminal as on a page."""

from collections.abc import Collection, Mapping, Sequence


def align(columns: Mapping[str, Sequence[str]], *, names: Collection[str] = ()) -> list[str]:
    """The lines of a table from cells by heading: columns in `names` to the left, numbers to the right."""
    padded = []
    for heading, cells in columns.items():
        width = max(map(len, (heading, *cells)))
        if heading in names:
            padded.append([heading.ljust(width), "-" * width, *(cell.ljust(width) for cell in cells)])
        else:
            padded.append([heading.rjust(width), "-" * (width - 1) + ":", *(cell.rjust(width) for cell in cells)])
    return [f"| {' | '.join(line)} |" for line in zip(*padded, strict=True)]
