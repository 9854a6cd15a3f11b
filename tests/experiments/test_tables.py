"""Tables agree with the records."""

import math

import pytest

from experiments.published import TABLES
from experiments.recipes import ensembles, find_recipe, form_of, recipe_names
from experiments.tables import build_tables, load_records, missing_runs, to_json
from ptn.errors import InputError


def find(rows, id, form="modern"):
    (row,) = [row for row in rows if (row["id"], row["recipe"]) == (id, form)]
    return row


def report(records, *names):
    return to_json(build_tables(records, names or None))


def result(records, id="rotmnist.ptn_b.plus", form="modern"):
    return build_tables(records, ["rotmnist"])[0].results[id][form]


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
    expected = [(spec.id, form_of(recipe.name)) for recipe in trained for spec in recipe.evaluations if spec.id]
    assert sorted((row["id"], row["recipe"]) for row in rows) == sorted(expected)
    assert {(row["n"], row["mean"], row["std"], row["params"]) for row in rows} == {(0, None, None, None)}
    assert find(rows, "svhn.svhn.ptn_resnet32.with_resnet32")["model"] == "ptn_resnet32+resnet32"


def test_by_default_tables_without_records_are_left_out(make_record):
    assert {row["table"] for row in report([make_record()])} == {"rotmnist"}
    assert {row["table"] for row in report([])} == set(TABLES)


def test_of_two_runs_with_the_same_seed_the_newest_counts(make_record):
    old = make_record(test_error=5.0, started="2025-11-15T09:30:00+00:00")
    new = make_record(test_error=1.0, started="2025-11-15T10:00:00+00:00")
    for records in ([old, new], [new, old]):
        assert (result(records).n, result(records).mean) == (1, 1.0)


def test_failed_runs_are_counted_but_not_averaged(make_record):
    records = [
        make_record(seed=0, test_error=1.0),
        make_record(seed=0, status="failed", started="2025-11-16T10:00:00+00:00"),
        make_record(seed=1, status="failed"),
        make_record(seed=2, test_error=2.0),
    ]
    assert (result(records).n, result(records).mean, result(records).failed) == (2, 1.5, 2)
    assert result(2 * records) == result(records)  # from overlapping files
    only = result([make_record(status="failed")])
    assert (only.n, only.mean, only.failed) == (0, None, 1)


def test_seconds_and_metrics_are_averaged(make_record):
    values = [(0.1, {"a": 1, "b": 2}), (0.3, {"a": 3}), (None, {"a": 5, "c": "x"})]
    records = [
        make_record(seed=seed, seconds_per_epoch=seconds, metrics=metrics)
        for seed, (seconds, metrics) in enumerate(values)
    ]
    assert result(records).seconds_per_epoch == pytest.approx(0.2)
    assert result(records).metrics == {"a": (3, 2), "train_seconds": (12, 0)}


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
    with pytest.raises(InputError, match=r"modelnet40/cylindrical/paper\+ has no class_accuracy"):
        report([make_record(**common)], "modelnet40")


def test_changed_recipes_and_different_training_data_are_warnings(make_record):
    records = [make_record(seed=0), make_record(seed=1, config_sha256="another")]
    (table,) = build_tables(records, ["rotmnist"])
    assert result(records).n == 1
    assert "1 records are left out" in table.warnings[0]
    other = make_record(seed=1, data_sha256="other")
    (warning,) = build_tables([records[0], other], ["rotmnist"])[0].warnings
    assert "the training data of the runs differ" in warning


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
    missing = missing_runs(["rotmnist"], records, [modern, paper, svhn], range(3))
    assert missing == [(modern, 1), (modern, 2), (paper, 1), (paper, 2)]
    assert missing_runs(["ablation"], records, [modern, paper, svhn], [0]) == []
    outdated = [make_record(spec.id, config_sha256="another") for spec in modern.evaluations]
    assert missing_runs(["rotmnist"], outdated, [modern], [0]) == [(modern, 0)]


def test_the_records_of_the_repository_fill_every_row():
    records = load_records()
    assert {(row["id"], row["recipe"]) for row in report(records) if row["n"] == 0} == set()
    assert not any(table.warnings for table in build_tables(records))


def test_every_row_is_either_quoted_or_trained_by_one_recipe_per_form():
    trained = [
        (spec.id, form_of(recipe.name))
        for recipe in (*map(find_recipe, recipe_names()), *ensembles())
        for spec in recipe.evaluations
        if spec.id is not None
    ]
    assert len(trained) == len(set(trained))
    rows = [row for table in TABLES.values() for row in table.rows.values()]
    assert {id for id, _ in trained} == {row.id for row in rows if row.source is None}


def test_rows_belong_to_their_table_and_baselines_to_the_same_data_set():
    for name, table in TABLES.items():
        for id, row in table.rows.items():
            assert id.split(".")[0] == name
            assert row.dataset in table.datasets
            assert (row.baseline is not None) == (name == "svhn" and row.title.startswith("PTN"))
            assert row.baseline is None or table.rows[row.baseline].dataset == row.dataset
