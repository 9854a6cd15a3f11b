"""Hooks of the site: the live page, pages of tables and weights, figures with captions, formulas as MathML."""

import logging
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ptn.demo.bundle import write_page
from ptn.demo.models import find_pairs
from ptn.models.zoo import WEIGHTS

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not installed

from experiments.markdown import render
from experiments.tables import build_tables, load_records

RUNTIME = Path(__file__).parents[1] / "node_modules" / "onnxruntime-web" / "dist"
LIVE_PAGE = '<iframe class="live" src="demo/index.html" title="The interactive page" loading="lazy"></iframe>'
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
_PICTURE = re.compile(r'<p><img alt="([^"]*)" src="([^"]+)" ?/?></p>')
_FORMULA_IN_TEXT = re.compile(r"\$<code>(.*?)</code>\$", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every page in docs/results to the navigation, and edit links if the address of the repository is set."""
    if config.repo_url:
        config.edit_uri = "edit/main/docs/"
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
    """Insert the live page, convert formula blocks to MathML, hide the contents where the width is needed."""
    if page.file.src_uri.startswith(("results/", "performance")):
        page.meta["hide"] = ["toc"]
    elif page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    markdown = markdown.replace("<!-- live page -->", LIVE_PAGE)
    return _FORMULA.sub(lambda match: convert(match[1].strip(), display="block"), markdown)


def on_page_content(html: str, *, page: Page, files: Files, **_: Any) -> str:
    """Convert pictures to figures with captions and a form for dark pages, and inline formulas to MathML."""
    known = {file.src_uri for file in files}

    def figure(match: re.Match[str]) -> str:
        caption, address = match[1], match[2]
        name, dot, suffix = address.rpartition(".")
        dark = f"{name}.dark{dot}{suffix}"
        pictures = f'<img alt="{caption}" src="{address}">'
        if f"images/{Path(dark).name}" in known:
            pictures = "".join(
                f'<img alt="{caption}" src="{source}#only-{scheme}" loading="lazy">'
                for source, scheme in ((address, "light"), (dark, "dark"))
            )
        return f'<figure class="picture">{pictures}<figcaption>{caption}</figcaption></figure>'

    html = _PICTURE.sub(figure, html)
    return _FORMULA_IN_TEXT.sub(lambda match: convert(unescape(match[1])), html)


def on_post_page(output: str, **_: Any) -> str:
    """Remove the attribute by which the theme requests facts from the host of the repository."""
    return output.replace('data-md-component="source"', "")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write the live page: the networks of its main choices, run in the browser."""
    if not RUNTIME.is_dir():
        logging.getLogger("mkdocs").warning("the live page needs onnxruntime-web: run npm install")
        return
    pairs = [pair for pair in find_pairs() if pair.regime]
    write_page(pairs, Path(config.site_dir) / "demo", RUNTIME, documentation="../index.html")
