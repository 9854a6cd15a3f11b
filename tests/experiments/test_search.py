"""`python -m experiments search`: candidates are trained and compared on spare digits."""

import pytest
import torch

from experiments.search import make_candidate
from ptn.data import Dataset
from ptn.training import read_records

RECIPE = "rotmnist/pcnn_s/modern"


@pytest.fixture
def splits(monkeypatch):
    """Replaces rotated MNIST by random images; returns the names of the splits that are loaded."""
    loaded = []

    def load(split, **options):
        loaded.append(split)
        generator = torch.Generator().manual_seed(len(split))
        images = torch.randint(0, 256, (20, 1, 28, 28), dtype=torch.uint8, generator=generator)
        return Dataset("rotmnist", split, images, torch.arange(20) % 10, tuple("0123456789"))

    monkeypatch.setattr("ptn.training.session.load_dataset", lambda name, split, **options: load(split, **options))
    return loaded


def test_candidates_are_compared_on_spare_digits_only(experiments, splits, tmp_path):
    small = "epochs=1 batch=10 precision=fp32"
    candidates = (f"{RECIPE} {small}", f"{RECIPE} {small} model.options.radii=20")
    outcome = experiments("search", *candidates, "--seeds", "0-1", "-o", tmp_path, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert set(splits) == {"train+valid", "spare"}
    records = read_records(tmp_path / "records.jsonl")
    assert sorted((record.seed, record.rotations) for record in records) == sorted(
        [(0, 1), (0, 8), (1, 1), (1, 8)] * 2
    )
    assert {record.id for record in records} == {None}
    table = outcome.out[outcome.out.index("Held-out digits") :]
    assert table.count(small) == 2


def test_candidates_are_trained_on_any_training_digits():
    candidates = [make_candidate(f"{RECIPE} data.train={split}") for split in ("train", "train+valid")]
    assert {candidate.data.test for candidate in candidates} == {"spare"}
    upright = make_candidate("mnist-anywhere/p4cnn/modern data.train=train").data
    assert (upright.train, upright.test) == ("fit", "valid")
