"""Fixtures for the demo: untrained networks, the server."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

import ptn
from ptn.demo.models import find_pairs


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """Weights files of an untrained PTN and an untrained plain CNN."""
    folder = tmp_path_factory.mktemp("weights")
    files = []
    for name in ("ptn_s", "ccnn_s"):
        model = ptn.create_model(name)
        model.classes, model.metadata = tuple("0123456789"), {"dataset": "untrained"}
        files.append(str(folder / f"{name}.safetensors"))
        ptn.save_weights(model, files[-1])
    return files


@pytest.fixture(scope="session")
def pair(untrained):
    return find_pairs(untrained)[0]


@pytest.fixture(scope="session")
def run_demo():
    """Context manager: `ptn demo` in a process of its own; returns its address."""

    @contextmanager
    def run(*weights):
        command = [sys.executable, "-m", "ptn", "demo", "--no-open", "--port", "0"]
        for file in weights:
            command += ["--weights", file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                yield server.stdout.readline().split()[0]
            finally:
                server.terminate()

    return run
