"""The recipe that all digit data sets share: rotated MNIST, MNIST R, MNIST RTS and SIM2MNIST."""

from dataclasses import replace

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, EvaluationSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

from .base import Form

FAMILIES = ("ptn", "pcnn", "ccnn", "stn")

_ROTATIONS = {
    "paper": AugmentSpec(rotation_deg=180.0, mode="nearest"),
    "modern": AugmentSpec(rotation_deg=180.0, mode="bicubic"),
}
# MNIST R and RTS rotate by less than 180°, where a 6 upside down is a 9: only small changes keep the label
_SMALL_CHANGES = {
    "mnist-r": AugmentSpec(rotation_deg=30.0, mode="bicubic"),
    "mnist-rts": AugmentSpec(rotation_deg=15.0, scale=(0.9, 1.1), shift_px=2.0, mode="bicubic"),
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
        model=ModelSpec(model, {"heatmap": "linear"} if learns_origin else {}),
        augment=_ROTATIONS[form] if augmented else AugmentSpec(),
        epochs=epochs,
        batch=200,
        precision="bf16",
        evaluations=evaluations,
    )
    if form == "paper":
        return recipe
    if learns_origin:
        recipe = _modern_origins(recipe, augmented=augmented)
    return replace(
        recipe,
        optimizer=OptimizerSpec(lr=0.005),
        epochs=min(epochs, 200),
        augment=_SMALL_CHANGES.get(dataset, recipe.augment),
        label_smoothing=0.1,
        # dropout underfits the small networks on images without augmentation
        dropout=0.2 if augmented or dataset != "rotmnist" else 0.0,
        schedule=replace(recipe.schedule, kind="cosine"),
    )


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
