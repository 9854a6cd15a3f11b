"""`python -m experiments release`: weights in float16 with a card."""

import re

import pytest
import torch

import ptn
from experiments.release import find_runs, weights_card
from experiments.tables import load_records
from ptn.data import Dataset
from ptn.files import read_tensors
from ptn.models.zoo import WEIGHTS
from ptn.training.records import append_records

CLASSES = tuple("0123456789")
IMAGES = torch.randint(0, 256, (40, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40.0).sqrt().long()


@pytest.fixture
def run(tmp_path, monkeypatch, make_record):
    """The folder of a finished run of PTN-S; its records are those of two seeds."""
    digits = Dataset("rotmnist", "test", IMAGES, LABELS, CLASSES, {"source": "regenerated"})
    monkeypatch.setattr(ptn, "load_dataset", lambda name, split: digits)
    model = ptn.create_model("ptn_s").eval()
    with torch.no_grad():
        error = 100 * float((model(IMAGES.float() / 255).argmax(dim=1) != LABELS).float().mean())
    recipe = {"id": "rotmnist.ptn_s", "recipe": "rotmnist/ptn_s/modern", "git": "abc1234"}
    metrics = {"source": "regenerated", "test_count": 40}
    records = [make_record(seed=seed, test_error=error + 2 * seed, metrics=metrics, **recipe) for seed in (0, 1)]
    append_records(tmp_path / "results" / "rotmnist.jsonl", records)
    model.classes = CLASSES
    model.metadata = {"dataset": "rotmnist", "recipe": "rotmnist/ptn_s/modern", "seed": 0, "test_error": error}
    folder = tmp_path / "rotmnist.ptn_s.modern" / "seed-0"
    ptn.save_weights(model, folder / "weights.safetensors")
    return folder


@pytest.fixture
def release(experiments, tmp_path, run):
    where = ("--results", tmp_path / "results", "-o", tmp_path / "out", "--device", "cpu")
    return lambda *more: experiments("release", run, "--tag", "rotmnist", *where, *more)


def rows_of(card):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in card.splitlines() if "PTN-S" in line]


def test_weights_are_halved_and_the_card_has_the_errors_of_all_seeds(release, run, tmp_path):
    outcome = release()
    assert outcome.code == 0, outcome.err
    weights = tmp_path / "out" / "ptn_s.rotmnist.safetensors"
    assert weights.stat().st_size < 0.6 * (run / "weights.safetensors").stat().st_size
    read_tensors(weights, needs_digest=True)
    model, original = ptn.load_model(weights), ptn.load_model(run)
    assert (model.classes, model.metadata) == (original.classes, original.metadata)
    card = weights.with_suffix(".md").read_text(encoding="utf-8")
    error = original.metadata["test_error"]
    assert rows_of(card) == [["PTN-S", f"{error:.2f}", f"{error + 1:.2f} ± 1.41 (n=2)"]]
    for text in ("(40 images, regenerated from MNIST)", "train rotmnist/ptn_s/modern --seeds 0", "abc1234"):
        assert text in card


def test_another_network_than_that_of_the_record_is_rejected(release, run, tmp_path):
    model = ptn.load_model(run)
    always = 4 if model.metadata["test_error"] == pytest.approx(72.5) else 5  # 11 of 40 digits are fives, 9 fours
    with torch.no_grad():
        model.classifier.head.bias[always] += 100
    ptn.save_weights(model, run / "weights.safetensors")
    outcome = release()
    assert outcome.code == 2
    assert "in its record" in outcome.err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("more", "word"),
    [(["--tag", "../x"], "--tag"), (["--tag", ""], "--tag"), (["--results", "nowhere"], "no record of seed 0")],
)
def test_invalid_arguments_write_nothing(release, tmp_path, more, word):
    outcome = release(*more)
    assert (outcome.code, word in outcome.err) == (2, True), outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tag", ptn.list_pretrained())
def test_released_cards_are_those_of_the_records(tag):
    model, card = ptn.load_model(tag), (WEIGHTS / f"{tag}.md").read_text(encoding="utf-8")
    error = float(re.search(r"float16: (\d+\.\d+)", card)[1])
    assert weights_card(tag, model, error, find_runs(model, load_records())) == card
    assert error == pytest.approx(model.metadata["test_error"], abs=0.1)
