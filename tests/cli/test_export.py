"""`ptn export`: weights to files, and files back into every command that takes weights."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import ptn

pytest.importorskip("onnxruntime", reason="export needs pip install 'ptn[export]'")
pytest.importorskip("onnxscript")

NAMES = ("ant", "bee", "cow")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    network = ptn.create_model("ccnn_s", image_size=20, num_classes=3)
    path = tmp_path_factory.mktemp("weights") / "animals.safetensors"
    options = json.dumps({"root": "/home/someone/animals", "seed": 3})
    ptn.save_weights(
        network,
        path,
        metadata={"classes": json.dumps(NAMES), "fit": "pad", "dataset": "folder", "dataset_options": options},
    )
    return path


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in NAMES:
        place = tmp_path / "animals" / name
        place.mkdir(parents=True)
        for k in range(8):
            Image.fromarray(rng.integers(0, 255, (24, 30), dtype=np.uint8)).save(place / f"{k}.png")
    return tmp_path / "animals"


def test_an_onnx_file_takes_the_place_of_the_weights(ptn_cli, weights, folder, tmp_path):
    target = tmp_path / "animals.onnx"
    outcome = ptn_cli("export", weights, "-o", target, "--folder", folder)
    assert outcome.code == 0, outcome.err
    assert str(target) in outcome.out
    assert "in batches of 1, 2, 5 and 16" in outcome.out
    assert b"/home/someone" not in target.read_bytes()
    answers = [
        json.loads(ptn_cli("evaluate", which, "--folder", folder, "--split", "train", "--json", "--confusion").out)
        for which in (weights, target)
    ]
    assert answers[0]["confusion"] == answers[1]["confusion"]
    assert answers[1]["models"] == ["ccnn_s"]
    images = sorted((folder / "bee").iterdir())
    one, other = (json.loads(ptn_cli("predict", which, *images, "--json").out) for which in (weights, target))
    assert [row["class"] for row in one] == [row["class"] for row in other]
    assert [row["probability"] for row in one] == pytest.approx([row["probability"] for row in other], abs=1e-5)


def test_the_suffix_or_the_format_says_which_file_it_is(ptn_cli, weights, tmp_path, monkeypatch):
    found = json.loads(ptn_cli("export", weights, "-o", tmp_path / "a.pt2", "--json").out)
    assert (found["format"], found["bytes"]) == ("torch", (tmp_path / "a.pt2").stat().st_size)
    assert found["largest_difference"] <= 1e-4
    monkeypatch.chdir(tmp_path)
    assert ptn_cli("export", weights, "--format", "torch").out.startswith("animals.pt2")


def test_mistakes_are_one_line(ptn_cli, weights, folder, tmp_path):
    target = tmp_path / "model.onnx"
    done = tmp_path / "done.onnx"
    assert ptn_cli("export", weights, "-o", done).code == 0
    mistakes = {
        "no weights at": [tmp_path / "none.safetensors"],
        "call the file .onnx or .pt2": [weights, "-o", tmp_path / "model.pth"],
        "is the name of another format than torch": [weights, "-o", target, "--format", "torch"],
        "did you mean 'onnx'": [weights, "--format", "onyx"],
        "--opset is for ONNX": [weights, "-o", tmp_path / "m.pt2", "--opset", 20],
        "opset must be a whole number from 18": [weights, "-o", target, "--opset", 11],
        "is an ONNX file already": [done, "-o", target],
        "no folder at": [weights, "-o", target, "--folder", tmp_path / "none"],
        "did you mean 'quickstart'": [weights, "-o", target, "--data", "quickstar"],
        "give one of them": [weights, "-o", target, "--data", "mnist", "--folder", folder],
        "was not written": [weights, "-o", target, "--tolerance", 0],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("export", *arguments)
        assert outcome.code == 2, says
        error = outcome.err.splitlines()[-1]
        assert error.startswith("ptn: ")
        assert says in error
    assert not target.exists()
