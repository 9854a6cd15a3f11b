"""Records of ensembles, evaluated from the weights of their members."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ptn.evaluation import evaluate, scores
from ptn.models import count_parameters, load_model
from ptn.training.records import Record, append_records, read_records
from ptn.training.session import load_split, run_folder

from .recipes import EnsembleRecipe, find_recipe, recipe_sha256


def add_ensembles(
    missing: Sequence[tuple[EnsembleRecipe, int]], *, runs: Path, results: Path, device: torch.device
) -> None:
    """Evaluates the ensembles and seeds whose members have weights in `runs`, and appends their records."""
    for ensemble, seed in missing:
        if ensemble.seeds and seed != 0:
            continue  # an ensemble of seeds is a single result
        seeds = ensemble.seeds or (seed,)
        members = [replace(find_recipe(name), seed=each) for name in ensemble.members for each in seeds]
        folders = [run_folder(member, runs) for member in members]
        if all((folder / "weights.safetensors").exists() for folder in folders):
            append_records(results, _evaluate(ensemble, seed, folders, device))


def _evaluate(ensemble: EnsembleRecipe, seed: int, folders: Sequence[Path], device: torch.device) -> list[Record]:
    first = find_recipe(ensemble.members[0])
    test = load_split(first.data, first.data.test)
    models = [load_model(folder / "weights.safetensors").to(device) for folder in folders]
    members = [read_records(folder / "result.jsonl")[0] for folder in folders]
    records = []
    for spec in ensemble.evaluations:
        tta: Any = {"rotations": spec.rotations, "origins": spec.origins}
        members_scores = [scores(model, test, precision=first.precision, **tta) for model in models]
        result = evaluate(torch.stack(members_scores).mean(dim=0), test)
        records.append(
            replace(
                members[0],
                run=f"{ensemble.name}#{seed}@{members[0].started}",
                id=spec.id,
                recipe=ensemble.name,
                model="+".join(dict.fromkeys(member.model for member in members)),
                params=sum(map(count_parameters, models)),
                seed=seed,
                test_error=round(result.error, 6),
                metrics={
                    "source": test.meta.get("source"),
                    "test_count": result.n,
                    "members": [member.run for member in members],
                },
                **tta,
                train_seconds=round(sum(member.train_seconds for member in members), 3),
                seconds_per_epoch=round(sum(member.seconds_per_epoch or 0 for member in members), 5),
                config={"members": list(ensemble.members)},
                config_sha256=recipe_sha256(ensemble.name) or "",
            )
        )
    return records
