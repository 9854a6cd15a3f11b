"""Digests of training runs. Run this file to record them: `python tests/golden/record_training.py [KIND ...]`."""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from training_adapter import KINDS, train

EXPECTED = Path(__file__).parent / "expected" / "training.json"


def digest(result: dict[str, Any]) -> dict[str, Any]:
    """The losses of a run, the sum and norm of each weight, and the SHA-256 of all weights."""
    return {
        "losses": [_rounded(loss) for loss in result["losses"]],
        "valid_errors": [_rounded(error) for error in result["valid_errors"]],
        "weights": {name: sum_and_norm(value) for name, value in result["weights"].items()},
        "sha256": sha256(result["weights"]),
    }


def sum_and_norm(value: Tensor) -> list[float]:
    exact = value.detach().cpu().double()
    return [_rounded(exact.sum().item()), _rounded(exact.norm().item())]


def sha256(weights: dict[str, Tensor]) -> str:
    """The SHA-256 of the values of all weights, in the order of their names, which are not hashed."""
    hashed = hashlib.sha256()
    for _, value in sorted(weights.items()):
        hashed.update(value.contiguous().numpy().tobytes())
    return hashed.hexdigest()


def fingerprint() -> str:
    """Conditions for bit-identical results: CPU, torch, its instruction set, and threads."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    facts = [line.partition(":")[2].strip() for line in lines if line.startswith(("model", "cpu family"))][:3]
    capability = torch.backends.cpu.get_cpu_capability()
    return " | ".join([*facts, capability, f"torch {torch.__version__}", "1 thread"])


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")


def main(kinds: list[str]) -> None:
    """Record the digests of `kinds`, or of all kinds."""
    old = json.loads(EXPECTED.read_text(encoding="utf-8")) if kinds else {}
    runs = old.get("runs", {})
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            runs[kind] = digest(train(kind, folder=Path(folder)))
        print(kind, runs[kind]["losses"][0], runs[kind]["losses"][-1])
    if old and old["fingerprint"] != fingerprint():
        raise SystemExit("the other kinds were recorded on another machine: record all of them")
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(run)}" for kind, run in runs.items())
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text(
        f'{{"fingerprint": {json.dumps(fingerprint())}, "runs": {{\n{lines}\n}}}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
