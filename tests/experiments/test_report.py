"""`python -m experiments report`."""

import json

import pytest

from experiments.published import TABLES
from ptn.training.records import append_records

KEYS = ["id", "table", "row", "dataset", "model", "recipe", "n", "mean", "std", "paper", "params"]


@pytest.fixture
def results(make_record, tmp_path):
    """A folder with two seeds of PTN-B on SIM2MNIST in two files."""
    for seed, error in enumerate((3.0, 4.0)):
        record = make_record("sim2mnist.ptn_b", recipe="sim2mnist/ptn_b/modern", seed=seed, test_error=error)
        append_records(tmp_path / "results" / f"{seed}.jsonl", [record])
    return tmp_path / "results"


def test_every_file_of_the_folder_counts(experiments, results, make_record):
    outcome = experiments("report", "sim2mnist", "--results", results)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("## Table 2: SIM2MNIST\n")
    assert "3.50 ± 0.71 (n=2)" in outcome.out
    assert "3.00 (n=1)" in experiments("report", "sim2mnist", "--results", results / "0.jsonl").out
    append_records(results / "other.jsonl", [make_record("sim2mnist.renamed")])
    outcome = experiments("report", "sim2mnist", "--results", results)
    assert (outcome.code, outcome.err) == (0, "ptn: records of unknown rows are left out: sim2mnist.renamed\n")


def test_the_keys_of_json(experiments, results):
    rows = json.loads(experiments("report", *TABLES, "--json", "--results", results).out)
    assert {row["table"] for row in rows} == set(TABLES)
    for row in rows:
        assert list(row) == KEYS + ["class_mean"] * (row["table"] == "modelnet40")
    (row,) = [row for row in rows if row["n"]]
    assert (row["id"], row["recipe"], row["mean"], row["paper"]) == ("sim2mnist.ptn_b", "modern", 3.5, 5.03)


def test_pages_are_updated_in_place_all_or_none(experiments, results, tmp_path):
    valid, invalid = tmp_path / "valid.md", tmp_path / "invalid.md"
    valid.write_text("<!-- report: brief sim2mnist -->\nkept\n<!-- end of report -->\n")
    invalid.write_text("<!-- report: brief sim2mnist -->\nno end\n")
    outcome = experiments("report", "--page", valid, "--page", invalid, "--results", results)
    assert (outcome.code, "invalid.md" in outcome.err) == (2, True)
    assert experiments("report", "--page", valid, "--results", tmp_path / "none").code == 2
    assert "kept" in valid.read_text()
    outcome = experiments("report", "--page", valid, "--results", results)
    assert (outcome.code, outcome.out) == (0, f"{valid}\n")
    assert "3.50 ± 0.71 (n=2)" in valid.read_text()
