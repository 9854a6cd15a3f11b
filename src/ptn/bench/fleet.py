"""Training speed of PTN-B on rotated MNIST: milliseconds per epoch of 12,000 and run, alone and in fleets."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from ..data import load_dataset
from ..errors import InputError
from experiments.recipes import find_recipe

from ..config import override
from ..training import Run, RunData
from ..training.fleet import train_fleet
from ..training.trainer import prepare_device
from .report import Bench
from .timing import Timing, summarise

EPOCHS, FLEETS, PRECISIONS = 20, (1, 8, 16), ("bf16", "tf32")


def measure(
    bench: Bench,
    *,
    epochs: int = EPOCHS,
    fleets: Sequence[int] = FLEETS,
    precisions: Sequence[str] = PRECISIONS,
) -> None:
    """Fleets of each size in each precision, with the fused step where there is one beside the plain step."""
    found = []
    for precision in precisions:
        for runs in fleets:
            name = f"PTN-B, epoch of 12,000 and run, {precision}, {runs} at once"
            plain, details = train(precision, runs, epochs, bench.device, fused=False)
            found.append(details)
            if bench.device.type != "cuda":
                bench.add(name, plain)
                continue
            fused, details = train(precision, runs, epochs, bench.device, fused=True)
            found.append(details)
            bench.add(name, fused, "the same with the step not fused", plain)
    bench.details["fleets"] = found


def train(
    precision: str, runs: int, epochs: int, device: torch.device, *, fused: bool
) -> tuple[Timing, dict[str, Any]]:
    """Milliseconds per epoch and run of `runs` seeds at once, after a first epoch that is not counted."""
    settings = {"epochs": epochs + 1, "precision": precision}
    recipe = override(find_recipe("rotmnist/ptn_b/paper+"), settings)
    prepare_device(recipe.precision)
    data = RunData(load_dataset("rotmnist", recipe.data.train))
    start = time.perf_counter()
    fleet = [Run(replace(recipe, seed=seed), data, device, fused=fused) for seed in range(runs)]
    setup = time.perf_counter() - start
    marks: list[float] = []
    for run in fleet:
        run.on_epoch = lambda run, progress: marks.append(time.perf_counter())
    train_fleet(fleet)
    # all runs finish an epoch together
    ends = marks[runs - 1 :: runs]
    if len(ends) < 2:
        raise InputError("stopped before an epoch was measured: there is nothing to report")
    timing = summarise([1000 * (end - before) / runs for before, end in pairwise(ends)])
    digest = sum(float(value.double().sum()) for value in fleet[0].model.state_dict().values())
    return timing, {
        "runs": runs,
        "precision": precision,
        "fused": fused,
        "ms_per_epoch_and_run": round(timing.ms, 2),
        "setup_seconds": round(setup, 2),
        "last_loss": round(fleet[0].history[-1]["loss"], 6),
        "weights_digest": digest,
    }
