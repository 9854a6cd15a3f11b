"""Training speed of a recipe: milliseconds per epoch and run, alone and in fleets. Prints JSON.

python benchmarks/training.py --epochs 20 --fleets 1,8 [--device cuda] [-o benchmarks/training.json]
python benchmarks/training.py --recipe modelnet40/cylindrical/paper+ --epochs 1 --fleets 1 --set batch=64
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ptn.evaluation.compute import choose_device
from ptn.training import Run, RunData, find_recipe, override, parse_setting
from ptn.training.fleet import train_fleet
from ptn.training.records import describe_device, git_commit
from ptn.training.session import load_split
from ptn.training.trainer import prepare_device


def measure(name: str, settings: dict[str, Any], runs: int, epochs: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds per epoch and run of `runs` seeds at once, after a first epoch that is not counted."""
    recipe = override(find_recipe(name), {"epochs": epochs + 1, **settings})
    prepare_device(recipe, device)
    data = RunData(load_split(recipe.data, recipe.data.train))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
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
        "recipe": name,
        "runs": runs,
        **settings,
        "ms_per_epoch_and_run": round(1000 * seconds / (epochs * runs), 2),
        "setup_seconds": round(setup, 2),
        "peak_mib": torch.cuda.max_memory_reserved(device) >> 20 if device.type == "cuda" else None,
        "last_loss": round(fleet[0].history[-1]["loss"], 6),
        "weights_digest": digest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="rotmnist/ptn_b/paper+")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="say batch=64; repeatable")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--fleets", default="1,8")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--variants", default="bf16,bf16-free,tf32,fp32")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    rows = []
    for variant in arguments.variants.split(","):
        precision, _, free = variant.partition("-")
        for runs in map(int, arguments.fleets.split(",")):
            settings = {"precision": precision, "deterministic": not free}
            settings |= dict(map(parse_setting, arguments.settings))
            rows.append(measure(arguments.recipe, settings, runs, arguments.epochs, device))
            print(json.dumps(rows[-1]), flush=True)
    report = {"device": describe_device(device), "torch": torch.__version__, "git": git_commit(), "rows": rows}
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
