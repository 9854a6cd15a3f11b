"""What a finished run leaves: a record for each row, measured as the row says."""

from dataclasses import replace

import pytest
import torch

from ptn.evaluation import evaluate
from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.recipe import Row
from ptn.training.reporters import summarise
from ptn.training.results import conclude_run


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
