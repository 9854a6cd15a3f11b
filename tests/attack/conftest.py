"""Fixtures: small data, and the command line in the process of the test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import write_pictures


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test, with a cache of its own and one thread."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures")


@pytest.fixture
def run(ptn_cli: Callable[..., Any]) -> Callable[..., tuple[int, str]]:
    """`run("train", ...)` -> exit code and everything that was printed."""

    def call(*arguments: object) -> tuple[int, str]:
        outcome = ptn_cli(*arguments)
        return outcome.code, outcome.out + outcome.err

    return call
