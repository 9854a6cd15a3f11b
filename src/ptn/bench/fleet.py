"""Training speed of PTN-B on rotated MNIST: milliseconds per epoch of 12,000 and run, alone and in fleets."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..data import load_dataset
from ..training import Run, RunData, find_recipe, override
from ..training.fleet import train_fleet
from ..training.trainer import prepare_device
from .report import Bench
from .timing import Timing

EPOCHS, FLEETS, VARIANTS = 20, (1, 8), ("bf16", "bf16-free", "tf32", "fp32")


def measure(
    bench: Bench,
    *,
    epochs: int = EPOCHS,
    fleets: Sequence[int] = FLEETS,
    variants: Sequence[str] = VARIANTS,
) -> None:
    """Fleets of each size in each precision; "-free" may choose other algorithms from run to run."""
    found = []
    for variant in variants:
        precision, _, free = variant.partition("-")
        alone: Timing | None = None
        for runs in fleets:
            settings = {"precision": precision, "deterministic": not free}
            found.append(train(settings, runs, epochs, bench.device))
            ms = found[-1]["ms_per_epoch_and_run"]
            timing = Timing(ms, (ms, ms), epochs)
            name = f"PTN-B epoch of 12,000 and run, {variant}, {runs} at once"
            bench.add(name, timing, "one run alone" if alone else None, alone)
            alone = alone or (timing if runs == 1 else None)
    bench.details["fleets"] = found


def train(settings: dict[str, Any], runs: int, epochs: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds per epoch and run of `runs` seeds at once, after a first epoch that is not counted."""
    recipe = override(find_recipe("rotmnist/ptn_b/paper+"), {"epochs": epochs + 1, **settings})
    prepare_device(recipe, device)
    data = RunData(load_dataset("rotmnist", recipe.data.train))
    start = time.perf_counter()
    fleet = [Run(replace(recipe, seed=seed), data, device) for seed in range(runs)]
    setup = time.perf_counter() - start
    marks: list[float] = []
    for run in fleet:
        run.on_epoch = lambda run, progress: marks.append(time.perf_counter())
    train_fleet(fleet)
    # all runs finish epoch k together: the first `runs` marks are the first epoch's
    seconds = marks[-1] - marks[runs - 1]
    digest = sum(float(value.double().sum()) for value in fleet[0].model.state_dict().values())
    return {
        "runs": runs,
        **settings,
        "ms_per_epoch_and_run": round(1000 * seconds / (epochs * runs), 2),
        "setup_seconds": round(setup, 2),
        "last_loss": round(fleet[0].history[-1]["loss"], 6),
        "weights_digest": digest,
    }
