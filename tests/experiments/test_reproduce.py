"""`python -m experiments reproduce`: trains the missing runs of a table, evaluates ensembles, and reports."""

from dataclasses import replace

import pytest

import experiments.recipes as named
from ptn import load_folder, load_model
from ptn.evaluation import evaluate, scores
from ptn.training import DataSpec, read_records
from tests.conftest import write_pictures

PTN, CCNN = "rotmnist/ptn_b/paper+", "rotmnist/ccnn_b/paper+"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The members of PTN-CNN on small random images, for one epoch; returns the options of a command."""
    for split in ("train", "test"):
        write_pictures(tmp_path / "images" / split, count=6)
    data = DataSpec("folder", options={"root": str(tmp_path / "images"), "image_size": 20})
    small = {
        name: replace(named.find_recipe(name), data=data, epochs=1, batch=4, precision="fp32")
        for name in (PTN, CCNN)
    }
    ensemble = named._ENSEMBLES["rotmnist/ptn_cnn_b/paper+"]
    monkeypatch.setattr(named, "_RECIPES", small)
    monkeypatch.setattr(named, "_ENSEMBLES", {ensemble.name: ensemble})
    return ["--results", tmp_path / "results", "-o", tmp_path / "runs", "--forms", "paper", "--device", "cpu"]


@pytest.mark.slow
def test_missing_runs_are_trained_and_ensembles_evaluated(experiments, tiny, tmp_path):
    path = tmp_path / "results" / "rotmnist.jsonl"
    outcome = experiments("reproduce", "rotmnist", "--seeds", "0-1", *tiny)
    assert outcome.code == 0, outcome.err
    assert "4 runs are missing" in outcome.out
    records = read_records(path)
    assert sorted((record.id, record.seed, record.rotations) for record in records) == sorted(
        (id, seed, rotations)
        for seed in (0, 1)
        for id, rotations in (
            ("rotmnist.ptn_b.plus", 1),
            ("rotmnist.ptn_b.plusplus", 8),
            ("ablation.all", 1),
            ("rotmnist.ccnn_b.plus", 1),
            ("rotmnist.ptn_cnn_b.plus", 1),
            ("rotmnist.ptn_cnn_b.plusplus", 8),
        )
    )
    again = experiments("reproduce", "rotmnist", "--seeds", "0-1", *tiny)
    assert (again.code, "0 runs are missing" in again.out, len(read_records(path))) == (0, True, len(records))
    # without the weights of its members, an ensemble is skipped
    members = [line for line in path.read_text().splitlines() if "ptn_cnn_b" not in line]
    path.write_text("\n".join(members) + "\n")
    for weights in (tmp_path / "runs").rglob("weights.safetensors"):
        weights.unlink()
    assert experiments("reproduce", "rotmnist", "--seeds", "0-1", *tiny).code == 0
    assert len(read_records(path)) == len(members)


def test_chosen_recipes_of_several_tables_are_trained(experiments, tiny, tmp_path):
    arguments = ("rotmnist", "ablation", "--seeds", "0", "--recipes", "rotmnist/ccnn*", *tiny)
    outcome = experiments("reproduce", *arguments)
    assert outcome.code == 0, outcome.err
    assert "rotmnist, ablation: 1 runs are missing" in outcome.out
    assert {record.recipe for record in read_records(tmp_path / "results" / "rotmnist.jsonl")} == {CCNN}


def test_an_ensemble_averages_the_scores_of_its_members(experiments, tiny, tmp_path):
    trained = experiments("train", PTN, "--seeds", "1", "-o", tmp_path / "runs", "--device", "cpu")
    assert trained.code == 0, trained.err
    first = next((tmp_path / "runs").rglob("weights.safetensors"))
    before = first.stat().st_mtime_ns
    assert experiments("reproduce", "rotmnist", "--seeds", "1", *tiny).code == 0
    assert first.stat().st_mtime_ns == before  # a trained run is used
    records = {record.id: record for record in read_records(tmp_path / "results" / "rotmnist.jsonl")}
    ensemble = records["rotmnist.ptn_cnn_b.plusplus"]
    members = [records["rotmnist.ptn_b.plus"], records["rotmnist.ccnn_b.plus"]]
    assert ensemble.params == sum(member.params for member in members)
    assert ensemble.metrics["members"] == [member.run for member in members]
    assert (ensemble.model, ensemble.seed) == ("ptn_b+ccnn_b", 1)
    assert ensemble.config_sha256 == named.recipe_sha256(ensemble.recipe)
    test = load_folder(tmp_path / "images", "test", image_size=20)
    models = [load_model(path) for path in sorted((tmp_path / "runs").rglob("weights.safetensors"))]
    mean = sum(scores(model, test, rotations=8) for model in models) / 2
    assert ensemble.test_error == pytest.approx(evaluate(mean, test).error)
