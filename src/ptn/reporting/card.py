"""The card of weights that are given away: what the network is, how it was trained, how well it does."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InputError
from ..evaluation import Weights
from ..models import Model
from ..models.hub import model_card
from ..training.recipes import is_outdated
from ..training.records import Record
from .align import align
from .tables import newest


def runs_behind(weights: Weights, records: Iterable[Record]) -> dict[int, list[Record]]:
    """The runs of the recipe of `weights`, by how many turns they average over; that of the weights comes first.

    An error unless there is one with the error that the weights' file says.
    """
    recipe, seed, error = (weights.metadata.get(key) for key in ("recipe", "seed", "test_error"))
    named = [r for r in records if r.recipe == recipe and not is_outdated(r.config)]
    found: dict[int, list[Record]] = {}
    for turns in sorted({record.tta for record in named}):
        row = next(record.row for record in named if record.tta == turns)
        runs = newest(record for record in named if (record.tta, record.row) == (turns, row))
        own = [record for record in runs if str(record.seed) == seed]
        found[turns] = [*own, *(record for record in runs if record not in own)] if own else []
    first = found.get(1, [])
    if not first or error is None or f"{first[0].test_error:.4f}" != error:
        raise InputError(
            f"{weights.name} is seed {seed} of {recipe} with {error}% errors, of which there is no record: "
            "see --results"
        )
    return {turns: runs for turns, runs in found.items() if runs}


def weights_card(
    name: str, weights: Weights, model: Model, error: float, runs: Mapping[int, Sequence[Record]]
) -> str:
    """The card of `weights` as they are given away under `name`, in Markdown.

    `error` is that of `model`, the network as it is given away; `runs` are those behind it.
    """
    first = runs[1][0]
    columns = {
        "row": [own.row or own.model for own, *_ in runs.values()],
        "this one": [f"{own.test_error:.2f}" for own, *_ in runs.values()],
        "all seeds": [_spread(found) for found in runs.values()],
    }
    source = ", regenerated from MNIST" if first.metrics.get("source") == "regenerated" else ""
    count = f"{first.metrics['test_count']:,} images" if "test_count" in first.metrics else "all of it"
    named = model_card(model, name, weights.classes).replace(f'ptn.from_pretrained("{name}")', _call(name))
    lines = [
        named.rstrip(),
        "",
        "## How well it does",
        "",
        f"Error in % on the test set of {first.dataset} ({count}{source}):",
        "",
        *align(columns, names=("row",)),
        "",
        f"As given away, its weights rounded to float16: {error:.2f}.",
        "",
        "## How it was trained",
        "",
        f"`ptn train {first.recipe} --seeds {first.seed}`, {first.epochs} epochs in {first.precision} on "
        f"{first.device} (commit {first.git}).",
        "",
    ]
    return "\n".join(lines)


def _spread(runs: Iterable[Record]) -> str:
    errors = [run.test_error for run in runs if run.test_error is not None]
    spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    return f"{statistics.fmean(errors):.2f}{spread} (n={len(errors)})"


def _call(name: str) -> str:
    model, _, tag = name.partition(".")
    return f'ptn.create_model("{model}", pretrained="{tag}")'
