"""Recipes of networks of other papers on rotated MNIST, of upright to anywhere, and of time to accuracy."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

from . import rotmnist
from .base import evaluations
from .digits import FAMILIES

DIVISORS = (1, 2, 4, 8)
"""Divisors of the number of epochs, in the recipes of time to accuracy."""


def recipes() -> Iterator[Recipe]:
    """Yields the recipes in the order of the tables."""
    published = [_published(*row) for row in _PUBLISHED]
    yield from published
    yield from _upright()
    timed = ("rotmnist/ptn_b/modern+", "rotmnist/ptn_l/modern+", "rotmnist/p4cnn/paper", "rotmnist/e2cnn/paper+")
    for recipe in (*rotmnist.recipes(), *published):
        if recipe.name in timed:
            yield from _timed(recipe)


# Name, batch size, epochs, learning rate and its schedule, as published, except the epochs of TI-Pooling.
_CONSTANT = ScheduleSpec()
_PUBLISHED: tuple[tuple[str, int, int, float, ScheduleSpec], ...] = (
    ("z2cnn", 128, 300, 0.001, _CONSTANT),
    ("p4cnn", 128, 100, 0.001, _CONSTANT),
    ("hnet", 46, 200, 0.0076, ScheduleSpec("decay")),
    ("ti_pooling", 64, 60, 0.0001, _CONSTANT),
    ("e2cnn", 64, 40, 0.015, ScheduleSpec("decay", decay_start=0.4, decay_every=1 / 40, decay_factor=0.8)),
)


def _published(name: str, batch: int, epochs: int, rate: float, schedule: ScheduleSpec) -> Recipe:
    """Returns the recipe of a network of another paper on all 12,000 digits."""
    augmented = name == "e2cnn"
    return Recipe(
        name=f"rotmnist/{name}/paper{'+' * augmented}",
        data=DataSpec("rotmnist", train="train+valid"),
        model=ModelSpec(name),
        optimizer=OptimizerSpec(lr=rate),
        schedule=schedule,
        augment=AugmentSpec(rotation_deg=180.0, mode="nearest") if augmented else AugmentSpec(),
        epochs=epochs,
        batch=batch,
        precision="tf32",
        evaluations=evaluations(f"peers.{name}", *[f"time.{name}.1"] * (name in ("p4cnn", "e2cnn"))),
    )


# Learning rates; those of the peers are the published ones except for E2CNN (0.015), which has fewer fields here.
_UPRIGHT_RATES = {
    **{f"{family}_b": 0.005 for family in FAMILIES},
    "p4cnn": 0.001,
    "hnet": 0.0076,
    "ric_cnn": 0.001,
    "e2cnn": 0.005,
}
_UPRIGHT_OPTIONS: dict[str, dict[str, Any]] = {
    "ptn_b": {"angles": 64, "heatmap": "contrast", "origin_turns": 4},
    "pcnn_b": {"angles": 64},
    "e2cnn": {"flips": False, "fields": [8, 12, 12, 12, 16, 24]},
}


def _upright() -> Iterator[Recipe]:
    """Yields the recipe of each network on upright digits in the middle: the same except for the learning rate."""
    for name, rate in _UPRIGHT_RATES.items():
        ours = name.endswith("_b")
        yield Recipe(
            name=f"mnist-anywhere/{name}/modern",
            data=DataSpec("mnist-anywhere"),
            model=ModelSpec(name, _UPRIGHT_OPTIONS.get(name, {})),
            optimizer=OptimizerSpec(lr=rate),
            schedule=ScheduleSpec("cosine", warmup=0.05),
            epochs=10,
            batch=100,
            label_smoothing=0.1,
            precision="bf16" if ours else "tf32",
            evaluations=evaluations(f"upright.{name}"),
        )


def _timed(recipe: Recipe) -> Iterator[Recipe]:
    """Yields a recipe with all its epochs and with fewer, by the same schedule."""
    model = recipe.model.name
    for divisor in DIVISORS:
        if divisor > 1 or model.startswith("ptn"):  # the others have this row in their first recipe
            epochs = recipe.epochs // divisor
            rows = evaluations(f"time.{model}.{divisor}")
            yield replace(recipe, name=f"{recipe.name}/{epochs}-epochs", epochs=epochs, evaluations=rows)
