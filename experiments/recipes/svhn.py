"""Recipes of Table 4: SVHN and ROTSVHN.

The paper gives no training procedure. `paper` is that of He et al. for small images, `modern` is ours.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

from .base import FORMS, EnsembleRecipe, Form, evaluations

MODELS = ("ptn_resnet32", "resnet32")
UPRIGHT_SETS = ("svhn", "svhn-minus")

# crops are cut from the whole tile, so that their borders contain image content
_TILES = {"training_tiles": True}
_R_MIN_PX, _JITTER_PX = 2.0, 0.5


def recipes() -> Iterator[Recipe]:
    """Yields the recipes in the order of the table."""
    for form in FORMS:
        for dataset in ("svhn", "rotsvhn", "svhn-minus", "rotsvhn-minus"):
            for model in MODELS:
                yield _recipe(dataset, model, form)
        for model in MODELS:
            yield _augmented(model, form)
    for model in MODELS:
        yield _scaled(model)
    yield from _resnet18()


def ensembles() -> Iterator[EnsembleRecipe]:
    """Yields, on upright digits, PTN-ResNet32 with ResNet32, and two seeds of ResNet32."""
    for dataset in UPRIGHT_SETS:
        ptn, plain = (f"{dataset}/{model}/modern" for model in MODELS)
        rows = evaluations(f"svhn.{dataset}.ptn_resnet32.with_resnet32")
        yield EnsembleRecipe(f"{ptn}/beside-resnet32", (ptn, plain), rows)
        yield EnsembleRecipe(f"{plain}/twice", (plain,), evaluations(f"svhn.{dataset}.resnet32.x2"), seeds=(0, 1))


def _recipe(dataset: str, model: str, form: Form) -> Recipe:
    """Returns the recipe of a network on one of the data sets of the paper."""
    learns_origin = model.startswith("ptn")
    recipe = Recipe(
        name=f"{dataset}/{model}/{form}",
        data=DataSpec(dataset),
        model=ModelSpec(model, {"heatmap": "linear"} if learns_origin else {}),
        optimizer=OptimizerSpec("sgd", lr=0.1, weight_decay=1e-4),
        # without a warm-up, neither network learns more than the class frequencies
        schedule=ScheduleSpec("steps", warmup=0.1),
        epochs=30,
        batch=128,
        precision="bf16",
        evaluations=evaluations(f"svhn.{dataset}.{model}"),
    )
    if form == "paper":
        return recipe
    upright = dataset in UPRIGHT_SETS
    if learns_origin:
        # chosen on a hold-out of the training digits
        chosen: dict[str, Any] = {"upright": True} if upright else {"angles": 64, "r_min_px": _R_MIN_PX}
        recipe = replace(
            recipe,
            model=ModelSpec(model, {"heatmap": "softplus", **chosen}),
            origin_jitter_px=None if upright else _JITTER_PX,
        )
    return replace(
        recipe,
        data=DataSpec(dataset, options=_TILES if upright else {}),
        optimizer=OptimizerSpec("sgd", lr=0.1, weight_decay=5e-4),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=AugmentSpec(
            rotation_deg=10.0 if upright else 0.0,
            scale=(0.9, 1.1),
            shift_px=2.0,
            mode="bicubic",
            crop_px=32 if upright else None,
            padding_mode="border",
            brightness=0.2,
            contrast=0.3,
            saturation=0.3,
            invert=0.25,
            cutout_px=10,
        ),
        epochs=40,
    )


def _augmented(model: str, form: Form) -> Recipe:
    """Returns the recipe on ROTSVHN with another random angle in every epoch, cut from the upright tiles."""
    recipe = _recipe("rotsvhn", model, form)
    return replace(
        recipe,
        name=f"{recipe.name}+",
        data=DataSpec("rotsvhn", options=_TILES),
        augment=replace(recipe.augment, rotation_deg=180.0, mode="bicubic", crop_px=32),
        evaluations=evaluations(f"svhn.rotsvhn.{model}.plus"),
    )


def _scaled(model: str) -> Recipe:
    """Returns the recipe on ROTSVHN with every tile shrunk by a random factor."""
    recipe = _recipe("rotsvhn", model, "paper")
    return replace(
        recipe,
        name=f"{recipe.name}/scaled",
        data=DataSpec("rotsvhn", options={"scale": [0.6, 1.0]}),
        evaluations=evaluations(f"svhn.rotsvhn.{model}.scaled"),
    )


def _resnet18() -> Iterator[Recipe]:
    """Yields timm's ResNet-18, polarized and plain, on about as many pixels: 128 × 72 polar, 96 × 96 Cartesian."""
    base = _augmented("resnet32", "modern")
    polar = {"angles": 128, "radii": 72, "r_min_px": _R_MIN_PX}
    for name, model, options, jitter in (
        ("ptn_resnet18", "timm:resnet18", polar, _JITTER_PX),
        ("resnet18", "timm-plain:resnet18", {"upsample": 3.0}, None),
    ):
        yield replace(
            base,
            name=f"rotsvhn/{name}/modern+",
            model=ModelSpec(model, options),
            origin_jitter_px=jitter,
            epochs=20,
            evaluations=evaluations(f"svhn.rotsvhn.{name}.plus"),
        )
