"""Fixed inputs, and the comparison of tensors with recorded values."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import Tensor

EXPECTED = Path(__file__).parent / "expected"


def fixed_images(shape: tuple[int, ...], *, seed: int = 0, count: int = 4) -> Tensor:
    """Smooth pseudo-random images in [0, 1], (count, *shape), multiples of 1/255.

    Every image and channel is a sum of six plane waves. Volumes (C, X, Y, Z) are 0 or 1.
    """
    random = np.random.default_rng(seed)
    channels, *sides = shape
    axes = np.meshgrid(*(np.linspace(0, 1, side) for side in sides), indexing="ij")
    images = np.zeros((count, channels, *sides))
    for index in np.ndindex(count, channels):
        for _ in range(6):
            waves, phase = random.uniform(-3, 3, len(sides)), random.uniform(0, 1)
            cycles = sum(wave * axis for wave, axis in zip(waves, axes, strict=True)) + phase
            images[index] += np.cos(2 * np.pi * cycles)
    images = images > 0 if len(sides) == 3 else np.round(255 * np.clip(0.5 + images / 6, 0, 1)) / 255
    return torch.from_numpy(images.astype(np.float32))


def fingerprint() -> dict[str, Any]:
    """Conditions for bit-identical results: processor, versions and number of threads."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = dict(reversed([line.split(":", 1) for line in lines if ":" in line]))
    cpu = {key.strip(): value.strip() for key, value in facts.items()}
    return {
        "cpu": ", ".join(cpu.get(key, "?") for key in ("model name", "cpu family", "model", "stepping")),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "threads": torch.get_num_threads(),
    }


def sha256(tensor: Tensor) -> str:
    """The hash of the bytes of a tensor."""
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def measure(tensor: Tensor) -> dict[str, Any]:
    """Record of a tensor of floats: shape, rounded values and the hash of its bytes."""
    values = [round(value, 6) + 0.0 for value in tensor.detach().double().flatten().tolist()]
    return {"shape": list(tensor.shape), "values": values, "sha256": sha256(tensor)}


def check(actual: Tensor, expected: dict[str, Any], same_machine: bool, *, atol: float = 1e-4) -> None:
    """Compare a tensor with what `measure` recorded; the hash only if the fingerprint is the recorded one."""
    assert list(actual.shape) == expected["shape"]
    values = torch.tensor(expected["values"], dtype=torch.float64).reshape(actual.shape)
    torch.testing.assert_close(actual.detach().double(), values, rtol=0, atol=atol, equal_nan=True)
    if same_machine:
        assert sha256(actual) == expected["sha256"], "equal to the tolerance, but not bit for bit"


def read(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of expected/`name`.json, and the fingerprint of the machine they were recorded on."""
    entries = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    return entries, entries.pop("fingerprint")


def write(name: str, entries: dict[str, Any]) -> None:
    """Write expected/`name`.json, one line per entry, with the fingerprint of this machine."""
    entries = {"fingerprint": fingerprint(), **entries}
    lines = [
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(entries[key], ensure_ascii=False)}" for key in entries
    ]
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
