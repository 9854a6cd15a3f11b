"""Tables say what the records say, no more and no less."""

import math
from types import SimpleNamespace

import pytest

from ptn.errors import InputError
from ptn.reporting.published import PUBLISHED, TABLES
from ptn.reporting.tables import build_tables, missing_runs, to_json


def find(rows, row, form="modern", dataset=None):
    found = [
        entry
        for entry in rows
        if (entry["row"], entry["recipe"]) == (row, form) and dataset in (None, entry["dataset"])
    ]
    assert len(found) == 1
    return found[0]


def report(records, *names):
    return to_json(build_tables(records, names or tuple(TABLES)))


def result(records, row="PTN-B+", form="modern", table="rotmnist"):
    (built,) = build_tables(records, [table])
    return next(entry for entry in built.rows if entry.published.row == row).results[form]


def test_mean_and_sample_deviation_over_seeds(made_up):
    records = [made_up(seed=seed, test_error=error) for seed, error in enumerate((0.8, 0.9, 1.3))]
    entry = find(report(records, "rotmnist"), "PTN-B+")
    assert entry == {
        "table": "rotmnist",
        "row": "PTN-B+",
        "dataset": "rotmnist",
        "model": "ptn_b",
        "recipe": "modern",
        "n": 3,
        "mean": pytest.approx(1.0),
        "std": pytest.approx(math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2)),  # over n - 1
        "paper": 1.14,
        "params": 131_959,
    }


def test_one_run_has_no_deviation(made_up):
    entry = find(report([made_up(test_error=0.9)], "rotmnist"), "PTN-B+")
    assert (entry["n"], entry["mean"], entry["std"]) == (1, 0.9, None)


def test_without_records_every_row_of_ours_is_missing():
    rows = report([])
    expected = [
        (row.table, row.row, row.dataset, form) for row in PUBLISHED if not row.quoted for form in row.forms
    ]
    assert sorted((r["table"], r["row"], r["dataset"], r["recipe"]) for r in rows) == sorted(expected)
    assert {(row["n"], row["mean"], row["std"], row["params"]) for row in rows} == {(0, None, None, None)}
    assert find([row for row in rows if row["table"] == "rotmnist"], "PTN-B++", "paper")["paper"] == 0.95


def test_a_run_fills_its_own_row_form_and_data_set_only(made_up):
    records = [
        made_up(test_error=1.2, form="paper"),
        made_up(test_error=0.9, form="modern"),
        made_up(test_error=8.0, table="svhn", dataset="rotsvhn", row="ResNet32", model="resnet32"),
    ]
    rows = report(records)
    filled = {(row["table"], row["dataset"], row["row"], row["recipe"]): row["mean"] for row in rows if row["n"]}
    assert filled == {
        ("rotmnist", "rotmnist", "PTN-B+", "paper"): 1.2,
        ("rotmnist", "rotmnist", "PTN-B+", "modern"): 0.9,
        ("svhn", "rotsvhn", "ResNet32", "modern"): 8.0,
    }
    svhn = [row for row in rows if row["table"] == "svhn"]
    assert find(svhn, "ResNet32", dataset="rotsvhn")["paper"] == 9.83


def test_of_two_runs_with_the_same_seed_the_newest_counts(made_up):
    # half past ten in Berlin is half past nine in UTC: earlier, though the text sorts later
    old = made_up(seed=0, test_error=5.0, started="2025-11-15T10:30:00+01:00")
    new = made_up(seed=0, test_error=1.0, started="2025-11-15T10:00:00+00:00")
    for records in ([old, new], [new, old]):
        assert (result(records).n, result(records).mean) == (1, 1.0)


def test_a_record_that_two_files_hold_counts_once(made_up):
    one_file, another = ([made_up(seed=0), made_up(seed=1, status="failed")] for _ in range(2))
    counts = result(one_file + another)
    assert (counts.n, counts.failed) == (1, 1)


def test_failed_runs_are_counted_but_not_averaged(made_up):
    records = [made_up(seed=0, test_error=1.0), made_up(seed=1, status="failed"), made_up(seed=2, test_error=2.0)]
    counts = result(records)
    assert (counts.n, counts.mean, counts.failed) == (2, 1.5, 1)
    only = result([made_up(status="failed")])
    assert (only.n, only.mean, only.failed) == (0, None, 1)


def test_a_later_failure_does_not_hide_an_earlier_result(made_up):
    failed = made_up(seed=0, status="failed", started="2025-11-16T10:00:00+00:00")
    counts = result([made_up(seed=0, test_error=1.0), failed])
    assert (counts.n, counts.mean, counts.failed) == (1, 1.0, 1)


def test_seconds_per_epoch_are_averaged_over_those_that_have_them(made_up):
    records = [made_up(seed=seed, seconds_per_epoch=value) for seed, value in enumerate((0.1, 0.3, None))]
    assert result(records).seconds_per_epoch == pytest.approx(0.2)
    assert result(records).n == 3


def test_modelnet_reports_instance_and_class_accuracy(made_up):
    common = {"table": "modelnet40", "dataset": "modelnet40", "row": "Cylindrical Transformer", "form": "paper"}
    records = [
        made_up(seed=seed, test_error=100 - instance, metrics={"class_accuracy": per_class}, **common)
        for seed, (instance, per_class) in enumerate(((90.0, 86.0), (91.0, 88.0)))
    ]
    entry = find(report(records, "modelnet40"), "Cylindrical Transformer", "paper")
    assert (entry["mean"], entry["class_mean"], entry["paper"]) == (90.5, 87.0, 89.9)
    assert entry["std"] == pytest.approx(math.sqrt(0.5))
    assert find(report(records, "modelnet40"), "Fixed axis", "modern")["class_mean"] is None
    with pytest.raises(InputError, match="'class_accuracy' in %"):
        report([made_up(metrics={}, **common)])


def test_a_row_of_our_own_comes_after_the_papers_and_before_the_quoted(made_up):
    (table,) = build_tables([made_up(row="PTN-XXL")], ["rotmnist"])
    names = [row.published.row for row in table.rows]
    assert names.index("STN-B+") < names.index("PTN-XXL") < names.index("HNet")
    assert find(to_json([table]), "PTN-XXL")["paper"] is None


def test_runs_of_ones_own_are_not_in_the_tables(made_up):
    records = [made_up(form="own"), made_up(table=None, row=None)]
    assert all(row["n"] == 0 for row in report(records))


def test_averaging_what_differs_in_more_than_the_seed_is_said(made_up):
    (table,) = build_tables([made_up(seed=0), made_up(seed=1)], ["rotmnist"])
    assert table.warnings == ()
    mixed = [made_up(seed=0), made_up(seed=1, config_sha256="other"), made_up(seed=2, data_sha256="other")]
    (table,) = build_tables(mixed, ["rotmnist"])
    assert [warning.partition(": ")[2] for warning in table.warnings] == [
        "these runs were trained with different settings.",
        "these runs were trained on different data.",
    ]


def test_an_unknown_table_names_the_nearest():
    with pytest.raises(InputError, match="unknown table 'rotminst'; did you mean 'rotmnist'"):
        build_tables([], ["rotminst"])


def recipe(name, *rows):
    return SimpleNamespace(name=name, rows=[SimpleNamespace(table=table, row=row) for table, row in rows])


def test_the_missing_runs_are_those_without_a_finished_record(made_up):
    modern = recipe("rotmnist/ptn_b/modern+", ("rotmnist", "PTN-B+"), ("rotmnist", "PTN-B++"), ("ablation", "all"))
    paper = recipe("rotmnist/ptn_b/paper+", ("rotmnist", "PTN-B+"))
    svhn = recipe("svhn/resnet32/paper", ("svhn", "ResNet32"))
    records = [
        made_up(seed=0),
        made_up(seed=0, row="PTN-B++", tta=8),
        made_up(seed=1),  # stopped before it was averaged over rotations
        made_up(seed=2, status="failed"),
        made_up(seed=2, row="PTN-B++", tta=8, status="failed"),
        made_up(seed=0, recipe=paper.name, form="paper"),
    ]
    missing = missing_runs("rotmnist", records, [modern, paper, svhn], range(3))
    assert missing == [(modern, 1), (modern, 2), (paper, 1), (paper, 2)]
    assert missing_runs("ablation", records, [modern, paper, svhn], [0]) == [(modern, 0)]
    assert missing_runs("rotmnist", records, [modern], [0]) == []
    with pytest.raises(InputError, match="unknown table"):
        missing_runs("rot", records, [modern], [0])
