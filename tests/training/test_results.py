"""What a finished run leaves: a record for each row, measured as the row says."""

from dataclasses import replace

import pytest
import torch

from ptn.evaluation import evaluate
from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.recipe import Row
from ptn.training.records import git_commit
from ptn.training.reporters import summarise
from ptn.training.results import conclude_run, measure_rows


def test_one_training_fills_rows_averaged_over_rotations_and_origins(recipe, digits):
    rows = (
        Row("rotmnist", "alone"),
        Row("rotmnist", "turned", 2),
        Row("rotmnist", "around", origins=5),
        Row("ablation", "all"),
    )
    run = Run(replace(recipe, rows=rows, form="modern"), digits, torch.device("cpu"))
    train_fleet([run])
    model, records = conclude_run(run, digits.valid)
    assert [(r.row, r.tta, r.origins) for r in records] == [
        ("alone", 1, 1),
        ("turned", 2, 1),
        ("around", 1, 5),
        ("all", 1, 1),
    ]
    for record in records:
        wanted = evaluate(model, digits.valid, rotations=record.tta, origins=record.origins).error
        assert record.test_error == pytest.approx(wanted)
    said = summarise(records)
    assert f"alone: {records[0].test_error:.2f}% error; turned" in said
    assert f"around: {records[2].test_error:.2f}% error, averaged over 5 origins;" in said


def test_a_later_test_says_where_it_was_and_how_long_it_took_on_the_device_of_the_run_alone(recipe, digits):
    run = Run(replace(recipe, rows=(Row("rotmnist", "alone"),)), digits, torch.device("cpu"))
    train_fleet([run])
    model, (left,) = conclude_run(run, digits.valid)
    added = (Row("rotmnist", "around", origins=5),)
    (here,) = measure_rows(run.recipe, added, left, model, digits.valid)
    (elsewhere,) = measure_rows(run.recipe, added, replace(left, device="another"), model, digits.valid)
    assert here.test_error == elsewhere.test_error
    assert "test_seconds" in here.metrics
    assert "test_seconds" not in elsewhere.metrics
    tested_with = {"git": git_commit(), "torch": torch.__version__, "device": left.device}
    assert here.metrics["tested_with"] == elsewhere.metrics["tested_with"] == tested_with
    assert elsewhere.device == "another"
