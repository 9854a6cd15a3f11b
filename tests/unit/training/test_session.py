"""Sessions: weights and records written, interrupted runs resumed, finished ones kept."""

from dataclasses import replace

import pytest
import torch

from ptn import InputError, load_model
from ptn.config import override
from ptn.data import Dataset
from ptn.device import Parallel
from ptn.evaluation import evaluate
from ptn.training import DataSpec, EvaluationSpec, Session, session, with_seeds
from ptn.training.records import read_records
from ptn.training.session import load_split, run_folder


@pytest.fixture
def requested(monkeypatch, digits):
    """Replaces `load_dataset` by small digits for any name; returns the requested (name, split)."""
    calls = []

    def load(name, split, **options):
        calls.append((name, split))
        data = digits.train if split.startswith("train") else digits.valid
        return replace(data, name=name, split=split, meta={**data.meta, "index": torch.arange(len(data))})

    monkeypatch.setattr(session, "load_dataset", load)
    return calls


@pytest.fixture
def quick(recipe):
    return replace(recipe, epochs=1)


def train(recipes, folder, **options):
    return Session(folder=folder, **options).train(recipes)


def test_one_training_gives_a_record_for_each_evaluation(requested, quick, digits, tmp_path, capsys):
    evaluations = (
        EvaluationSpec("a.single"),
        EvaluationSpec("a.rotated", 2),
        EvaluationSpec("a.origins", origins=5),
    )

    def extra_metrics(model, recipe, test, evaluation):
        return {"extra": evaluation.rotations}

    recipe = override(replace(quick, evaluations=evaluations), {"data.valid": "valid"})
    outcome = train([recipe], tmp_path, results=tmp_path / "all.jsonl", extra_metrics=extra_metrics)
    assert len(outcome.done) == 1
    folder = run_folder(recipe, tmp_path)
    records = read_records(folder / "result.jsonl")
    assert records == read_records(tmp_path / "records.jsonl") == read_records(tmp_path / "all.jsonl")
    tta = [(record.id, record.rotations, record.origins) for record in records]
    assert tta == [("a.single", 1, 1), ("a.rotated", 2, 1), ("a.origins", 1, 5)]
    assert [record.metrics["extra"] for record in records] == [1, 2, 1]

    model = load_model(folder)
    for record in records:
        options = {"rotations": record.rotations, "origins": record.origins}
        assert record.test_error == pytest.approx(evaluate(model, digits.valid, **options).error)
    assert records[0].metrics["valid_error"] == records[0].test_error  # the same images here
    assert records[0].config_sha256 == recipe.sha256
    assert model.classes == digits.train.classes
    assert model.metadata["recipe"] == recipe.name
    assert model.metadata["test_error"] == records[0].test_error
    assert sorted(path.name for path in folder.iterdir()) == ["result.jsonl", "weights.safetensors"]
    line = next(line for line in capsys.readouterr().out.splitlines() if "a.single: " in line)
    assert f"a.origins: {records[2].test_error:.2f}% error, averaged over 5 origins" in line


@pytest.fixture
def finished(requested, quick, tmp_path):
    """A trained recipe, and the file with its records."""
    train([quick], tmp_path / "runs")
    return quick, run_folder(quick, tmp_path / "runs") / "result.jsonl"


def test_a_finished_run_is_neither_repeated_nor_overwritten(finished, tmp_path):
    recipe, path = finished
    weights, content = path.with_name("weights.safetensors"), path.read_bytes()
    before = weights.read_bytes()
    with pytest.raises(InputError, match="keep or continue it with --resume"):
        train([recipe], tmp_path / "runs")
    for change in ({"epochs": 2}, {"evaluations": (EvaluationSpec("a.rotated", rotations=2),)}):
        with pytest.raises(InputError, match="other settings"):
            train([replace(recipe, **change)], tmp_path / "runs", resume=True)
    outcome = train([recipe], tmp_path / "runs", resume=True, results=tmp_path / "all.jsonl")
    assert (outcome.done, path.read_bytes(), weights.read_bytes()) == ([], content, before)
    assert read_records(tmp_path / "all.jsonl") == read_records(path)


@pytest.mark.parametrize("length", [0, 40])
def test_a_truncated_result_is_written_again(finished, tmp_path, length):
    recipe, path = finished
    path.write_bytes(path.read_bytes()[:length])
    train([recipe], tmp_path / "runs", resume=True)
    assert [record.status for record in read_records(path)] == ["done"]


def test_recipes_that_cannot_be_trained_together_are_refused(quick, tmp_path):
    with pytest.raises(InputError, match="same name and seed"):
        train([quick, quick], tmp_path)
    with pytest.raises(InputError, match="fp32"):
        train([quick, replace(quick, seed=1, precision="bf16")], tmp_path)


def test_other_processes_do_not_wait_for_one_that_fails(requested, quick, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(Parallel, "wait", lambda self: waits.append("wait"))
    with pytest.raises(ZeroDivisionError):
        train([quick], tmp_path, extra_metrics=lambda *_: 1 / 0)
    assert len(waits) == 3  # two before training, one after it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"foo": 2}, "unknown option of folder 'foo'"),
        ({"seed": "one"}, "seed must be an integer"),
        ({"image_size": [16]}, "image_size must be"),
    ],
)
def test_wrong_options_of_a_folder_are_named(tmp_path, options, words):
    required = {"root": str(tmp_path), "image_size": 8}
    with pytest.raises(InputError, match=words):
        load_split(DataSpec("folder", options=required | options), "train")
    with pytest.raises(InputError, match=r"data\.options must be an object with root and image_size"):
        load_split(DataSpec("folder", options=options), "train")


def test_seeds_share_the_data(requested, quick, tmp_path):
    outcome = train(with_seeds(quick, [0, 1]), tmp_path)
    assert [run.recipe.seed for run in outcome.done] == [0, 1]
    assert isinstance(outcome.done[0].data.train, Dataset)
    assert requested == [("quickstart", "train"), ("quickstart", "test")]
