"""One recipe with several values of some settings: what one trains in order to choose."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from .recipe import Recipe
from .settings import override


def vary(recipe: Recipe, choices: Mapping[str, Sequence[Any]]) -> list[Recipe]:
    """`recipe` once for every combination of `choices`, {"dropout": [0.1, 0.2], "model.options.kernel": [3, 5]}.

    Each is named after what it sets: "rotmnist/ptn_b/modern+/dropout=0.1,kernel=3". None fills rows of the paper's
    tables, even one that sets what the recipe has anyway.
    """
    for key, values in choices.items():
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{key} varies over a list of values, say {key}=[1,2]; got {json.dumps(values)}")
    if not choices:
        return [recipe]
    last = [key.rpartition(".")[2] for key in choices]
    titles = last if len(set(last)) == len(last) else list(choices)
    made = []
    for values in itertools.product(*choices.values()):
        settings = ",".join(f"{title}={_text(value)}" for title, value in zip(titles, values, strict=True))
        changed = override(recipe, dict(zip(choices, values, strict=True)))
        made.append(replace(changed, name=f"{recipe.name}/{settings}", form="own", rows=()))
    return made


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
