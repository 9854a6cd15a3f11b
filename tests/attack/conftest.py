"""Fixtures: small data, and the command line in the process of the test."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ptn.cli import main


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test, with a cache of its own and one thread."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_pictures(root: Path, classes: tuple[str, ...] = ("ant", "bee"), count: int = 12) -> Path:
    """Random images in one folder for each class."""
    rng = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 255, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index:02}.png")
    return root


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`run("train", ...)` -> exit code and everything that was printed."""

    def call(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out + printed.err

    return call
