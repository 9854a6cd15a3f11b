"""Tables agree with the records."""

import math

import pytest

from experiments.published import table_names
from experiments.recipes import ensembles, find_recipe, form_of, recipe_names
from experiments.tables import build_tables, load_records, missing_runs, to_json, unknown_ids
from ptn import InputError
from ptn.training.records import append_records


def find(rows, id, form="modern"):
    (row,) = [row for row in rows if (row["id"], row["recipe"]) == (id, form)]
    return row


def report(records, *names):
    return to_json(build_tables(records, names or None))


def result(records, id="rotmnist.ptn_b.plus", form="modern"):
    (table,) = build_tables(records, ["rotmnist"])
    return next(row for row in table.rows if row.published.id == id).results[form]


def test_mean_and_sample_deviation_over_seeds(make_record):
    records = [make_record(seed=seed, test_error=error) for seed, error in enumerate((0.8, 0.9, 1.3))]
    assert find(report(records, "rotmnist"), "rotmnist.ptn_b.plus") == {
        "id": "rotmnist.ptn_b.plus",
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
    assert (result(records[:1]).n, result(records[:1]).std) == (1, None)


def test_without_records_every_row_of_ours_is_missing():
    rows = report([])
    trained = [*map(find_recipe, recipe_names()), *ensembles()]
    expected = [(spec.id, form_of(recipe.name)) for recipe in trained for spec in recipe.evaluations]
    assert sorted((row["id"], row["recipe"]) for row in rows) == sorted(expected)
    assert {(row["n"], row["mean"], row["std"], row["params"]) for row in rows} == {(0, None, None, None)}
    assert find(rows, "rotmnist.ptn_b.plusplus", "paper")["paper"] == 0.95
    assert find(rows, "svhn.svhn.ptn_resnet32.with_resnet32")["model"] == "ptn_resnet32+resnet32"


def test_a_record_fills_its_own_row_and_form_only(make_record):
    records = [
        make_record(recipe="rotmnist/ptn_b/paper+", test_error=1.2),
        make_record(test_error=0.9),
        make_record("svhn.rotsvhn.resnet32", recipe="rotsvhn/resnet32/modern", test_error=8.0),
        make_record(None, recipe="rotmnist/ptn_b/modern+/dropout=0.1", test_error=5.0),
    ]
    filled = {(row["id"], row["dataset"], row["recipe"]): row["mean"] for row in report(records) if row["n"]}
    assert filled == {
        ("rotmnist.ptn_b.plus", "rotmnist", "paper"): 1.2,
        ("rotmnist.ptn_b.plus", "rotmnist", "modern"): 0.9,
        ("svhn.rotsvhn.resnet32", "rotsvhn", "modern"): 8.0,
    }


def test_of_two_runs_with_the_same_seed_the_newest_counts(make_record):
    old = make_record(test_error=5.0, started="2025-11-15T09:30:00+00:00")
    new = make_record(test_error=1.0, started="2025-11-15T10:00:00+00:00")
    for records in ([old, new], [new, old]):
        assert (result(records).n, result(records).mean) == (1, 1.0)


def test_a_record_in_two_files_counts_once(make_record):
    records = [make_record(seed=0), make_record(seed=1, status="failed")]
    counts = result(records + records)
    assert (counts.n, counts.failed) == (1, 1)


def test_failed_runs_are_counted_but_not_averaged(make_record):
    later = "2025-11-16T10:00:00+00:00"
    records = [
        make_record(seed=0, test_error=1.0),
        make_record(seed=0, status="failed", started=later),
        make_record(seed=1, status="failed"),
        make_record(seed=2, test_error=2.0),
    ]
    assert (result(records).n, result(records).mean, result(records).failed) == (2, 1.5, 2)
    only = result([make_record(status="failed")])
    assert (only.n, only.mean, only.failed) == (0, None, 1)


def test_seconds_and_metrics_are_averaged(make_record):
    records = [
        make_record(seed=seed, seconds_per_epoch=seconds, metrics=metrics)
        for seed, (seconds, metrics) in enumerate(
            [(0.1, {"a": 1, "b": 2}), (0.3, {"a": 3}), (None, {"a": 5, "c": "x"})]
        )
    ]
    assert result(records).seconds_per_epoch == pytest.approx(0.2)
    assert result(records).metrics == {"a": 3}


def test_modelnet40_reports_accuracy_over_instances_and_classes(make_record):
    common = {"id": "modelnet40.cylindrical", "recipe": "modelnet40/cylindrical/paper+"}
    records = [
        make_record(seed=seed, test_error=100 - instance, metrics={"class_accuracy": per_class}, **common)
        for seed, (instance, per_class) in enumerate(((90.0, 86.0), (91.0, 88.0)))
    ]
    rows = report(records, "modelnet40")
    row = find(rows, "modelnet40.cylindrical", "paper")
    assert (row["mean"], row["class_mean"], row["paper"]) == (90.5, 87.0, 89.9)
    assert row["std"] == pytest.approx(math.sqrt(0.5))
    assert find(rows, "modelnet40.ccnn_3d")["class_mean"] is None
    with pytest.raises(InputError, match="class_accuracy"):
        report([make_record(metrics={}, **common)])


def test_records_of_changed_recipes_are_left_out_with_a_warning(make_record):
    records = [make_record(seed=0), make_record(seed=1, config_sha256="another")]
    (table,) = build_tables(records, ["rotmnist"])
    assert result(records).n == 1
    (warning,) = table.warnings
    assert "1 records are left out" in warning


def test_different_training_data_is_a_warning(make_record):
    same, other = make_record(seed=0), make_record(seed=1, data_sha256="other")
    assert build_tables([same], ["rotmnist"])[0].warnings == ()
    (warning,) = build_tables([same, other], ["rotmnist"])[0].warnings
    assert "the training data of the runs differ" in warning


def test_ids_that_no_table_has_are_listed(make_record):
    assert unknown_ids([make_record(), make_record(None), make_record("rotmnist.ptn_xl")]) == ["rotmnist.ptn_xl"]


def test_an_unknown_table_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'rotmnist'"):
        build_tables([], ["rotminst"])


def test_missing_runs_are_those_without_a_finished_record(make_record):
    modern, paper = map(find_recipe, ("rotmnist/ptn_b/modern+", "rotmnist/ptn_b/paper+"))
    svhn = find_recipe("svhn/resnet32/paper")
    complete = [make_record(spec.id, seed=0) for spec in modern.evaluations]
    records = [
        *complete,
        make_record(seed=1),  # without its evaluations over rotations and origins
        *(make_record(spec.id, seed=2, status="failed") for spec in modern.evaluations),
        *(make_record(spec.id, recipe=paper.name) for spec in paper.evaluations),
    ]
    missing = missing_runs("rotmnist", records, [modern, paper, svhn], range(3))
    assert missing == [(modern, 1), (modern, 2), (paper, 1), (paper, 2)]
    assert missing_runs("ablation", records, [modern, paper, svhn], [0]) == []
    outdated = [make_record(spec.id, config_sha256="another") for spec in modern.evaluations]
    assert missing_runs("rotmnist", outdated, [modern], [0]) == [(modern, 0)]


def test_records_are_read_from_a_folder_or_a_file(make_record, tmp_path):
    append_records(tmp_path / "a.jsonl", [make_record(seed=0)])
    append_records(tmp_path / "b.jsonl", [make_record(seed=1)])
    assert [record.seed for record in load_records(tmp_path)] == [0, 1]
    assert [record.seed for record in load_records(tmp_path / "b.jsonl")] == [1]
    assert load_records(tmp_path / "none") == []


def test_the_records_of_the_repository_fill_every_row():
    records = load_records()
    assert unknown_ids(records) == []
    empty = {(row["id"], row["recipe"]) for row in report(records) if row["n"] == 0}
    assert empty == set()
    assert all(table.warnings == () for table in build_tables(records))
    assert {row["table"] for row in report(records)} == set(table_names())
