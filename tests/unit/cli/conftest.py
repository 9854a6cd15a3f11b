"""Fixtures: models with constant predictions, folders of images."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import ptn

NAMES = ("ant", "bee", "cow")


def write_model(folder, name, logits, *, model="ptn_s", image_size=20, in_chans=1, classes=NAMES, **metadata):
    network = ptn.create_model(model, image_size=image_size, num_classes=len(logits), in_chans=in_chans)
    torch.nn.init.zeros_(network.classifier.head.weight)
    with torch.no_grad():
        network.classifier.head.bias.copy_(torch.tensor(logits))
    network.classes, network.metadata = classes, metadata
    path = folder / f"{name}.safetensors"
    ptn.save_weights(network, path)
    return path


def write_animals(folder):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, count in zip(NAMES, (5, 3, 2), strict=True):
            (folder / split / name).mkdir(parents=True)
            for k in range(count):
                shape = (24, 30, 3) if k % 2 else (24, 30)
                Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(
                    folder / split / name / f"{k}.png"
                )
    return folder


@pytest.fixture
def save(tmp_path):
    """`save("bees", [0, 5, 0])` -> weights of a model whose logits are always these."""
    return partial(write_model, tmp_path)


@pytest.fixture
def bees(save):
    """A model that predicts bee with probability 3/4, cow with 1/6 and ant with 1/12."""
    return save("bees", np.log([1 / 12, 3 / 4, 1 / 6]).tolist())


@pytest.fixture
def animals(tmp_path):
    """A folder of random images: 5 ants, 3 bees and 2 cows for training, the same number for tests."""
    return write_animals(tmp_path / "animals")


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    """A folder with models and images, for commands that write nothing."""
    folder = tmp_path_factory.mktemp("world")
    logits = [0.0, 5.0, 0.0]
    write_model(folder, "w", logits)
    write_model(folder, "larger", logits, image_size=24)
    write_model(folder, "others", logits, classes=("x", "y", "z"))
    write_model(folder, "plain", logits, model="ccnn_s")
    write_model(folder, "folder", logits, dataset="folder")
    write_model(folder, "voxels", logits, model="cylindrical", image_size=8)
    write_model(folder, "nameless", [0.0] * 4, classes=None)
    write_animals(folder / "animals")
    for name in ("empty", "one/cat", "damaged"):
        (folder / name).mkdir(parents=True)
    for path in ("a.png", "one/cat/a.png", "animals/test/ant/a.png"):
        Image.new("L", (30, 20), 90).save(folder / path)
    for path in ("text.png", "damaged/a.png"):
        (folder / path).write_text("not an image")
    return folder
