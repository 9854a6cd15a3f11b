"""Recipes of Table 1 and of the ablation: rotated MNIST."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import (
    DataSpec,
    EvaluationSpec,
    ModelSpec,
    OptimizerSpec,
    Recipe,
    ScheduleSpec,
)

from .base import FORMS, EnsembleRecipe, Form, evaluations

FAMILIES = ("ptn", "pcnn", "ccnn", "stn")
AVERAGED_ROTATIONS = 8
"""Test-time augmentation of the ++ rows."""

AVERAGED_ORIGINS = 5
"""The predicted origin and the four points one pixel from it."""

_ROTATIONS = {
    "paper": AugmentSpec(rotation_deg=180.0, mode="nearest"),
    "modern": AugmentSpec(rotation_deg=180.0, mode="bicubic"),
}
# MNIST R and RTS rotate by less than 180°, where a 6 upside down is a 9: only small changes keep the label
_SMALL_CHANGES = {
    "mnist-r": AugmentSpec(rotation_deg=30.0, mode="bicubic"),
    "mnist-rts": AugmentSpec(rotation_deg=15.0, scale=(0.9, 1.1), shift_px=2.0, mode="bicubic"),
}


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


def digit_recipe(
    dataset: str,
    model: str,
    form: Form,
    *,
    augmented: bool,
    evaluations: tuple[EvaluationSpec, ...],
    **changes: Any,
) -> Recipe:
    """Returns the recipe of a digit data set.

    `paper`: 30,000 steps of Adam at a constant learning rate. `modern`: a cosine schedule, dropout and label
    smoothing in fewer steps.
    """
    epochs = {"rotmnist": 500, "mnist-r": 100, "mnist-rts": 100}.get(dataset, 600)
    learns_origin = model.startswith("ptn")
    recipe = Recipe(
        name=f"{dataset}/{model}/{form}{'+' if augmented else ''}",
        data=DataSpec(dataset, train="train+valid" if dataset == "rotmnist" else "train"),
        model=ModelSpec(model, {"heatmap": "linear"} if learns_origin else {}),
        augment=_ROTATIONS[form] if augmented else AugmentSpec(),
        epochs=epochs,
        batch=200,
        precision="bf16",
        evaluations=evaluations,
    )
    if form == "modern":
        if learns_origin:
            recipe = _modern_origins(recipe, augmented=augmented)
        recipe = replace(
            recipe,
            optimizer=OptimizerSpec(lr=0.005),
            epochs=min(epochs, 200),
            augment=_SMALL_CHANGES.get(dataset, recipe.augment),
            label_smoothing=0.1,
            # dropout underfits the small networks on images without augmentation
            dropout=0.2 if augmented or dataset != "rotmnist" else 0.0,
            schedule=replace(recipe.schedule, kind="cosine"),
        )
    return replace(recipe, **changes)


def _modern_origins(recipe: Recipe, *, augmented: bool) -> Recipe:
    """Returns the recipe with the modern settings of a learned origin."""
    dataset = recipe.data.name
    if dataset.startswith("sim2mnist"):
        # few digits reach further than 36 pixels from their center, and the inner 2 pixels carry little
        options = {"heatmap": "softplus", "r_min_px": 2.0, "r_max_px": 36.0}
        return replace(recipe, model=ModelSpec(recipe.model.name, options), origin_jitter_px=4.0)
    # where digits are centered, a predictor that learns from the start may settle on a part of the digit
    delay = 0.2 if dataset in ("rotmnist", "mnist-r") else 0.0
    # origin jitter hides the difference between 6 and 9 at any angle: it fades to zero
    fade = 0.6 if dataset == "rotmnist" else 0.0
    return replace(
        recipe,
        schedule=ScheduleSpec(origin_delay=delay, jitter_fade=fade),
        origin_jitter_px=3.0 if fade and augmented else None,
    )


def _large() -> Recipe:
    """Returns the recipe of PTN-L: a wider network, more augmentation, origins averaged over 4 rotations."""
    rows = (
        *_with_rotations("rotmnist.ptn_l.plus"),
        EvaluationSpec("rotmnist.ptn_l.origins", origins=AVERAGED_ORIGINS),
    )
    recipe = digit_recipe("rotmnist", "ptn_l", "modern", augmented=True, evaluations=rows, dropout=0.3)
    return replace(
        recipe,
        model=ModelSpec("ptn_l", {"heatmap": "softplus", "origin_turns": 4}),
        augment=replace(recipe.augment, stretch=(0.8, 1.25)),
    )


def _ablation(form: Form) -> Iterator[Recipe]:
    """Yields PTN-B without origin jitter, without rotation augmentation and without wrap padding."""
    full = digit_recipe("rotmnist", "ptn_b", form, augmented=True, evaluations=evaluations("ablation.all"))
    changes: dict[str, dict[str, Any]] = {
        "origin": {"origin_jitter_px": 0.0},
        "rotation": {"augment": AugmentSpec()},
        "wrap": {"model": ModelSpec("ptn_b", {**full.model.options, "wrap": False})},
    }
    for name, change in changes.items():
        rows = evaluations(f"ablation.no_{name}")
        yield replace(full, name=f"{full.name}/no-{name}", evaluations=rows, **change)


def _with_rotations(id: str) -> tuple[EvaluationSpec, ...]:
    """Returns the evaluation of a + row and that of its ++ row."""
    return EvaluationSpec(id), EvaluationSpec(f"{id}plus", AVERAGED_ROTATIONS)
