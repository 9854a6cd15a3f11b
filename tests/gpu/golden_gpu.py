"""Digests of geometry and training on a GPU, to compare two versions of the library on the same machine.

    PYTHONPATH=src python3 tests/gpu/golden_gpu.py --out FILE.json [--compare OTHER.json]

Triton samples; training runs 20 steps as a CUDA graph, on generated data. With `--compare`, prints the largest
relative difference per entry and exits with 1 if one exceeds its limit. `--device cpu` is a short dry run.
"""

import argparse
import itertools
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

import ptn
from training_runs import digest, make_run, train

LIMITS = {"geometry": 1e-4, "training": 2e-2}  # of values and gradients, and of losses
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


def sample_geometry(device: str, backend: str) -> dict[str, Tensor]:
    """Values and gradients of the sampling functions on smooth images."""
    results: dict[str, Tensor] = {}
    for mode, padding_mode in itertools.product(("bilinear", "bicubic"), ("zeros", "border")):
        options: Any = {"mode": mode, "padding_mode": padding_mode, "backend": backend}
        where = f"{mode}/{padding_mode}"
        for law in ("log", "linear"):
            polar = partial(sample_polar, ptn.polar_sample, ptn.PolarGrid(24, 20, law=law), options)
            results |= with_gradients(f"polar_sample/{law}/{where}", polar, (3, 2, 28, 31), device)
        results |= with_gradients(f"similarity_warp/2d/{where}", partial(warp, options), (3, 2, 28, 31), device)
        results |= with_gradients(f"similarity_warp/3d/{where}", partial(warp, options), (3, 2, 12, 14, 10), device)
        if padding_mode == "zeros":
            cylinder = partial(sample_polar, ptn.cylindrical_sample, ptn.PolarGrid(16, 12, law="linear"), options)
            results |= with_gradients(f"cylindrical_sample/{mode}", cylinder, (3, 2, 16, 16, 12), device)
    return results


def sample_polar(function, grid, options, images, origin, rotation, scale):
    return function(images, origin, grid, phase=rotation, dilation=scale, **options)


def warp(options, images, origin, rotation, scale):
    return ptn.similarity_warp(images, ptn.Similarity(rotation, scale, 5 * origin), size=(25, 22), **options)


def with_gradients(name: str, sample: Any, shape: tuple[int, ...], device: str) -> dict[str, Tensor]:
    axes = [torch.linspace(0.0, 2.0, size, dtype=torch.float64) for size in shape[2:]]
    waves = sum(torch.sin((1 + k) * mesh) for k, mesh in enumerate(torch.meshgrid(*axes, indexing="ij")))
    images = torch.stack([waves * (1 + k / 7) for k in range(shape[0] * shape[1])]).view(shape)
    origin = torch.tensor([[0.113, -0.271], [-0.347, 0.189], [0.051, 0.423]])
    inputs = [images, origin, torch.tensor([0.3, -1.7, 2.9]), torch.tensor([0.83, 1.0, 1.21])]
    inputs = [value.float().to(device).requires_grad_() for value in inputs]
    out = sample(*inputs)
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape).to(out)
    grads = torch.autograd.grad(out, inputs, weights)
    names = ("values", "d_images", "d_origin", "d_turn", "d_scale")
    return {f"{name}/{part}": value.detach().cpu() for part, value in zip(names, (out, *grads), strict=True)}


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
            run = make_run(kind, epochs=4 if on_gpu else 1, precision=precision, device=device, fused=fused)
            losses = train(run)
            digests["training"][name] = digest(run, losses)
            print(f"{name}: losses {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
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


def compare_training(ours: dict[str, Any], others: dict[str, Any]) -> float:
    norms = [relative(ours["weights"][key][1], norm, 1e-3) for key, (_, norm) in others["weights"].items()]
    bits = "equal" if ours["sha256"] == others["sha256"] else "different"
    print(f"  norms of weights {max(norms):.1e}, bits {bits}")
    return max(relative(a, b, 0.0) for a, b in zip(ours["losses"], others["losses"], strict=True))


def compare(ours: dict[str, Any], others: dict[str, Any]) -> bool:
    """Print the largest relative difference of each entry, and return whether all are within their limits."""
    print(f"machines: {ours['machine']} and {others['machine']}")
    good = True
    for part, difference in (("geometry", compare_geometry), ("training", compare_training)):
        for name in sorted(ours[part].keys() | others[part].keys()):
            missing = name not in ours[part] or name not in others[part]
            worst = math.inf if missing else difference(ours[part][name], others[part][name])
            good &= worst <= LIMITS[part]
            print(f"{name}: {worst:.1e}{'' if worst <= LIMITS[part] else '  FAILED'}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    digests = make_digests(options.device)
    options.out.write_text(json.dumps(digests) + "\n", encoding="utf-8")
    if options.compare and not compare(digests, json.loads(options.compare.read_text(encoding="utf-8"))):
        sys.exit(1)


if __name__ == "__main__":
    main()
