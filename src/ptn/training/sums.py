"""Rows that are sums of networks trained apart: PTN-CNN (seed k of one with seed k of the other) and ensembles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..data import Dataset, VoxelDataset
from ..evaluation import evaluate, open_weights
from ..evaluation.classify import ensemble_scores, scores
from ..models import count_parameters
from .recipe import Recipe
from .recipes import SumRecipe, find_recipe
from .records import Record, append_records, read_records
from .session import load_split, run_folder


def add_sums(
    wanted: Sequence[tuple[SumRecipe, int]], *, runs: Path, results: Path, device: torch.device
) -> list[Record]:
    """Evaluate sums from the weights in `runs` and append their records; those whose members are not there wait."""
    added: list[Record] = []
    for recipe, seed in wanted:
        members = member_runs(recipe, seed)
        folders = [run_folder(member, runs) for member in members]
        if recipe.seeds and seed != 0:
            continue  # an ensemble over seeds is one result
        if all((folder / "weights.safetensors").exists() for folder in folders):
            added += evaluate_sum(recipe, seed, members, folders, device)
    if added:
        append_records(results, added)
    return added


def member_runs(recipe: SumRecipe, seed: int) -> list[Recipe]:
    """The runs whose scores are summed."""
    seeds = recipe.seeds or (seed,)
    return [replace(find_recipe(name), seed=s) for name in recipe.members for s in seeds]


def evaluate_sum(
    recipe: SumRecipe, seed: int, members: Sequence[Recipe], folders: Sequence[Path], device: torch.device
) -> list[Record]:
    """The records of a sum, one for each of its rows."""
    test = load_split(members[0].data, members[0].data.test)
    models = [open_weights(str(folder / "weights.safetensors")).model.to(device) for folder in folders]
    parents = [read_records(folder / "result.jsonl")[0] for folder in folders]
    records = []
    for row in recipe.rows:
        answers = [
            scores(m, test, rotations=row.rotations, origins=row.origins, precision=members[0].precision)
            for m in models
        ]
        result = evaluate(ensemble_scores(answers), test)
        records.append(
            replace(
                parents[0],
                run=f"{recipe.name}#{seed}@{parents[0].started}",
                recipe=recipe.name,
                form=recipe.form,
                table=row.table,
                row=row.row,
                model="+".join(dict.fromkeys(member.model.name for member in members)),
                params=sum(count_parameters(model) for model in models),
                seed=seed,
                test_error=round(result.error, 6),
                metrics=_metrics(test, result.n, parents),
                tta=row.rotations,
                origins=row.origins,
                train_seconds=round(sum(parent.train_seconds for parent in parents), 3),
                seconds_per_epoch=round(sum(parent.seconds_per_epoch or 0 for parent in parents), 5),
                config={"members": [{"name": member.name, **member.changes()} for member in members]},
                config_sha256=parents[0].config_sha256,
            )
        )
    return records


def _metrics(test: Dataset | VoxelDataset, count: int, parents: Sequence[Record]) -> dict[str, object]:
    return {
        "source": test.meta.get("source"),
        "test_count": count,
        "members": [parent.run for parent in parents],
    }
