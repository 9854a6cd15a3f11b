"""Recipes of Table 2 (MNIST R, MNIST RTS, SIM2MNIST), of unseen scales and angles, and of upright digits."""

from collections.abc import Iterator
from dataclasses import replace

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

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
    rows = evaluations("sim2mnist.ptn_b.frame")
    recipe = digit_recipe("sim2mnist", "ptn_b", "modern", augmented=False, evaluations=rows)
    options = {**recipe.model.options, "frame": "disc"}
    yield replace(recipe, name=f"{recipe.name}/frame", model=ModelSpec("ptn_b", options))
    for dataset in ("sim2mnist-larger", "sim2mnist-turned"):
        yield from _generalisation(dataset)
    for model in ("ptn_b", "ccnn_b"):
        yield _upright(model)


def _upright(model: str) -> Recipe:
    """Returns the recipe of a network trained on upright digits of one size, at any position; for a CPU."""
    # the predictor learns to follow a digit only if the positions of digits vary
    options = {"angles": 64, "origin_turns": 4} if model.startswith("ptn") else {}
    return Recipe(
        name=f"mnist-anywhere/{model}/modern/shifted",
        data=DataSpec("mnist-anywhere"),
        model=ModelSpec(model, options),
        optimizer=OptimizerSpec(lr=0.005),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=AugmentSpec(shift_px=8.0, mode="bicubic"),
        epochs=8,
        batch=100,
        origin_jitter_px=1.0 if options else None,
        label_smoothing=0.1,
    )


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
