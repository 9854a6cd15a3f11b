"""Recorded behaviour: fixed inputs, facts about results, and their comparison with the recorded ones.

Every test module here has CASES: for each file expected/NAME.json, functions by the key of their entry. A case
returns facts (numbers and strings in lists and dicts), and its test compares them with the entry. To accept a
deliberate change of behaviour, record the entries of a file again:

    PTN_DATA=... python tests/golden/record.py NAME...
"""

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import Tensor

Cases = dict[str, dict[str, Callable[[], Any]]]
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


def sha256(tensor: Tensor) -> str:
    """The hash of the bytes of a tensor."""
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def measure(tensor: Tensor) -> dict[str, Any]:
    """Facts about a tensor of floats: shape, rounded values and the hash of its bytes."""
    values = [round(value, 6) + 0.0 for value in tensor.detach().double().flatten().tolist()]
    return {"shape": list(tensor.shape), "values": values, "sha256": sha256(tensor)}


def fingerprint() -> dict[str, Any]:
    """Conditions for bit-identical results: processor, versions and number of threads."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8").partition("\n\n")[0] if path.exists() else ""
    cpu = dict(re.findall(r"^(\S.*?)\s*: (.*)$", text, re.MULTILINE))
    return {
        "cpu": ", ".join(cpu.get(key, "?") for key in ("model name", "cpu family", "model", "stepping")),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "threads": torch.get_num_threads(),
    }


@cache
def read(name: str) -> dict[str, Any]:
    """The entries of expected/`name`.json; "fingerprint" is that of the machine they were recorded on."""
    return json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))


def write(name: str, entries: dict[str, Any]) -> None:
    """Write expected/`name`.json, one line per entry."""
    entries = {"fingerprint": fingerprint(), **entries}
    dumps = partial(json.dumps, ensure_ascii=False)
    lines = [f"{dumps(key)}: {dumps(entry)}" for key, entry in entries.items()]
    (EXPECTED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def on_recorded_machine(name: str) -> bool:
    """Whether results have to be equal to expected/`name`.json bit for bit."""
    return read(name)["fingerprint"] == fingerprint()


def check(name: str, key: str, facts: Any, *, atol: float = 1e-4, bits: tuple[str, ...] = ("sha256",)) -> None:
    """Compare facts with the entry `key` of expected/`name`.json: floats to `atol`, everything else exactly.

    Facts called one of `bits` depend on rounding: they are compared only on the machine of the recording.
    """
    skipped = () if on_recorded_machine(name) else bits
    _compare(json.loads(json.dumps(facts)), read(name)[key], key, atol, skipped)


def _compare(actual: Any, expected: Any, where: str, atol: float, skipped: tuple[str, ...]) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key in [key for key in expected if key not in skipped]:
            _compare(actual[key], expected[key], f"{where}: {key}", atol, skipped)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for index, pair in enumerate(zip(actual, expected, strict=True)):
            _compare(*pair, f"{where}[{index}]", atol, skipped)
    else:
        close = isinstance(expected, float) and abs(actual - expected) <= atol
        assert close or actual == expected, f"{where} is {actual} instead of {expected}"
