"""The recipe that all digit data sets share: rotated MNIST, MNIST R, MNIST RTS and SIM2MNIST."""

from dataclasses import replace
from typing import Any

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, EvaluationSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

from .base import Form

FAMILIES = ("ptn", "pcnn", "ccnn", "stn")
CENTERED = ("rotmnist", "mnist-r")
"""Data sets whose digits are at the center of the image and of equal size."""

_PAPER = AugmentSpec(rotation_deg=180.0, mode="nearest")
_MODERN = {
    # chosen on the spare digits
    "rotmnist": AugmentSpec(rotation_deg=180.0, scale=(0.94, 1.06), aspect=1.5, mode="bicubic"),
    # MNIST R and RTS rotate by less than 180°, where a 6 upside down is a 9: only small changes keep the label
    "mnist-r": AugmentSpec(rotation_deg=30.0, mode="bicubic"),
    "mnist-rts": AugmentSpec(rotation_deg=15.0, scale=(0.9, 1.1), shift_px=2.0, mode="bicubic"),
    "sim2mnist": AugmentSpec(rotation_deg=180.0, mode="bicubic"),
}


def digit_recipe(
    dataset: str, model: str, form: Form, *, augmented: bool, evaluations: tuple[EvaluationSpec, ...]
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
        model=ModelSpec(model, _model_options(dataset, model, form)),
        augment=_PAPER if augmented else AugmentSpec(),
        epochs=epochs,
        batch=200,
        precision="bf16",
        evaluations=evaluations,
    )
    if form == "paper":
        return recipe
    if learns_origin:
        recipe = _modern_origins(recipe, augmented=augmented)
    # more epochs without augmentation help only the learned origin
    longer = dataset == "rotmnist" and (augmented or learns_origin)
    return replace(
        recipe,
        optimizer=OptimizerSpec(lr=0.005),
        epochs=300 if longer else min(epochs, 200),
        augment=_MODERN[dataset] if augmented else AugmentSpec(),
        label_smoothing=0.1,
        # dropout underfits the small networks on images without augmentation
        dropout=0.2 if augmented or dataset != "rotmnist" else 0.0,
        schedule=replace(recipe.schedule, kind="cosine"),
    )


def _model_options(dataset: str, model: str, form: Form) -> dict[str, Any]:
    options: dict[str, Any] = {"heatmap": "linear"} if model.startswith("ptn") else {}
    if form == "paper":
        # the order of the original code; it shows networks that resample images where they end
        return options if model.startswith("ccnn") else {**options, "padding_mode": "mean"}
    if options and dataset.startswith("sim2mnist"):
        # few digits reach further than 36 pixels from their center, and the inner 2 pixels carry little
        return {"heatmap": "softplus", "r_min_px": 2.0, "r_max_px": 36.0}
    if dataset in CENTERED and model.startswith(("ptn", "pcnn")):
        options |= {"frame": "disc", "mode": "bicubic"}
    if (dataset, model) == ("rotmnist", "ptn_s"):
        options["origin_turns"] = 4
    return options


def _modern_origins(recipe: Recipe, *, augmented: bool) -> Recipe:
    """Returns the recipe with the modern training of a learned origin."""
    dataset = recipe.data.name
    if dataset.startswith("sim2mnist"):
        return replace(recipe, origin_jitter_px=4.0)
    # where digits are centered, a predictor that learns from the start may settle on a part of the digit
    delay = 0.2 if dataset in CENTERED else 0.0
    # origin jitter hides the difference between 6 and 9 at any angle: it fades to zero
    fade = 0.6 if dataset == "rotmnist" else 0.0
    return replace(
        recipe,
        schedule=ScheduleSpec(origin_delay=delay, jitter_fade=fade),
        origin_jitter_px=3.0 if fade and augmented else None,
    )
