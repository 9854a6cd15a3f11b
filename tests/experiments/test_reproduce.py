"""`ptn reproduce`: trains what a table lacks, adds the sums of networks, and reports."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from ptn import load_folder, load_model
from ptn.evaluation import evaluate
from ptn.training import recipes
from ptn.training.recipe import DataSpec, Row
from ptn.training.records import read_records


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The two recipes of PTN-CNN and their sum, on a folder of small random pictures, for one epoch."""
    generator = torch.Generator().manual_seed(0)
    for split in ("train", "test"):
        for name in "ab":
            folder = tmp_path / "pictures" / split / name
            folder.mkdir(parents=True)
            for index in range(6):
                pixels = torch.randint(0, 256, (20, 20), dtype=torch.uint8, generator=generator)
                Image.fromarray(pixels.numpy()).save(folder / f"{index}.png")
    data = DataSpec("folder", options={"root": str(tmp_path / "pictures"), "image_size": 20})
    chosen = {}
    for name in ("rotmnist/ptn_b/paper+", "rotmnist/ccnn_b/paper+"):
        recipe = recipes.find_recipe(name)
        chosen[name] = replace(recipe, data=data, epochs=1, batch=4, precision="fp32")
    monkeypatch.setattr(recipes, "_RECIPES", chosen)
    return ["--results", tmp_path / "results", "-o", tmp_path / "runs", "--forms", "paper", "--device", "cpu"]


def test_it_runs_what_is_missing_and_sums_what_is_there(ptn_cli, tiny, tmp_path):
    outcome = ptn_cli("reproduce", "rotmnist", "--seeds", "0-1", *tiny)
    assert outcome.code == 0, outcome.err
    assert "4 runs are missing from rotmnist" in outcome.out
    records = read_records(tmp_path / "results" / "rotmnist.jsonl")
    rows = sorted((record.row, record.seed, record.tta) for record in records)
    assert rows == sorted(
        (row, seed, tta)
        for seed in (0, 1)
        for row, tta in (
            ("PTN-B+", 1),
            ("PTN-B++", 8),
            ("all", 1),
            ("CCNN-B+", 1),
            ("PTN-CNN-B+", 1),
            ("PTN-CNN-B++", 8),
        )
    )
    summed = next(record for record in records if record.row == "PTN-CNN-B+")
    parts = [r for r in records if r.row in ("PTN-B+", "CCNN-B+") and r.seed == summed.seed]
    assert summed.params == sum(part.params for part in parts)
    assert summed.metrics["members"] == [part.run for part in sorted(parts, key=lambda r: r.model, reverse=True)]
    assert "PTN-CNN-B++" in outcome.out

    again = ptn_cli("reproduce", "rotmnist", "--seeds", "0-1", *tiny)
    assert again.code == 0, again.err
    assert "no run is missing from rotmnist" in again.out
    assert len(read_records(tmp_path / "results" / "rotmnist.jsonl")) == len(records)


def test_runs_that_were_trained_before_are_taken_over(ptn_cli, tiny, tmp_path):
    trained = ptn_cli("train", "rotmnist/ptn_b/paper+", "-o", tmp_path / "runs", "--device", "cpu")
    assert trained.code == 0, trained.err
    weights = next((tmp_path / "runs").rglob("weights.safetensors"))
    before = weights.stat().st_mtime_ns
    assert ptn_cli("reproduce", "ablation", "--seeds", "0", *tiny).code == 0
    assert weights.stat().st_mtime_ns == before
    records = read_records(tmp_path / "results" / "rotmnist.jsonl")
    assert {record.row for record in records} == {"PTN-B+", "PTN-B++", "all"}


def test_a_row_that_a_recipe_has_got_since_is_filled_without_training_again(ptn_cli, tiny, tmp_path, monkeypatch):
    assert ptn_cli("reproduce", "ablation", "--seeds", "0", *tiny).code == 0
    weights = next((tmp_path / "runs").rglob("weights.safetensors"))
    before = weights.stat().st_mtime_ns
    recipe = recipes.find_recipe("rotmnist/ptn_b/paper+")
    more = replace(recipe, rows=(*recipe.rows, Row("ablation", "around", origins=5)))
    monkeypatch.setitem(recipes._RECIPES, recipe.name, more)
    outcome = ptn_cli("reproduce", "ablation", "--seeds", "0", *tiny)
    assert outcome.code == 0, outcome.err
    assert "1 runs are missing from ablation" in outcome.out
    assert weights.stat().st_mtime_ns == before
    *old, new = read_records(tmp_path / "results" / "rotmnist.jsonl")
    assert {record.row for record in old} == {"PTN-B+", "PTN-B++", "all"}
    assert (new.row, new.tta, new.origins, new.run) == ("around", 1, 5, old[0].run)
    model, test = load_model(weights), load_folder(tmp_path / "pictures", "test", image_size=20)
    assert new.test_error == pytest.approx(evaluate(model, test, origins=5).error)
    assert f"around: {new.test_error:.2f}% error, averaged over 5 origins" in outcome.out
    assert "no run is missing from ablation" in ptn_cli("reproduce", "ablation", "--seeds", "0", *tiny).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rotmist"], "did you mean 'rotmnist'"),
        (["rotmnist", "--forms", "modren"], "did you mean 'modern'"),
        (["rotmnist", "--seeds", "x"], "--seeds takes numbers"),
    ],
)
def test_mistakes_are_one_line(ptn_cli, arguments, says):
    outcome = ptn_cli("reproduce", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
