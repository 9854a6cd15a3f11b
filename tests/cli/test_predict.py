"""`ptn predict`: class and probability of image files, overlays, and files that are no images."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import ptn


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / "one.png", tmp_path / "two.jpg", tmp_path / "three.png"]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture
def weights(tmp_path):
    """A network that says bee to everything with probability 3/4, and cow with 1/6, ant with 1/12."""
    return save(tmp_path / "bees.safetensors", classes=json.dumps(["ant", "bee", "cow"]))


def save(path, model="ptn_s", **metadata):
    network = ptn.create_model(model, image_size=20, num_classes=3)
    torch.nn.init.zeros_(network.classifier.head.weight)
    with torch.no_grad():
        network.classifier.head.bias.copy_(torch.tensor([math.log(p) for p in (1 / 12, 3 / 4, 1 / 6)]))
    ptn.save_weights(network, path, metadata=metadata)
    return path


def test_a_line_for_each_image(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, *pictures)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [f"{path}\tbee\t75.0%" for path in pictures]


def test_top_names_more_classes(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, pictures[0], "--top", 2)
    assert outcome.out == f"{pictures[0]}\tbee\t75.0%\tcow\t16.7%\n"
    assert len(ptn_cli("predict", weights, pictures[0], "--top", 99).out.split("\t")) == 7


def test_json(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, pictures[1], "--json", "--top", 3)
    (row,) = json.loads(outcome.out)
    assert (row["path"], row["class"], row["overlay"]) == (str(pictures[1]), "bee", None)
    assert row["probability"] == pytest.approx(0.75)
    assert [answer["class"] for answer in row["top"]] == ["bee", "cow", "ant"]
    assert row["origin"] == pytest.approx([0, 0], abs=1e-6)  # an untrained predictor points at the middle


def test_without_names_classes_are_numbers(ptn_cli, tmp_path, pictures):
    path = save(tmp_path / "nameless.safetensors", model="ccnn_s")
    assert ptn_cli("predict", path, pictures[0]).out == f"{pictures[0]}\t1\t75.0%\n"
    (row,) = json.loads(ptn_cli("predict", path, pictures[0], "--json").out)
    assert row["origin"] is None


def test_what_cannot_be_read_is_an_error_line_and_the_others_are_printed(ptn_cli, weights, pictures, tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    outcome = ptn_cli("predict", weights, pictures[0], text, tmp_path / "none.png", pictures[1])
    assert outcome.code == 2
    assert outcome.out.splitlines() == [f"{path}\tbee\t75.0%" for path in pictures[:2]]
    first, second = outcome.err.splitlines()
    assert first.startswith(f"ptn: {text} is not an image")
    assert second == f"ptn: no file at {tmp_path / 'none.png'}"
    outcome = ptn_cli("predict", weights, pictures[0], text, "--json")
    assert outcome.code == 2
    good, bad = json.loads(outcome.out)
    assert good["class"] == "bee"
    assert bad["path"] == str(text)
    assert "is not an image" in bad["error"]


def test_overlays_show_the_image_and_its_origin(ptn_cli, weights, pictures, tmp_path):
    outcome = ptn_cli("predict", weights, *pictures, "--overlay", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["one.overlay.png", "three.overlay.png", "two.overlay.png"]
    assert json.loads(outcome.out)[0]["overlay"] == str(tmp_path / "out" / "one.overlay.png")
    picture = np.asarray(Image.open(tmp_path / "out" / "one.overlay.png"))
    assert picture.shape[1] == 380
    assert picture[190, 190].tolist() == [40, 230, 90]


def test_overlays_never_meet_nor_fall_on_an_image(ptn_cli, weights, pictures, tmp_path):
    twin = tmp_path / "twin" / "one.jpg"
    twin.parent.mkdir()
    Image.open(pictures[0]).save(twin)
    outcome = ptn_cli("predict", weights, pictures[0], twin, "--overlay", tmp_path / "out")
    assert outcome.code == 2
    assert "one.overlay.png: predict them apart" in outcome.err
    assert not (tmp_path / "out").exists()
    marked = pictures[0].rename(tmp_path / "one.overlay.png")
    before = marked.read_bytes()
    (tmp_path / "one.png").write_bytes(before)
    outcome = ptn_cli("predict", weights, tmp_path / "one.png", marked, "--overlay", tmp_path)
    assert outcome.code == 2
    assert "is one of the images" in outcome.err
    assert marked.read_bytes() == before


def test_mistakes_are_one_line(ptn_cli, weights, pictures, tmp_path):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    voxels = save(tmp_path / "voxels.safetensors", model="cylindrical")
    mistakes = {
        "no weights at": [tmp_path / "none.safetensors", pictures[0]],
        "weights are a .safetensors or .onnx file": [pictures[0], pictures[0]],
        "which no image file holds": [voxels, pictures[0]],
        "cannot create folder": [weights, pictures[0], "--overlay", tmp_path / "blocked" / "out"],
        "unknown device": [weights, pictures[0], "--device", "gpu"],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("predict", *arguments)
        assert (outcome.code, outcome.out) == (2, ""), says
        assert says in outcome.err
        assert outcome.err.count("\n") == 1, outcome.err
