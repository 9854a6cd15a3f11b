"""What people get wrong first: every command answers with one line that says what to do, and never a traceback."""

import numpy as np
import pytest
import torch
from PIL import Image

import ptn


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Weights, a folder with one class, and a folder of images of all modes."""
    folder = tmp_path_factory.mktemp("place")
    ptn.save_weights(ptn.create_model("ptn_s", image_size=20, in_chans=3, num_classes=2), folder / "w.safetensors")
    rng = np.random.default_rng(0)
    modes = ("RGB", "L", "P", "RGBA", "LA", "1", "CMYK", "RGB", "L", "P")
    for name in ("one/cat", "mixed/cat", "mixed/dog"):
        (folder / name).mkdir(parents=True)
        for index, mode in enumerate(modes):
            pixels = rng.integers(0, 255, (24 + index, 30 - index, 3), dtype=np.uint8)
            suffix = "tif" if mode == "CMYK" else "png"
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{index}.{suffix}")
    return folder


def lines(outcome):
    """The error in an outcome of status 2, which is one line."""
    assert outcome.code == 2
    *progress, error = outcome.err.splitlines()
    assert error.startswith("ptn: ")
    assert not any(line.startswith(("ptn: ", "Traceback")) for line in progress)
    return error


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("folder", ["train", "--folder", "gone"]),
        ("folder", ["evaluate", "w.safetensors", "--folder", "gone"]),
        ("folder", ["audit", "w.safetensors", "--folder", "gone"]),
        ("folder", ["export", "w.safetensors", "--folder", "gone"]),
        ("file", ["predict", "w.safetensors", "gone.png"]),
        ("file", ["polar", "gone.png", "-o", "out"]),
        ("weights", ["predict", "gone.safetensors", "one/cat/0.png"]),
        ("weights", ["evaluate", "gone.safetensors"]),
        ("weights", ["audit", "gone.safetensors"]),
        ("weights", ["export", "gone.safetensors"]),
        ("weights", ["figures", "architecture", "--weights", "gone.safetensors"]),
        ("ONNX file", ["predict", "gone.onnx", "one/cat/0.png"]),
        ("ONNX file", ["audit", "gone.onnx"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_a_path_that_does_not_exist(ptn_cli, place, monkeypatch, kind, arguments):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    monkeypatch.chdir(place)
    (gone,) = (word for word in arguments if word.startswith("gone"))
    says = f"ptn: no {kind} at {gone}: check the path, which starts at {place}"
    assert lines(ptn_cli(*arguments)) == says


@pytest.mark.parametrize("arguments", [["train"], ["evaluate", "w.safetensors"], ["audit", "w.safetensors"]])
def test_a_folder_with_one_class(ptn_cli, place, monkeypatch, arguments):
    monkeypatch.chdir(place)
    says = "ptn: one has only the class cat: put the images into a folder for each class, at least two"
    assert lines(ptn_cli(*arguments, "--folder", "one")) == says


def test_images_of_mixed_modes_are_no_mistake(ptn_cli, place, monkeypatch):
    monkeypatch.chdir(place)
    assert ptn.load_folder("mixed", "train", image_size=20).images.shape[1:] == (3, 20, 20)
    files = sorted((place / "mixed" / "cat").iterdir())
    outcome = ptn_cli("predict", "w.safetensors", *files)
    assert (outcome.code, outcome.err) == (0, "")
    assert len(outcome.out.splitlines()) == len(files) == 10


def test_tensors_of_mixed_modes_are_one(place):
    model = ptn.load_model(place / "w.safetensors")
    with pytest.raises(ptn.InputError, match="bring them to one size and mode"):
        ptn.audit(model, [torch.rand(3, 20, 20), torch.rand(1, 20, 20)])


def test_a_backbone_without_convolutions():
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    with pytest.raises(ptn.InputError) as error:
        ptn.polarize(backbone, image_size=32)
    says = "cannot polarize Sequential: it has no convolutions (torch.nn.Conv2d); take a network that has"
    assert str(error.value) == says
