"""A killed run resumes to the same weights and exactly one record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RANDOM, CHOSEN = 20, 14


@pytest.mark.attack
def test_killed_runs_end_with_the_same_weights_and_one_record(pictures, tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), str(tmp_path), str(RANDOM), str(CHOSEN)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    expected, trials = outcome["expected"], outcome["trials"]
    assert expected["records"] == [1, 1, 1]
    assert expected["files"] == [
        *("checkpoint.safetensors", "report.html", "report.png", "result.jsonl", "weights.safetensors")
    ]
    assert len(trials) == RANDOM + CHOSEN
    assert sum(trial["killed"] for trial in trials) >= CHOSEN + RANDOM // 2
    for trial in trials:
        assert {**trial, "killed": True} == {**expected, "killed": True, "code": 0}
