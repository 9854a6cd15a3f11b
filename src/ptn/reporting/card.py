"""The card of weights that are given away: what the network is, how it was trained, how well it does."""

import statistics
from collections.abc import Iterable

from ..errors import InputError
from ..evaluation import Weights
from ..models import Model
from ..models.hub import model_card
from ..training.records import Record
from .align import align
from .tables import newest


def weights_card(name: str, weights: Weights, model: Model, error: float, records: Iterable[Record]) -> str:
    """The card of `weights` as they are given away under `name`, in Markdown.

    `error` is that of `model`, the network as it is given away; `records` hold its run and those of other seeds.
    """
    recipe, seed = weights.metadata.get("recipe"), weights.metadata.get("seed")
    runs = [record for record in records if record.recipe == recipe and record.table == record.dataset]
    own = [record for record in runs if str(record.seed) == seed and record.status == "done"]
    if not own:
        raise InputError(f"{weights.name} is seed {seed} of {recipe}, of which there is no record: see --results")
    first = own[0]
    rows = {}
    for record in own:
        errors = [
            other.test_error
            for other in newest(run for run in runs if run.row == record.row)
            if other.test_error is not None
        ]
        spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
        rows[record.row or ""] = (
            f"{record.test_error:.2f}",
            f"{statistics.fmean(errors):.2f}{spread} (n={len(errors)})",
        )
    columns = {
        "row": list(rows),
        "this one": [own_error for own_error, _ in rows.values()],
        "all seeds": [mean for _, mean in rows.values()],
    }
    source = f", {first.metrics['source']} from MNIST" if first.metrics.get("source") == "regenerated" else ""
    named = model_card(model, name, weights.classes).replace(f'ptn.from_pretrained("{name}")', _call(name))
    lines = [
        named.rstrip(),
        "",
        "## How well it does",
        "",
        f"Error in % on the test set of {first.dataset} ({first.metrics['test_count']:,} images{source}):",
        "",
        *align(columns, names=("row",)),
        "",
        f"As given away, its weights rounded to float16: {error:.2f}.",
        "",
        "## How it was trained",
        "",
        f"`ptn train {recipe} --seeds {seed}`, {first.epochs} epochs in {first.precision} on {first.device} "
        f"(commit {first.git}); the seed was fixed before any test result was seen.",
        "",
    ]
    return "\n".join(lines)


def _call(name: str) -> str:
    model, _, tag = name.partition(".")
    return f'ptn.create_model("{model}", pretrained="{tag}")'
