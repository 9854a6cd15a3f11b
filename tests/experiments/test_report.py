"""`ptn report`."""

import json

import pytest

from ptn.reporting.published import TABLES
from ptn.training.records import Record, append_records

RECORDS = [
    Record(
        run=f"run-{seed}",
        recipe="sim2mnist/ptn_b/modern",
        form="modern",
        table="sim2mnist",
        row="PTN-B+",
        dataset="sim2mnist",
        model="ptn_b",
        params=136_663,
        seed=seed,
        test_error=error,
        metrics={},
        tta=1,
        epochs=200,
        train_seconds=10.0,
        seconds_per_epoch=0.05,
        selection="final",
        data_sha256="d",
        config={},
        config_sha256="c",
        git="unknown",
        torch="2.13.0",
        device="NVIDIA H200",
        precision="fp32",
        deterministic=True,
        started="2025-11-15T10:00:00+00:00",
        status="done",
    )
    for seed, error in enumerate((3.0, 4.0))
]


@pytest.fixture
def results(tmp_path):
    append_records(tmp_path / "results" / "one.jsonl", RECORDS[:1])
    append_records(tmp_path / "results" / "two.jsonl", RECORDS[1:])
    return tmp_path / "results"


def test_every_file_of_the_folder_counts(ptn_cli, results):
    outcome = ptn_cli("report", "sim2mnist", "--results", results)
    assert outcome.code == 0
    assert outcome.out.startswith("## Table 2: SIM2MNIST\n")
    assert "3.50 ± 0.71 (n=2)" in outcome.out
    assert outcome.err == ""


def test_json_is_what_machines_are_promised(ptn_cli, results):
    rows = json.loads(ptn_cli("report", "--json", "--results", results).out)
    assert {row["table"] for row in rows} == set(TABLES)
    keys = ["table", "row", "dataset", "model", "recipe", "n", "mean", "std", "paper", "params"]
    for row in rows:
        assert list(row) == keys + ["class_mean"] * (row["table"] == "modelnet40")
    (found,) = [row for row in rows if row["n"]]
    assert (found["row"], found["recipe"], found["mean"], found["paper"]) == ("PTN-B+", "modern", 3.5, 5.03)


def test_a_folder_that_is_not_there_means_that_all_is_missing(ptn_cli, tmp_path):
    outcome = ptn_cli("report", "--results", tmp_path / "none")
    assert outcome.code == 0
    assert outcome.err == f"ptn: no records at {tmp_path / 'none'} yet: " + (
        "`ptn train --results` and `ptn reproduce` write them; "
        "the repository has its own in results/ (see --results)\n"
    )
    assert outcome.out.count("## ") == outcome.out.count("(no finished runs yet)") == len(TABLES)
    assert "missing" in outcome.out


def test_the_results_of_the_current_folder_are_the_default(ptn_cli, results, monkeypatch):
    monkeypatch.chdir(results.parent)
    assert "(n=2)" in ptn_cli("report", "sim2mnist").out


def test_one_file_can_be_reported_too(ptn_cli, results):
    assert "3.00 (n=1)" in ptn_cli("report", "sim2mnist", "--results", results / "one.jsonl").out


def test_an_unknown_table_is_one_line_with_the_nearest(ptn_cli):
    outcome = ptn_cli("report", "rotminst")
    assert outcome.code == 2
    assert outcome.err.startswith("ptn: unknown table 'rotminst'; did you mean 'rotmnist'?")
    assert outcome.err.endswith(", own\n")


def test_own_runs_are_asked_for_by_themselves(ptn_cli):
    outcome = ptn_cli("report", "rotmnist", "own")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "ptn: own is no table of the paper: ask for it by itself\n"
    assert outcome.err.count("\n") == 1


def test_a_broken_file_is_one_line(ptn_cli, results):
    (results / "two.jsonl").write_text("broken\n")
    outcome = ptn_cli("report", "--results", results)
    assert outcome.code == 2
    assert "two.jsonl, line 1: not a record" in outcome.err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_goes_to_a_file(ptn_cli, results, tmp_path, options):
    target = tmp_path / "docs" / "report.txt"
    printed = ptn_cli("report", "sim2mnist", "--results", results, *options).out
    outcome = ptn_cli("report", "sim2mnist", "--results", results, "-o", target, *options)
    assert (outcome.code, outcome.out) == (0, f"{target}\n")
    assert target.read_text(encoding="utf-8") == printed


def test_records_of_other_tables_are_mentioned(ptn_cli, results):
    path = results / "two.jsonl"
    path.write_text(path.read_text().replace('"table":"sim2mnist"', '"table":"table 5"'))
    outcome = ptn_cli("report", "sim2mnist", "--results", results)
    assert "(n=1)" in outcome.out
    assert outcome.err == "ptn: not shown: records of other tables (table 5)\n"


def test_runs_that_are_no_row_of_a_table_are_summarised(ptn_cli, results):
    path = results / "two.jsonl"
    path.write_text(path.read_text().replace('"table":"sim2mnist","row":"PTN-B+"', '"table":null,"row":null'))
    outcome = ptn_cli("report", "own", "--results", results)
    assert (outcome.code, outcome.err) == (0, "")
    assert "| tested on |" in outcome.out
    (row,) = json.loads(ptn_cli("report", "own", "--json", "--results", results).out)
    assert (row["n"], row["failed"], row["split"]) == (1, 0, "test")


def test_pages_are_renewed_in_place(ptn_cli, tmp_path):
    append_records(tmp_path / "r.jsonl", RECORDS)
    page = tmp_path / "page.md"
    page.write_text("Ours:\n<!-- report: brief sim2mnist -->\n<!-- end of report -->\n")
    outcome = ptn_cli("report", "--page", page, "--results", tmp_path / "r.jsonl")
    assert outcome.code == 0, outcome.err
    assert "3.50 ± 0.71 (n=2)" in page.read_text()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["rotmnist", "--page", "page.md"], "give it alone"),
        (["--page", "nowhere.md"], "cannot read nowhere.md"),
        (["--page", "plain.md"], "plain.md: mark where tables belong"),
    ],
)
def test_a_page_that_cannot_be_renewed_stays_as_it_was(ptn_cli, tmp_path, monkeypatch, more, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.md").write_text("no table")
    append_records(tmp_path / "results" / "r.jsonl", RECORDS)
    outcome = ptn_cli("report", *more)
    assert outcome.code == 2
    assert says in outcome.err
    assert (tmp_path / "plain.md").read_text() == "no table"


def test_without_records_no_page_loses_its_tables(ptn_cli, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- report: brief sim2mnist -->\nkept\n<!-- end of report -->\n")
    outcome = ptn_cli("report", "--page", page, "--results", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "no records at" in outcome.err
    assert "kept" in page.read_text()


def test_if_one_page_cannot_be_renewed_none_is(ptn_cli, tmp_path):
    append_records(tmp_path / "r.jsonl", RECORDS)
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("<!-- report: brief sim2mnist -->\nkept\n<!-- end of report -->\n")
    bad.write_text("<!-- report: brief sim2mnist -->\nno end\n")
    assert ptn_cli("report", "--page", good, "--page", bad, "--results", tmp_path / "r.jsonl").code == 2
    assert "kept" in good.read_text()
