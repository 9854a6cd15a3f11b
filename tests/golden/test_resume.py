"""Interrupted runs, runs in a fleet, and sessions give the weights of one uninterrupted run."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from training_adapter import train, train_session, train_together


def different(ours, others):
    """The names of weights that are not equal bit for bit."""
    assert ours["weights"].keys() == others["weights"].keys()
    return [name for name, value in ours["weights"].items() if not torch.equal(value, others["weights"][name])]


RESUMED = ["digits_modern", "photographs", pytest.param("voxels_strong", marks=pytest.mark.slow), "folder"]


@pytest.mark.parametrize("kind", RESUMED)
@pytest.mark.parametrize("stop_at", [7, 10])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, kind, stop_at):
    straight = train(kind, folder=tmp_path / "straight")
    stopped = train(kind, folder=tmp_path / "stopped", stop_at=stop_at)
    resumed = train(kind, folder=tmp_path / "stopped")
    assert different(stopped, straight)
    assert different(resumed, straight) == []
    assert stopped["losses"] + resumed["losses"] == pytest.approx(straight["losses"], rel=1e-12)
    assert resumed["valid_errors"] == straight["valid_errors"]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("kind", ["digits_modern", "digits_paper"])
def test_runs_trained_together_equal_each_alone(kind, interleaved):
    alone = [train(kind, seed=seed) for seed in (0, 1)]
    together = train_together(kind, [0, 1], interleaved=interleaved)
    assert different(alone[0], alone[1])
    assert [different(a, b) for a, b in zip(alone, together, strict=True)] == [[], []]


def test_a_session_writes_the_trained_weights_and_their_test_error(tmp_path):
    session = train_session(tmp_path)
    assert different(session, train("folder", folder=tmp_path)) == []
    assert session["error"] == pytest.approx(session["evaluated"], abs=1e-6)
