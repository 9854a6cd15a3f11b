"""`ptn ship`: weights in half precision with a card."""

import json
from dataclasses import replace

import pytest
import torch

import ptn
from ptn.data import Dataset
from ptn.evaluation import open_weights
from ptn.reporting.card import weights_card
from ptn.training.records import Record, append_records, read_records

CLASSES = tuple("0123456789")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run, its records and those of another seed; `test_error` is what its network makes."""
    images = torch.randint(0, 256, (40, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    digits = Dataset(
        "rotmnist", "test", images, torch.arange(40.0).sqrt().long(), CLASSES, {"source": "regenerated"}
    )
    monkeypatch.setattr("ptn.data.catalog.load_dataset", lambda name, split: digits)
    model = ptn.create_model("ptn_s").eval()
    with torch.no_grad():
        error = 100 * float((model(images.float() / 255).argmax(dim=1) != digits.labels).float().mean())

    def write(said=error):
        folder = tmp_path / "rotmnist.ptn_s.modern" / "seed-0"
        metadata = {"classes": json.dumps(CLASSES), "dataset": "rotmnist", "seed": "0", "test_error": f"{said:.4f}"}
        ptn.save_weights(
            model, folder / "weights.safetensors", metadata={**metadata, "recipe": "rotmnist/ptn_s/modern"}
        )
        return folder

    records = [
        Record(
            **{"run": f"run-{seed}", "recipe": "rotmnist/ptn_s/modern", "form": "modern", "table": "rotmnist"},
            **{"row": "PTN-S", "dataset": "rotmnist", "model": "ptn_s", "params": 1, "seed": seed, "tta": 1},
            **{"test_error": error + 2 * seed, "metrics": {"source": "regenerated", "test_count": 40}},
            **{"epochs": 200, "train_seconds": 1.0, "seconds_per_epoch": 0.1, "selection": "final"},
            **{"data_sha256": "d", "config": {}, "config_sha256": "c", "git": "abc1234", "torch": "2.13.0"},
            **{"device": "NVIDIA H200", "precision": "bf16", "deterministic": True, "status": "done"},
            started="2025-11-15T10:00:00+00:00",
        )
        for seed in (0, 1)
    ]
    append_records(tmp_path / "results" / "rotmnist.jsonl", records)
    return write, error


def ship(ptn_cli, tmp_path, folder, *more):
    where = ("--results", tmp_path / "results", "-o", tmp_path / "out", "--device", "cpu")
    return ptn_cli("ship", folder, "--tag", "rotmnist", *where, *more)


def test_the_card_counts_shapes_where_the_network_takes_voxels(run, tmp_path):
    write, error = run
    weights = open_weights(str(write() / "weights.safetensors"))
    records = {(1, 1): read_records(tmp_path / "results" / "rotmnist.jsonl")}
    for name, things in (("ptn_s", "images"), ("ccnn_3d", "shapes")):
        card = weights_card("x.y", weights, ptn.create_model(name), error, records)
        assert f"(40 {things}, regenerated from MNIST)" in card


def test_weights_are_halved_and_the_card_tells_how_good_they_are(ptn_cli, tmp_path, run):
    write, error = run
    outcome = ship(ptn_cli, tmp_path, write())
    assert outcome.code == 0, outcome.err
    shipped = tmp_path / "out" / "ptn_s.rotmnist.safetensors"
    assert shipped.stat().st_size < 0.6 * (write() / "weights.safetensors").stat().st_size
    card = shipped.with_suffix(".md").read_text(encoding="utf-8")
    for said in (
        f"{error:.2f}",
        f"{error + 1:.2f} ± 1.41 (n=2)",
        "ptn train rotmnist/ptn_s/modern --seeds 0",
        "abc1234",
    ):
        assert said in card
    assert ptn.load_model(shipped).config.name == "ptn_s"


def test_a_network_that_is_not_the_one_of_its_record_is_refused(ptn_cli, tmp_path, run):
    write, error = run
    folder = write()
    always = 4 if error == pytest.approx(72.5) else 5  # of 40 digits 11 are fives, and 9 are fours
    with torch.no_grad():  # another network than the one that was tested
        other = ptn.load_model(folder / "weights.safetensors")
        other.classifier.head.bias[always] += 100
    metadata = open_weights(str(folder)).metadata
    metadata.pop("config")
    ptn.save_weights(other, folder / "weights.safetensors", metadata=metadata)
    outcome = ship(ptn_cli, tmp_path, folder)
    assert outcome.code == 2
    assert "not the" in outcome.err
    assert "of its run" in outcome.err
    assert not list((tmp_path / "out").iterdir())


def test_weights_without_a_record_are_refused(ptn_cli, tmp_path, run):
    write, _ = run
    outcome = ship(ptn_cli, tmp_path, write(), "--results", tmp_path / "none")
    assert outcome.code == 2
    assert "of which there is no record: see --results" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tag", ["a/b", "../../x", "", "a.safetensors"])
def test_a_tag_is_a_name(ptn_cli, tmp_path, run, tag):
    write, _ = run
    outcome = ship(ptn_cli, tmp_path, write(), "--tag", tag)
    assert outcome.code == 2
    assert "--tag is a name" in outcome.err


def test_of_several_runs_of_a_seed_the_one_of_the_weights_is_told_of(ptn_cli, tmp_path, run):
    write, error = run
    path = tmp_path / "results" / "rotmnist.jsonl"
    first = read_records(path)[0]
    older = {"test_error": 50.0, "epochs": 7, "device": "OLD GPU", "started": "2024-01-01T00:00:00+00:00"}
    append_records(path, [replace(first, **older)])
    assert ship(ptn_cli, tmp_path, write()).code == 0
    card = (tmp_path / "out" / "ptn_s.rotmnist.md").read_text(encoding="utf-8")
    assert "OLD GPU" not in card
    assert f"{error + 1:.2f} ± 1.41 (n=2)" in card


def test_the_card_tells_what_averaging_over_origins_gave(ptn_cli, tmp_path, run):
    write, error = run
    path = tmp_path / "results" / "rotmnist.jsonl"
    first = read_records(path)[0]
    append_records(path, [replace(first, row="PTN-S origins", origins=5, test_error=12.5)])
    assert ship(ptn_cli, tmp_path, write()).code == 0
    card = (tmp_path / "out" / "ptn_s.rotmnist.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in card.splitlines() if "PTN-S" in line]
    assert rows == [
        ["PTN-S", f"{error:.2f}", f"{error + 1:.2f} ± 1.41 (n=2)"],
        ["PTN-S origins", "12.50", "12.50 (n=1)"],
    ]


def test_weights_that_cannot_be_written_leave_no_card(ptn_cli, tmp_path, run):
    write, _ = run
    (tmp_path / "out" / "ptn_s.rotmnist.safetensors").mkdir(parents=True)
    assert ship(ptn_cli, tmp_path, write()).code == 2
    assert not (tmp_path / "out" / "ptn_s.rotmnist.md").exists()


def test_two_of_a_kind_are_refused(ptn_cli, tmp_path, run):
    write, _ = run
    outcome = ship(ptn_cli, tmp_path, write(), write())
    assert outcome.code == 2
    assert "same network" in outcome.err
