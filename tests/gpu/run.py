"""Runs the tests in tests/gpu and writes the result, with commit and device, to benchmarks/gpu_tests.json.

    python3 tests/gpu/run.py [pytest arguments]

Needs torch and a GPU. pytest may be in build/pytest (`pip install --target build/pytest pytest`); without it, only
the digests of golden_gpu.py are compared.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "gpu_tests.json"
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
sys.path.append(str(ROOT / "build" / "pytest"))


class Outcomes:
    """pytest plugin that counts outcomes."""

    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.failed:
            self.failures.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.counts["failed"] += 1
            self.failures.append(report.nodeid)


def run_pytest(arguments):
    """Returns counts of outcomes and the names of failed tests."""
    import pytest

    outcomes = Outcomes()
    code = pytest.main([str(ROOT / "tests" / "gpu"), "-p", "no:cacheprovider", *arguments], [outcomes])
    if code and not outcomes.failures:
        outcomes.failures.append(f"pytest exited with {int(code)}")
    return {"runner": "pytest", **outcomes.counts, "failures": outcomes.failures}


def run_golden():
    """Compares the digests of golden_gpu.py with the recorded ones."""
    print("pytest is not installed: only the digests of golden_gpu.py are compared", flush=True)
    script, expected = ROOT / "tests/gpu/golden_gpu.py", ROOT / "tests/golden/expected/gpu_h200.json"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, script, "--out", f"{folder}/digests.json", "--compare", expected]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        failed = subprocess.run(command, check=False, env=environment).returncode != 0
    return {
        "runner": "golden_gpu.py",
        "passed": int(not failed),
        "failed": int(failed),
        "skipped": 0,
        "failures": [],
    }


def main(arguments):
    import torch

    from ptn.training.records import git_commit, timestamp

    if not torch.cuda.is_available():
        sys.exit("tests/gpu needs a GPU: torch.cuda.is_available() is False")
    start = time.perf_counter()
    outcome = run_golden() if find_spec("pytest") is None else run_pytest(arguments)
    facts = {
        "commit": git_commit(ROOT),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": timestamp(),
        "seconds": round(time.perf_counter() - start, 1),
    }
    RESULT.write_text(json.dumps({**facts, **outcome}, indent=2) + "\n", encoding="utf-8")
    print(f"{RESULT.relative_to(ROOT)}: {outcome['passed']} passed, {outcome['failed']} failed")
    sys.exit(bool(outcome["failed"] or outcome["failures"]))


if __name__ == "__main__":
    main(sys.argv[1:])
