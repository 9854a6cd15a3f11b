"""Recipes of Table 2 (MNIST R, MNIST RTS, SIM2MNIST) and of generalisation to unseen scales and angles."""

from collections.abc import Iterator
from dataclasses import replace

from ptn.training.recipe import DataSpec, ModelSpec, Recipe

from .base import FORMS, evaluations
from .digits import FAMILIES, digit_recipe


def recipes() -> Iterator[Recipe]:
    """Yields the recipes in the order of the tables."""
    for dataset in ("mnist-r", "mnist-rts", "sim2mnist"):
        for form in FORMS:
            for model in ("ptn_s", *(f"{family}_b" for family in FAMILIES)):
                # SIM2MNIST is trained without augmentation, despite the + in the paper's row names
                augmented = dataset != "sim2mnist"
                rows = evaluations(f"{dataset}.{model}{'.plus' if augmented else ''}")
                yield digit_recipe(dataset, model, form, augmented=augmented, evaluations=rows)
    rows = evaluations("sim2mnist.ptn_b.aug")
    yield digit_recipe("sim2mnist", "ptn_b", "modern", augmented=True, evaluations=rows)
    for dataset in ("sim2mnist-larger", "sim2mnist-turned"):
        yield from _generalisation(dataset)


def _generalisation(dataset: str) -> Iterator[Recipe]:
    """Yields recipes whose test set has other scales or angles than the training set; validation has the same."""
    for family in FAMILIES:
        rows = evaluations(f"generalisation.{dataset}.{family}_b")
        recipe = digit_recipe(dataset, f"{family}_b", "modern", augmented=False, evaluations=rows)
        recipe = replace(recipe, data=DataSpec(dataset, valid="valid"))
        yield recipe
        if family == "ptn":
            yield replace(
                recipe,
                name=f"{recipe.name}/turns",
                model=ModelSpec("ptn_b", {**recipe.model.options, "origin_turns": 4}),
                evaluations=evaluations(f"generalisation.{dataset}.ptn_b.origin_turns"),
            )
