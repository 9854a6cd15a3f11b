"""The recipes of Table 4: house numbers upright and turned, and what was tried to close the gap upright.

The paper gives no recipe; `paper` is He et al.'s for small images, `modern` ours.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from .recipe import FORMS, AugmentSpec, DataSpec, Form, ModelSpec, OptimizerSpec, Recipe, Row, ScheduleSpec
from .settings import override

SETS = ("svhn", "rotsvhn", "svhn-minus", "rotsvhn-minus")
UPRIGHT_SETS = ("svhn", "svhn-minus")
TITLES = {"ptn_resnet32": "PTN-ResNet32", "resnet32": "ResNet32"}
SCALE = [0.6, 1.0]


class Trial(NamedTuple):
    """A change to PTN-ResNet32's recipe, and the forms in which it is one."""

    changes: dict[str, Any]
    forms: tuple[Form, ...] = FORMS


def _options(**options: Any) -> dict[str, Any]:
    return {f"model.options.{name}": value for name, value in options.items()}


_TWO_STREAM = _options(two_stream=True)
_UPRIGHT_TWO_STREAM = _options(two_stream=True, stream_dropout=0.9, upright=True)

TRIALS: dict[str, Trial] = {
    "softplus heatmap": Trial(_options(heatmap="softplus"), ("paper",)),
    "linear heatmap": Trial(_options(heatmap="linear"), ("modern",)),
    "broad heatmap": Trial(_options(heatmap="softplus", heatmap_bias=4.0)),
    "64 angles": Trial(_options(angles=64, angle_stride=2)),
    "64 angles × 48 radii": Trial(_options(angles=64, angle_stride=2, radii=48)),
    "64 angles throughout": Trial(_options(angles=64), ("modern",)),
    "r_min ½ px": Trial(_options(r_min_px=0.5), ("paper",)),
    "r_min 2 px": Trial(_options(r_min_px=2.0), ("modern",)),
    "r_min 3 px": Trial(_options(r_min_px=3.0), ("modern",)),
    "linear radius": Trial(_options(law="linear")),
    "edge repeated": Trial(_options(padding_mode="border"), ("paper",)),
    "no wrap padding": Trial(_options(wrap=False), ("paper",)),
    "upright": Trial(_options(upright=True), ("modern",)),
    "upright, 64 angles throughout": Trial(_options(upright=True, angles=64), ("modern",)),
    "upright, linear radius": Trial(_options(upright=True, law="linear"), ("modern",)),
    "upright, two-stream": Trial(_UPRIGHT_TWO_STREAM, ("modern",)),
    "two-stream": Trial(_TWO_STREAM, ("paper",)),
    "two-stream, half the rate": Trial({**_TWO_STREAM, "optimizer.lr": 0.05}, ("modern",)),
    "two-stream, half the time one": Trial(_options(two_stream=True, stream_dropout=0.5), ("modern",)),
    "jitter ½ px": Trial({"origin_jitter_px": 0.5}, ("modern",)),
    "jitter fades": Trial({"schedule.jitter_fade": 0.5}, ("modern",)),
}
"""What may close the gap upright, beside a wider field."""

# what digits held out say a PTN should have by the modern recipe, where they are upright and where they turn
_CHOSEN_UPRIGHT = _options(upright=True)
_LEAST_RADIUS_PX, _JITTER_PX = 2.0, 0.5
_CHOSEN_TURNED = {**_options(angles=64, r_min_px=_LEAST_RADIUS_PX), "origin_jitter_px": _JITTER_PX}

# wide as the tile: beyond it there is nothing to sample
_WIDE = {"r_max_px": 24.0}
# a digit among others: a heatmap that cannot vanish
_MODERN_PTN = {"heatmap": "softplus"}
# crops are cut from the whole tile, so that what comes in at the border is what was there
_TILES = {"training_tiles": True}
_LIGHT: dict[str, Any] = {
    "brightness": 0.2,
    "contrast": 0.3,
    "saturation": 0.3,
    "invert": 0.25,
    "cutout_px": 10,
}


def photographs() -> Iterator[Recipe]:
    """Every recipe on house numbers, in the order of the table."""
    for form in FORMS:
        for dataset in SETS:
            for model in TITLES:
                yield _chosen(_plain(dataset, model, form))
        for model in TITLES:
            yield _chosen(_turned_anew(model, form))
    for dataset in UPRIGHT_SETS:
        yield _two_streams(dataset)
    for model in TITLES:
        yield _scaled(model)
    yield from _backbones()
    for form in FORMS:
        yield from _held_out(form)


def _plain(dataset: str, model: str, form: Form) -> Recipe:
    """A network on a data set of the paper."""
    ptn = model.startswith("ptn")
    recipe = Recipe(
        name=f"{dataset}/{model}/{form}",
        data=DataSpec(dataset),
        model=ModelSpec(model, {"heatmap": "linear"} if ptn else {}),
        form=form,
        rows=(Row("svhn", TITLES[model]),),
        optimizer=OptimizerSpec("sgd", lr=0.1, weight_decay=1e-4),
        # at 0.1 from the start, neither network learns more than how frequent classes are; He et al. warm up then
        schedule=ScheduleSpec("steps", warmup=0.1),
        epochs=30,
        batch=128,
        precision="bf16",
    )
    if form == "paper":
        return recipe
    upright = not _is_turned(dataset)
    return replace(
        recipe,
        data=DataSpec(dataset, options=_TILES if upright else {}),
        model=ModelSpec(model, _MODERN_PTN if ptn else {}),
        optimizer=OptimizerSpec("sgd", lr=0.1, weight_decay=5e-4),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=AugmentSpec(
            rotation_deg=10.0 if upright else 0.0,
            scale=(0.9, 1.1),
            shift_px=2.0,
            mode="bicubic",
            crop_px=32 if upright else None,
            padding_mode="border",
            **_LIGHT,
        ),
        epochs=40,
    )


def _is_turned(dataset: str) -> bool:
    return dataset not in UPRIGHT_SETS


def _turned_anew(model: str, form: Form) -> Recipe:
    """On ROTSVHN, turned by another angle in every epoch, from the upright tiles."""
    recipe = _plain("rotsvhn", model, form)
    turned: dict[str, Any] = {"rotation_deg": 180.0, "mode": "bicubic", "crop_px": 32}
    return replace(
        recipe,
        name=f"{recipe.name}+",
        data=DataSpec("rotsvhn", options=_TILES),
        rows=(Row("svhn", f"{TITLES[model]}+"),),
        augment=replace(recipe.augment, **turned),
    )


def _chosen(recipe: Recipe) -> Recipe:
    """The recipe with what was found out by trials, where they are for it."""
    if (recipe.model.name, recipe.form) != ("ptn_resnet32", "modern"):
        return recipe
    return _changed(recipe, _CHOSEN_TURNED if _is_turned(recipe.data.name) else _CHOSEN_UPRIGHT)


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """The recipe with changes, and still that of its form and rows."""
    return replace(override(recipe, changes), form=recipe.form, rows=recipe.rows)


def _two_streams(dataset: str) -> Recipe:
    """On upright digits, a PTN beside a network that sees the image itself."""
    recipe = _changed(_plain(dataset, "ptn_resnet32", "modern"), _UPRIGHT_TWO_STREAM)
    return replace(recipe, name=f"{recipe.name}/two-stream", rows=(Row("svhn", "PTN-ResNet32, two-stream"),))


def _scaled(model: str) -> Recipe:
    """On ROTSVHN with every tile shrunk by a factor of its own."""
    recipe = _plain("rotsvhn", model, "paper")
    return replace(
        recipe,
        name=f"{recipe.name}/scaled",
        data=DataSpec("rotsvhn", options={"scale": SCALE}),
        rows=(Row("svhn", f"{TITLES[model]}, scale 0.6–1"),),
    )


def _backbones() -> Iterator[Recipe]:
    """timm's ResNet-18 polarized and as it is, on as many pixels: 128 × 72 polar ones, 96 × 96 others."""
    like = _turned_anew("resnet32", "modern")
    polar = {"angles": 128, "radii": 72, "r_min_px": _LEAST_RADIUS_PX}
    for title, model, options, jitter in (
        ("PTN-ResNet18", "timm:resnet18", polar, _JITTER_PX),
        ("ResNet18", "timm-plain:resnet18", {"upsample": 3.0}, None),
    ):
        yield replace(
            like,
            name=f"rotsvhn/{title.lower().replace('-', '_')}/modern+",
            model=ModelSpec(model, options),
            origin_jitter_px=jitter,
            rows=(Row("svhn", f"{title}+"),),
            epochs=20,
        )


def _held_out(form: Form) -> Iterator[Recipe]:
    """On upright digits, trained on all but 6,000 of the training digits and tested on those."""
    for model, title in TITLES.items():
        plain = _plain("svhn", model, form)
        yield _choosing(plain, title, form)
        yield _choosing(_wider(plain), f"{title}, 48 px", form)
    ptn = _plain("svhn", "ptn_resnet32", form)
    for title, trial in TRIALS.items():
        if form in trial.forms:
            yield _choosing(override(ptn, trial.changes), f"PTN-ResNet32, {title}", form)


def _choosing(recipe: Recipe, title: str, form: Form) -> Recipe:
    return replace(
        recipe,
        name=f"svhn/holdout/{_as_name(title)}/{form}",
        form=form,
        data=replace(recipe.data, train="fit", test="valid"),
        rows=(Row("svhn-holdout", title),),
    )


def _wider(recipe: Recipe) -> Recipe:
    """The whole tile, 48 pixels wide: half as much again of what is around the digit."""
    options = {**recipe.model.options, **(_WIDE if recipe.model.name.startswith("ptn") else {})}
    return replace(
        recipe,
        data=DataSpec(recipe.data.name, options={"size": 48}),
        model=ModelSpec(recipe.model.name, options),
        augment=replace(recipe.augment, crop_px=None),
    )


def _as_name(title: str) -> str:
    """A title as part of a recipe's name, which becomes that of a folder."""
    words = title.lower().replace("×", "by").replace("½", "0.5").replace("_", "-").replace(",", "").split()
    return "-".join(words)
