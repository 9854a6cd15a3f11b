"""Forms of recipes, and ensembles of trained networks."""

import re
from dataclasses import dataclass
from typing import Literal

from ptn.training.recipe import EvaluationSpec

Form = Literal["paper", "modern"]
FORMS: tuple[Form, ...] = ("paper", "modern")
"""`paper` is the training procedure of the paper, `modern` is ours."""


@dataclass(frozen=True)
class EnsembleRecipe:
    """Ensemble: averages the softmax of independently trained networks.

    With one member, the networks are its `seeds`, and the ensemble is a single result with seed 0. With several
    members, there is a result for each seed, with one network per member.
    """

    name: str
    members: tuple[str, ...]
    evaluations: tuple[EvaluationSpec, ...]
    seeds: tuple[int, ...] = ()


def form_of(name: str) -> Form | None:
    """Returns the form in the name of a recipe, None if there is none.

    >>> form_of("rotmnist/ptn_b/modern+/no-wrap")
    'modern'
    """
    match = re.fullmatch(r"[^/]+/[^/]+/(paper|modern)\+?(/.*)?", name)
    return next((form for form in FORMS if match and match[1] == form), None)


def evaluations(*ids: str) -> tuple[EvaluationSpec, ...]:
    """Returns one evaluation without test-time augmentation for each row id."""
    return tuple(EvaluationSpec(id) for id in ids)
