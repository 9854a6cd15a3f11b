"""Tables as Markdown, and inside pages."""

from pathlib import Path

import pytest

from experiments.markdown import refresh, render
from experiments.tables import build_tables, load_records
from ptn import InputError

ROOT = Path(__file__).parents[2]
PAGE = "Before.\n<!-- report: {} -->\nold table\n<!-- end of report -->\nAfter.\n"
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "\n<!-- report: " in path.read_text(encoding="utf-8")
]


def lines_of(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]


def cells(text, *names):
    """The cells of the row that begins with `names`, by heading."""
    headings, _, *rows = lines_of(text)
    (row,) = [row for row in rows if tuple(row[: len(names)]) == names]
    return dict(zip(headings, row, strict=True))


def table(records, name="rotmnist"):
    return render(build_tables(records, [name]))


def test_ours_beside_the_published(make_record):
    records = [make_record(seed=seed, test_error=error) for seed, error in enumerate((0.8, 0.9, 1.3))]
    records.append(make_record(recipe="rotmnist/ptn_b/paper+", test_error=1.2, seconds_per_epoch=2.5))
    text = table(records)
    assert cells(text, "PTN-B+") == {
        "row": "PTN-B+",
        "published": "1.14 ± 0.08",
        "ours, paper recipe": "1.200 (n=1)",
        "ours, modern recipe": "1.000 ± 0.265 (n=3)",
        "params publ.": "129,000",
        "params ours": "131,959",
        "s/epoch publ.": "4.38",
        "s/epoch ours": "2.500 / 0.060",
    }
    quoted = cells(text, "E(2)-steerable CNN (quoted)")
    assert (quoted["published"], quoted["ours, modern recipe"]) == ("0.682 ± 0.022", "")
    assert "  - E(2)-steerable CNN: Weiler & Cesa" in text


def test_missing_and_failed_runs(make_record):
    small = {"id": "rotmnist.ptn_s", "recipe": "rotmnist/ptn_s/modern"}
    text = table([make_record(), make_record(seed=1, status="failed"), make_record(status="failed", **small)])
    assert cells(text, "PTN-B+")["ours, modern recipe"] == "1.000 (n=1, 1 failed)"
    assert cells(text, "PTN-B+")["ours, paper recipe"] == "missing"
    assert cells(text, "PTN-S")["ours, modern recipe"] == "missing (1 failed)"


def test_a_note_says_which_rotated_mnist(make_record):
    assert "regenerated from MNIST" in table([make_record()])
    assert "regenerated from MNIST" not in table([make_record(metrics={"source": "original"})])


def test_ratios_are_to_the_baseline_with_the_same_recipe(make_record):
    def record(model, form, error, variant=""):
        id = f"svhn.rotsvhn.{model}{variant}"
        return make_record(id, recipe=f"rotsvhn/{model}/{form}{variant.replace('.', '/')}", test_error=error)

    records = [
        record("resnet32", "paper", 8.0),
        record("ptn_resnet32", "paper", 6.0),
        record("resnet32", "modern", 5.0),
        record("ptn_resnet32", "modern", 3.0),
        record("ptn_resnet32", "paper", 3.0, ".scaled"),
    ]
    text = table(records, "svhn")
    ratios = {
        (row["data set"], row["row"]): (row["ratio publ."], row["ratio ours"])
        for row in (cells(text, *line[:2]) for line in lines_of(text)[2:])
    }
    assert ratios["ROTSVHN", "PTN-ResNet32"] == ("0.80", "0.75 / 0.60")
    assert ratios["ROTSVHN", "ResNet32"] == ("", "")
    assert ratios["SVHN", "PTN-ResNet32"] == ("1.25", "")
    assert ratios["ROTSVHN", "PTN-ResNet32, scale 0.6–1"] == ("", "")  # its baseline has no record


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tables_in_pages_are_those_of_the_records(page):
    """`make tables` updates them."""
    text = page.read_text(encoding="utf-8")
    assert refresh(text, load_records()) == text


def test_a_table_replaces_what_is_between_the_markers(make_record):
    records = [make_record(seed=seed, test_error=1.0 + seed / 10) for seed in range(3)]
    full, brief = (refresh(PAGE.format(what), records) for what in ("rotmnist", "brief rotmnist"))
    for text in (full, brief):
        assert text.startswith("Before.\n<!-- report: ")
        assert text.endswith("<!-- end of report -->\nAfter.\n")
        assert "1.100 ± 0.100 (n=3)" in text
        assert "old table" not in text
        assert refresh(text, records) == text
    assert ("## Table 1" in full, "params ours" in full) == (True, True)
    assert ("## Table 1" in brief, "params ours" in brief) == (False, False)


def test_a_table_of_runs_on_folders(make_record):
    def run(model, seed, error, **changes):
        options = {"dataset": "folder", "model": model, "seed": seed, "test_error": error, **changes}
        return make_record(None, recipe=f"folder/coins/{model}", **options)

    runs = [run("ptn_b", 0, 1.0), run("ptn_b", 1, 3.0, epochs=150), run("ccnn_b", 0, 8.0)]
    text = refresh(PAGE.format("folders"), [make_record(), *runs, run("ptn_b", 2, None, status="failed")])
    assert [line[:2] for line in lines_of(text)[2:]] == [["`coins`", "`ccnn_b`"], ["`coins`", "`ptn_b`"]]
    found = [cells(text, "`coins`", "`ptn_b`")[key] for key in ("test error in %", "worst seed", "epochs")]
    assert found == ["2.00 ± 1.41 (n=2)", "3.00", "150 to 200"]


def test_rows_of_several_tables_make_one_table(make_record):
    text = refresh(PAGE.format("rows sim2mnist.ptn_b rotmnist.ptn_b.plus rotmnist.hnet"), [make_record()])
    assert [line[:3] for line in lines_of(text)[2:]] == [
        ["SIM2MNIST", "PTN-B+", "5.03 ± 0.11"],
        ["rotated MNIST", "PTN-B+", "1.14 ± 0.08"],
        ["rotated MNIST", "HNet (quoted)", "1.69"],
    ]
    assert cells(text, "rotated MNIST", "PTN-B+")["ours, modern recipe"] == "1.00 (n=1)"


@pytest.mark.parametrize(
    ("page", "word"),
    [
        (PAGE.format("rows rotmnist.ptn_b.puls"), "did you mean 'rotmnist.ptn_b.plus'"),
        (PAGE.format("rotmnits"), "did you mean 'rotmnist'"),
        (PAGE.format(""), "marker"),
        ("no marker", "marker"),
        ("<!-- report: rotmnist -->\nno end", "end of report"),
        ("<!-- report: svhn -->\nText.\n" + PAGE.format("rotmnist"), "end of report"),
    ],
)
def test_an_invalid_page_is_an_error(page, word):
    with pytest.raises(InputError, match=word):
        refresh(page, [])
