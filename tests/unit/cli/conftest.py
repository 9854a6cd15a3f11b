"""Fixtures: the command line in the process of the test, models with constant predictions, folders of images."""

import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import ptn
from ptn.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def ptn_cli(capsys):
    """`ptn_cli("models", "--json")` -> exit code, standard output, standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(stop.value.code, out, err)

    return run


NAMES = ("ant", "bee", "cow")


@pytest.fixture
def save(tmp_path):
    """`save("bees", [0, 5, 0])` -> weights of a model whose logits are always these."""

    def write(name, logits, *, model="ptn_s", image_size=20, in_chans=1, classes=NAMES, **metadata):
        network = ptn.create_model(model, image_size=image_size, num_classes=len(logits), in_chans=in_chans)
        torch.nn.init.zeros_(network.classifier.head.weight)
        with torch.no_grad():
            network.classifier.head.bias.copy_(torch.tensor(logits))
        network.classes = classes
        path = tmp_path / f"{name}.safetensors"
        ptn.save_weights(network, path, metadata=metadata)
        return path

    return write


@pytest.fixture
def bees(save):
    """A model that predicts bee with probability 3/4, cow with 1/6 and ant with 1/12."""
    return save("bees", np.log([1 / 12, 3 / 4, 1 / 6]).tolist())


@pytest.fixture
def animals(tmp_path):
    """A folder of random images: 5 ants, 3 bees and 2 cows for training, the same number for tests."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, count in zip(NAMES, (5, 3, 2), strict=True):
            folder = tmp_path / "animals" / split / name
            folder.mkdir(parents=True)
            for k in range(count):
                shape = (24, 30, 3) if k % 2 else (24, 30)
                Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(folder / f"{k}.png")
    return tmp_path / "animals"
