"""`python -m experiments report`."""

import json

import pytest

from experiments.published import table_names
from ptn.training.records import append_records

KEYS = ["id", "table", "row", "dataset", "model", "recipe", "n", "mean", "std", "paper", "params"]


@pytest.fixture
def results(make_record, tmp_path):
    """A folder with two seeds of PTN-B on SIM2MNIST in two files."""
    for seed, error in enumerate((3.0, 4.0)):
        record = make_record("sim2mnist.ptn_b", recipe="sim2mnist/ptn_b/modern", seed=seed, test_error=error)
        append_records(tmp_path / "results" / f"{seed}.jsonl", [record])
    return tmp_path / "results"


def test_every_file_of_the_folder_counts(experiments, results):
    outcome = experiments("report", "sim2mnist", "--results", results)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("## Table 2: SIM2MNIST\n")
    assert "3.50 ± 0.71 (n=2)" in outcome.out
    assert "3.00 (n=1)" in experiments("report", "sim2mnist", "--results", results / "0.jsonl").out


def test_the_keys_of_json(experiments, results):
    rows = json.loads(experiments("report", "--json", "--results", results).out)
    assert {row["table"] for row in rows} == set(table_names())
    for row in rows:
        assert list(row) == KEYS + ["class_mean"] * (row["table"] == "modelnet40")
    (row,) = [row for row in rows if row["n"]]
    assert (row["id"], row["recipe"], row["mean"], row["paper"]) == ("sim2mnist.ptn_b", "modern", 3.5, 5.03)


def test_without_records_every_table_is_empty(experiments, tmp_path):
    outcome = experiments("report", "--results", tmp_path / "none")
    assert outcome.code == 0
    assert "no records" in outcome.err
    assert outcome.out.count("## ") == outcome.out.count("(no finished runs yet)") == len(table_names())


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_to_a_file(experiments, results, tmp_path, options):
    target = tmp_path / "docs" / "report.txt"
    printed = experiments("report", "sim2mnist", "--results", results, *options).out
    outcome = experiments("report", "sim2mnist", "--results", results, "-o", target, *options)
    assert (outcome.code, outcome.out) == (0, f"{target}\n")
    assert target.read_text(encoding="utf-8") == printed


def test_unknown_ids_and_other_runs(experiments, results, make_record):
    append_records(results / "2.jsonl", [make_record("sim2mnist.ptn_xl"), make_record(None, recipe="a/b/c")])
    outcome = experiments("report", "sim2mnist", "--results", results)
    assert "(n=2)" in outcome.out
    assert "sim2mnist.ptn_xl" in outcome.err
    assert "a/b/c" in experiments("report", "other", "--results", results).out
    (row,) = json.loads(experiments("report", "other", "--json", "--results", results).out)
    assert (row["recipe"], row["n"], row["failed"], row["split"]) == ("a/b/c", 1, 0, "test")


def test_pages_are_updated_in_place(experiments, results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Ours:\n<!-- report: brief sim2mnist -->\n<!-- end of report -->\n")
    outcome = experiments("report", "--page", page, "--results", results)
    assert (outcome.code, outcome.out) == (0, f"{page}\n")
    assert "3.50 ± 0.71 (n=2)" in page.read_text()


def test_no_page_is_changed_if_one_is_invalid(experiments, results, tmp_path):
    valid, invalid = tmp_path / "valid.md", tmp_path / "invalid.md"
    valid.write_text("<!-- report: brief sim2mnist -->\nkept\n<!-- end of report -->\n")
    invalid.write_text("<!-- report: brief sim2mnist -->\nno end\n")
    outcome = experiments("report", "--page", valid, "--page", invalid, "--results", results)
    assert outcome.code == 2
    assert "invalid.md" in outcome.err
    assert experiments("report", "--page", valid, "--results", tmp_path / "none").code == 2
    assert "kept" in valid.read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["rotminst"], "did you mean 'rotmnist'"),
        (["rotmnist", "other"], "alone"),
        (["rotmnist", "--page", "page.md"], "--page"),
        (["--page", "missing.md"], "cannot read missing.md"),
        (["--results", "broken.jsonl"], "broken.jsonl, line 1"),
    ],
)
def test_invalid_arguments_are_errors_of_one_line(experiments, tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text("broken\n")
    outcome = experiments("report", *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert word in outcome.err
