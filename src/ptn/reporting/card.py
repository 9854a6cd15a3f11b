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

Looks = tuple[int, int]
"""How often an image is looked at: in how many rotations, and around how many origins in each."""


def runs_behind(weights: Weights, records: Iterable[Record]) -> dict[Looks, list[Record]]:
    """The runs of the recipe of `weights`, by what they average over; that of the weights comes first.

    An error unless there is one with the error that the weights' file says.
    """
    recipe, seed, error = (weights.metadata.get(key) for key in ("recipe", "seed", "test_error"))
    named = [r for r in records if r.recipe == recipe and not is_outdated(r)]
    found: dict[Looks, list[Record]] = {}
    for looks in sorted({(record.tta, record.origins) for record in named}):
        alike = [record for record in named if (record.tta, record.origins) == looks]
        runs = newest(record for record in alike if record.row == alike[0].row)
        own = [record for record in runs if str(record.seed) == seed]
        found[looks] = [*own, *(record for record in runs if record not in own)] if own else []
    first = found.get((1, 1), [])
    if not first or error is None or f"{first[0].test_error:.4f}" != error:
        raise InputError(
            f"{weights.name} is seed {seed} of {recipe} with {error}% errors, of which there is no record: "
            "see --results"
        )
    return {looks: runs for looks, runs in found.items() if runs}


def weights_card(
    name: str, weights: Weights, model: Model, error: float, runs: Mapping[Looks, Sequence[Record]]
) -> str:
    """The card of `weights` as they are given away under `name`, in Markdown.

    `error` is that of `model`, the network as it is given away; `runs` are those behind it.
    """
    first = runs[1, 1][0]
    columns = {
        "row": [own.row or own.model for own, *_ in runs.values()],
        "this one": [f"{own.test_error:.2f}" for own, *_ in runs.values()],
        "all seeds": [_spread(found) for found in runs.values()],
    }
    source = ", regenerated from MNIST" if first.metrics.get("source") == "regenerated" else ""
    things = "images" if len(model.input_shape) == 3 else "shapes"
    count = f"{first.metrics['test_count']:,} {things}" if "test_count" in first.metrics else "all of it"
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
