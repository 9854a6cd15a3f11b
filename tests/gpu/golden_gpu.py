"""Digests of geometry and training on a GPU, to compare two versions of the library on the same machine.

    PYTHONPATH=src python3 tests/gpu/golden_gpu.py --out FILE.json [--compare OTHER.json]

Triton samples; training runs 20 steps as a CUDA graph, on generated data. With `--compare`, prints the largest
relative difference per entry and exits with 1 if one exceeds its limit. `--device cpu` is a short dry run.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

from record_training import digest
from training_adapter import sample_geometry, train

LIMITS = {"geometry": 1e-4, "losses": 2e-2}
# name: the kind of recipe, its precision, and whether its step is compiled with fused blocks
RUNS: dict[str, tuple[str, str, bool]] = {
    "ptn_b_modern/bf16/fused": ("digits_modern", "bf16", True),
    "ptn_b_modern/bf16/plain": ("digits_modern", "bf16", False),
    "ptn_b_modern/fp32/fused": ("digits_modern", "fp32", True),
    "ptn_b_modern/fp32/plain": ("digits_modern", "fp32", False),
    "ptn_resnet32_modern/bf16/fused": ("photographs", "bf16", True),
    "ptn_resnet32_modern/bf16/plain": ("photographs", "bf16", False),
    "cylindrical_modern/bf16/fused": ("voxels", "bf16", True),
    "cylindrical_modern/bf16/plain": ("voxels", "bf16", False),
    "cylindrical_l/bf16/fused": ("voxels_strong", "bf16", True),
    "ptn_l_modern/bf16/fused": ("large", "bf16", True),
}


def checksum(value: Tensor) -> dict[str, Any]:
    """The sum, norm and largest magnitude of a tensor, and nine of its values, to seven digits."""
    exact = value.double().flatten()
    picked = exact[torch.linspace(0, len(exact) - 1, 9).long()]
    facts = {"sum": exact.sum(), "norm": exact.norm(), "largest": exact.abs().max()}
    rounded = {name: float(f"{fact.item():.7g}") for name, fact in facts.items()}
    return {**rounded, "values": [float(f"{one:.7g}") for one in picked.tolist()]}


def make_digests(device: str) -> dict[str, Any]:
    """All digests. On a CPU only a few steps of runs that are not fused."""
    on_gpu = device == "cuda"
    sampled = sample_geometry(device, "triton" if on_gpu else "torch")
    digests: dict[str, Any] = {
        "geometry": {name: checksum(value) for name, value in sampled.items()},
        "training": {},
    }
    for name, (kind, precision, fused) in RUNS.items():
        if on_gpu or not fused:
            steps = 20 if on_gpu else 5
            result = train(kind, steps, device=device, fused=fused, precision=precision)
            digests["training"][name] = digest(result)
            print(f"{name}: losses {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}", flush=True)
    digests["machine"] = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if on_gpu else "cpu"}
    return digests


def relative(ours: float, others: float, scale: float) -> float:
    """The relative difference; infinite where one of the two is no number."""
    difference = abs(ours - others) / max(abs(others), scale, 1e-12)
    return difference if math.isfinite(difference) else math.inf


def compare_geometry(ours: dict[str, Any], others: dict[str, Any]) -> float:
    pairs = zip(ours["values"], others["values"], strict=True)
    differences = [relative(a, b, others["largest"]) for a, b in pairs]
    return max(*differences, *(relative(ours[key], others[key], others["norm"]) for key in ("sum", "norm")))


def compare(ours: dict[str, Any], others: dict[str, Any]) -> bool:
    """Print the largest relative difference of each entry, and return whether all are within their limits."""
    print(f"machines: {ours['machine']} and {others['machine']}")
    good = True
    for part in ("geometry", "training"):
        for name in sorted(ours[part].keys() | others[part].keys()):
            a, b = ours[part].get(name), others[part].get(name)
            if a is None or b is None:
                print(f"{name}: only in one of the files  FAILED")
                good = False
                continue
            if part == "geometry":
                worst, limit, more = compare_geometry(a, b), LIMITS["geometry"], ""
            else:
                pairs = zip(a["losses"], b["losses"], strict=True)
                worst, limit = max(relative(x, y, 0.0) for x, y in pairs), LIMITS["losses"]
                norms = [
                    relative(a["weights"][k][1], v[1], 1e-3) for k, v in b["weights"].items() if k in a["weights"]
                ]
                names = "" if a["weights"].keys() == b["weights"].keys() else ", other names of weights"
                equal = "equal" if a["sha256"] == b["sha256"] else "different"
                more = f"  (norms of weights {max(norms, default=math.inf):.1e}{names}; bits {equal})"
            good &= worst <= limit
            print(f"{name}: {worst:.1e}{more}{'' if worst <= limit else '  FAILED'}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    digests = make_digests(options.device)
    options.out.write_text(json.dumps(digests) + "\n", encoding="utf-8")
    if options.compare and not compare(digests, json.loads(options.compare.read_text(encoding="utf-8"))):
        sys.exit(1)


if __name__ == "__main__":
    main()
