"""Recipes of Table 1 and of the ablation: rotated MNIST."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ptn.training.recipe import EvaluationSpec, ModelSpec, OptimizerSpec, Recipe

from .base import FORMS, EnsembleRecipe, Form, evaluations
from .digits import FAMILIES, digit_recipe

AVERAGED_ROTATIONS = 8
"""Test-time augmentation of the ++ rows."""

AVERAGED_ORIGINS = 5
"""The predicted origin and the four points one pixel from it."""


def recipes() -> Iterator[Recipe]:
    """Yields the recipes on rotated MNIST in the order of the tables."""
    for form in FORMS:
        for family in FAMILIES:
            rows = evaluations(f"rotmnist.{family}_s")
            yield digit_recipe("rotmnist", f"{family}_s", form, augmented=False, evaluations=rows)
        for family in FAMILIES:
            rows = evaluations(f"rotmnist.{family}_b.plus")
            if family == "ptn":
                rows = (*_with_rotations("rotmnist.ptn_b.plus"), EvaluationSpec("ablation.all"))
                if form == "modern":
                    rows += (EvaluationSpec("rotmnist.ptn_b.origins", origins=AVERAGED_ORIGINS),)
            yield digit_recipe("rotmnist", f"{family}_b", form, augmented=True, evaluations=rows)
        yield from _ablation(form)
    yield _large()


def ensembles() -> Iterator[EnsembleRecipe]:
    """Yields PTN-CNN in both forms, and ensembles of five seeds."""
    for form in FORMS:
        members = (f"rotmnist/ptn_b/{form}+", f"rotmnist/ccnn_b/{form}+")
        yield EnsembleRecipe(f"rotmnist/ptn_cnn_b/{form}+", members, _with_rotations("rotmnist.ptn_cnn_b.plus"))
    for model in ("ptn_b", "ptn_l"):
        member = f"rotmnist/{model}/modern+"
        rows = _with_rotations(f"rotmnist.{model}.x5_plus")
        yield EnsembleRecipe(f"{member}/ensemble", (member,), rows, seeds=(0, 1, 2, 3, 4))


def _large() -> Recipe:
    """Returns the recipe of PTN-L: a wider network with a higher rate and more dropout."""
    rows = (
        *_with_rotations("rotmnist.ptn_l.plus"),
        EvaluationSpec("rotmnist.ptn_l.origins", origins=AVERAGED_ORIGINS),
    )
    recipe = digit_recipe("rotmnist", "ptn_l", "modern", augmented=True, evaluations=rows)
    return replace(
        recipe,
        model=ModelSpec("ptn_l", {**recipe.model.options, "heatmap": "softplus"}),
        optimizer=OptimizerSpec(lr=0.01),
        dropout=0.3,
    )


def _ablation(form: Form) -> Iterator[Recipe]:
    """Yields PTN-B without origin jitter, rotation augmentation, wrap padding, and the frame of the image."""
    full = digit_recipe("rotmnist", "ptn_b", form, augmented=True, evaluations=evaluations("ablation.all"))
    options = full.model.options
    hidden = {key: value for key, value in options.items() if key not in ("frame", "padding_mode")}
    changes: dict[str, dict[str, Any]] = {
        "origin": {"origin_jitter_px": 0.0},
        "rotation": {"augment": replace(full.augment, rotation_deg=0.0)},
        "wrap": {"model": ModelSpec("ptn_b", {**options, "wrap": False})},
        "frame": {"model": ModelSpec("ptn_b", hidden)},
    }
    for name, change in changes.items():
        rows = evaluations(f"ablation.no_{name}")
        yield replace(full, name=f"{full.name}/no-{name}", evaluations=rows, **change)


def _with_rotations(id: str) -> tuple[EvaluationSpec, ...]:
    """Returns the evaluation of a + row and that of its ++ row."""
    return EvaluationSpec(id), EvaluationSpec(f"{id}plus", AVERAGED_ROTATIONS)
