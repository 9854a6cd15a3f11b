"""Tables inside written pages."""

from pathlib import Path

import pytest

from ptn.cli.report import load_records
from ptn.errors import InputError
from ptn.reporting.pages import refresh

ROOT = Path(__file__).parents[2]
PAGE = "Before.\n<!-- report: {} -->\nwas here\n<!-- end of report -->\nAfter.\n"


PAGES = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "\n<!-- report: " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_of_this_repository_are_as_the_records_have_them(page):
    """`make tables` makes them so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert refresh(text, load_records(ROOT / "results")) == text
    assert f"--page {page}" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_a_table_is_put_where_it_is_asked_for(made_up):
    records = [made_up(seed=seed, test_error=1.0 + seed / 10) for seed in range(3)]
    whole = refresh(PAGE.format("rotmnist"), records)
    brief = refresh(PAGE.format("brief rotmnist"), records)
    for text in (whole, brief):
        assert text.startswith("Before.\n<!-- report: ")
        assert text.endswith("<!-- end of report -->\nAfter.\n")
        assert "1.100 ± 0.100 (n=3)" in text
        assert "was here" not in text
        assert refresh(text, records) == text
    assert "## Table 1" in whole
    assert "params ours" in whole
    assert "## Table 1" not in brief
    assert "params ours" not in brief


def test_a_mark_may_have_spaces_after_it(made_up):
    page = PAGE.format("brief rotmnist").replace("rotmnist -->", "rotmnist -->  ")
    assert "1.000 (n=1)" in refresh(page, [made_up()])


def test_runs_of_ones_own_say_what_sets_them_apart(made_up):
    def tried(name, error, **settings):
        config = {"name": name, "seed": 0, "epochs": 200, **settings}
        return made_up(recipe=name, test_error=error, table=None, row=None, config=config)

    records = [
        tried("rotmnist/ptn_b/modern+/a", 1.5, dropout=0.2, optimizer={"lr": 0.01}),
        tried("rotmnist/ptn_b/modern+/b", 1.25, dropout=0.3, optimizer={"lr": 0.01}),
        tried("svhn/resnet32/paper/c", 5.0, dropout=0.0),
    ]
    text = refresh(PAGE.format("own rotmnist/"), records)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [row[:2] for row in cells[2:]] == [
        ["rotmnist/ptn_b/modern+/a", "dropout 0.2"],
        ["rotmnist/ptn_b/modern+/b", "dropout 0.3"],
    ]


def test_runs_of_one_name_but_other_settings_are_not_averaged(made_up):
    def tried(seed, error, dropout, **more):
        config = {"name": "n", "seed": seed, "dropout": dropout}
        same = {"recipe": "rotmnist/ptn_b/n", "table": None, "row": None, "config_sha256": str(dropout)}
        return made_up(seed=seed, test_error=error, config=config, **same, **more)

    later = {"started": "2025-11-16T10:00:00+00:00"}
    records = [
        tried(0, 20.0, 0.9),
        tried(0, 1.5, 0.2),
        tried(1, 0, 0.2, status="failed"),
        tried(1, 1.5, 0.2, **later),
    ]
    text = refresh(PAGE.format("own"), records)
    assert "dropout 0.9" in text
    assert "20.00 (n=1)" in text
    assert "1.50 ± 0.00 (n=2)" in text


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("no mark", "mark where tables belong"),
        ("<!-- report: rotmnist -->\nno end", "has no <!-- end of report --> after it"),
        (
            "<!-- report: svhn -->\nProse.\n" + PAGE.format("rotmnist"),
            "report: svhn --> has no",
        ),
        (PAGE.format(""), "say which table"),
        (PAGE.format("brief"), "say which table"),
        (PAGE.format("rotmnits"), "did you mean 'rotmnist'|rotmnits"),
    ],
)
def test_a_page_that_cannot_be_renewed_says_why(page, says):
    with pytest.raises(InputError, match=says):
        refresh(page, [])
