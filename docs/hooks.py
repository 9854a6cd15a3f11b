"""Hooks of the site: pages of tables and released weights, and formulas as MathML."""

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ptn.models.zoo import WEIGHTS

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not installed

from experiments.markdown import render
from experiments.tables import build_tables, load_records

TABLES_PAGE = "results/tables.md"
WEIGHTS_PAGE = "results/weights.md"
_INTRODUCTION = """---
hide: [toc]
---

# Tables

Built from `experiments/results/*.jsonl` by `python -m experiments report`. A row without finished runs says
"missing"; quoted rows are marked.

"""
_ABOUT_WEIGHTS = """# Trained networks

These weights are part of the package. Each is seed 0 of its recipe.
"""
_FORMULA = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FORMULA_IN_TEXT = re.compile(r"\$<code>(.*?)</code>\$", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every page in docs/results to the navigation, below the tables."""
    pages = sorted(path.name for path in (Path(config.docs_dir) / "results").glob("*.md"))
    pages.remove("index.md")
    section = next(entry["Results"] for entry in config.nav or [] if "Results" in entry)
    section += [f"results/{name}" for name in pages]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Generate the pages of tables and of released weights."""
    tables = render(build_tables(load_records()))
    tables = re.sub(r"^  - ", "    - ", tables, flags=re.MULTILINE)  # mkdocs indents nested lists by four
    files.append(File.generated(config, TABLES_PAGE, content=_INTRODUCTION + tables))
    files.append(File.generated(config, WEIGHTS_PAGE, content=_weights_page()))
    return files


def _weights_page() -> str:
    """Returns the cards of all released weights, one section each."""
    cards = [path.read_text(encoding="utf-8") for path in sorted(WEIGHTS.glob("*.md"))]
    bodies = [card.partition("---\n")[2].partition("---\n")[2] for card in cards]
    return "".join([_ABOUT_WEIGHTS, *(re.sub(r"^#", "##", body, flags=re.MULTILINE) for body in bodies)])


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Convert formula blocks to MathML; hide the table of contents where tables need the width."""
    if page.file.src_uri.startswith("results/"):
        page.meta["hide"] = ["toc"]
    return _FORMULA.sub(lambda match: convert(match[1].strip(), display="block"), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Convert inline formulas to MathML."""
    return _FORMULA_IN_TEXT.sub(lambda match: convert(unescape(match[1])), html)
