"""How long it takes to load ptn beside `import torch`, and how long each model takes to construct."""

import subprocess
import sys
import time
from functools import partial

from ..models import create_model, list_models
from .report import Bench
from .timing import Timing, summarise, time_together


def measure(bench: Bench) -> None:
    """A fresh interpreter for each import; models at 96 pixels, 32 for voxels."""
    loaded = "from ptn import create_model"  # `import ptn` alone loads nothing yet
    ours, theirs = _import_times(loaded, "import torch", rounds=bench.effort.rounds)
    bench.add(loaded, ours, "import torch", theirs)
    for name in list_models():
        size = 32 if name == "cylindrical" else 96
        work = {name: partial(create_model, name, image_size=size)}
        bench.add(f"construct {name}", time_together(work, bench.device, bench.effort)[name])


def _import_times(*statements: str, rounds: int) -> list[Timing]:
    """Wall time of a fresh interpreter that runs each statement, taken in turns."""
    samples: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(rounds):
        for statement in statements:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            samples[statement].append(1000 * (time.perf_counter() - start))
    return [summarise(values) for values in samples.values()]
