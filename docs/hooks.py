"""What the site makes while it is built: the page of results from the records, and formulas as MathML."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ptn.models.zoo import WEIGHTS
from ptn.reporting.markdown import render_markdown
from ptn.reporting.published import TABLES
from ptn.reporting.tables import build_tables
from ptn.training.records import read_records

TABLES_PAGE = "results/tables.md"
WEIGHTS_PAGE = "results/weights.md"
_INTRODUCTION = """---
hide: [toc]
---

# Tables

Made from `results/*.jsonl` by `ptn report`, ours beside the published numbers. A row without finished runs is
missing, not hidden; rows that are only quoted say so.

"""
_ABOUT_WEIGHTS = """# Trained networks

They come with the package. Each is seed 0 of its recipe, whatever the others did.
"""
_FORMULA = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FORMULA_IN_TEXT = re.compile(r"\$<code>(.*?)</code>\$", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every page in docs/results has its place below the tables; the first of all is named in the menu."""
    written = sorted(path.name for path in (Path(config.docs_dir) / "results").glob("*.md"))
    written.remove("index.md")
    section = next(entry["Results"] for entry in config.nav or [] if "Results" in entry)
    section += [f"results/{name}" for name in written]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The tables, made from the records as they are now."""
    folder = Path(config.config_file_path).parent / "results"
    records = [record for path in sorted(folder.glob("*.jsonl")) for record in read_records(path)]
    tables = render_markdown(build_tables(records, list(TABLES)))
    tables = re.sub(
        r"^  - ", "    - ", tables, flags=re.MULTILINE
    )  # how far the site wants lists in lists indented
    files.append(File.generated(config, TABLES_PAGE, content=_INTRODUCTION + tables))
    files.append(File.generated(config, WEIGHTS_PAGE, content=_weights_page()))
    return files


def _weights_page() -> str:
    """The cards of all shipped weights, each a section."""
    cards = [path.read_text(encoding="utf-8") for path in sorted(WEIGHTS.glob("*.md"))]
    bodies = [card.partition("---\n")[2].partition("---\n")[2] for card in cards]
    return "".join([_ABOUT_WEIGHTS, *(re.sub(r"^#", "##", body, flags=re.MULTILINE) for body in bodies)])


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Formulas, written as on GitHub, become MathML, which browsers draw without a script. Tables get more room."""
    if page.file.src_uri.startswith("results/"):
        page.meta["hide"] = ["toc"]
    return _FORMULA.sub(lambda match: convert(match[1].strip(), display="block"), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """The same for formulas in the text, once it is clear what is text."""
    return _FORMULA_IN_TEXT.sub(lambda match: convert(unescape(match[1])), html)
