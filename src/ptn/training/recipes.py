"""The named recipes: one per row of each table of the paper, in two forms.

`paper` is the paper's recipe, `modern` ours; a `+` says that training images are turned at random. All compute in
bfloat16 where that is safe (autocast), which is fastest on a GPU (`benchmarks/fleet.cuda.json`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError, unknown_name
from .photo_recipes import UPRIGHT_SETS, photographs
from .recipe import (
    FORMS,
    AugmentSpec,
    DataSpec,
    Form,
    ModelSpec,
    OptimizerSpec,
    Recipe,
    Row,
    ScheduleSpec,
)
from .records import Record
from .settings import recipe_from_dict

AVERAGED = 8
"""Rotations that the ++ rows average over."""

AROUND = 5
"""Origins that the rows called so average over: the one found, and those a pixel around it."""

VOTES = 9
"""Rotations that strong+vote averages over. By steps of 40° a shape is seen at nine different places between two
columns of the last feature maps, 45° apart; by steps of 45° it would be nine times, but for rounding, the same."""

_TURNS = {
    "paper": AugmentSpec(rotation_deg=180.0, mode="nearest"),
    "modern": AugmentSpec(rotation_deg=180.0, mode="bicubic"),
}
# where digits are turned by less than half a circle, an upside-down 6 is a 9: what is added is small
_SMALL_CHANGES = {
    "mnist-r": AugmentSpec(rotation_deg=30.0, mode="bicubic"),
    "mnist-rts": AugmentSpec(rotation_deg=15.0, scale=(0.9, 1.1), shift_px=2.0, mode="bicubic"),
}
_TITLES = {"ptn": "PTN", "pcnn": "PCNN", "ccnn": "CCNN", "stn": "STN"}


@dataclass(frozen=True)
class SumRecipe:
    """Networks trained apart that vote by the sum of their scores: no training of its own.

    `members` are recipes. With one member, the networks are its `seeds`; with several, each is taken with the
    same seed, and every seed is a result of its own.
    """

    name: str
    members: tuple[str, ...]
    form: Form
    rows: tuple[Row, ...]
    seeds: tuple[int, ...] = ()


def recipe_names() -> list[str]:
    """Every recipe by name, in the order of the tables."""
    return list(_RECIPES)


def find_recipe(name: str) -> Recipe:
    """The recipe called `name`, to be trained with seed 0."""
    if name not in _RECIPES:
        raise unknown_name("recipe", name, _RECIPES)
    return _RECIPES[name]


def sum_recipes() -> list[SumRecipe]:
    """The rows that are sums of trained networks."""
    return _SUMS


def is_outdated(record: Record) -> bool:
    """Whether a record's settings (of a run, or of the members of a sum) differ from what its recipe says now.

    One without settings is not outdated, nor one whose recipe is no longer known by name: nothing contradicts it.
    """
    own = [{"name": record.recipe, **record.config}] if record.config else []
    for said in record.config.get("members", own):
        current = _RECIPES.get(said.get("name", ""))
        try:
            if current is not None and recipe_from_dict(said).sha256 != current.sha256:
                return True
        except InputError:  # a setting that recipes no longer have
            return True
    return False


def _digit_recipe(dataset: str, model: str, form: Form, *, turned: bool, **changes: Any) -> Recipe:
    """A digit set's recipe: the paper's 30,000 steps of Adam at a constant rate, or ours."""
    epochs = {"rotmnist": 500, "mnist-r": 100, "mnist-rts": 100}.get(dataset, 600)
    splits = {"rotmnist": "train+valid"}.get(dataset, "train")
    options: dict[str, Any] = {"heatmap": "linear"} if model.startswith("ptn") else {}
    recipe = Recipe(
        name=f"{dataset}/{model}/{form}{'+' if turned else ''}",
        data=DataSpec(dataset, train=splits),
        model=ModelSpec(model, options),
        form=form,
        augment=_TURNS[form] if turned else AugmentSpec(),
        epochs=epochs,
        batch=200,
        precision="bf16",
    )
    if form == "modern":
        if dataset.startswith("sim2mnist") and options:
            # hardly a digit reaches further than 36 pixels from its middle, and none has much to tell within 2
            options = {"heatmap": "softplus", "r_min_px": 2.0, "r_max_px": 36.0}
            recipe = replace(recipe, model=ModelSpec(model, options), origin_jitter_px=4.0)
        # where digits lie in the middle, a predictor that learns from the start may settle on a part of them
        delay = 0.2 if options and dataset in ("rotmnist", "mnist-r") else 0.0
        # what tells a 6 from a 9 at any angle is lost when the origin moves: at the end it does not
        fade = 0.6 if options and dataset == "rotmnist" else 0.0
        if fade and turned:
            recipe = replace(recipe, origin_jitter_px=3.0)
        recipe = replace(
            recipe,
            optimizer=OptimizerSpec(lr=0.005),
            schedule=ScheduleSpec("cosine", origin_delay=delay, jitter_fade=fade),
            epochs=min(epochs, 200),
            augment=_SMALL_CHANGES.get(dataset, recipe.augment),
            label_smoothing=0.1,
            # the small networks on images that are not turned have too little room for it
            dropout=0.2 if turned or dataset != "rotmnist" else 0.0,
        )
    return replace(recipe, **changes)


def _rotated_mnist() -> Iterator[Recipe]:
    for form in FORMS:
        for family, title in _TITLES.items():
            rows: tuple[Row, ...] = (Row("rotmnist", f"{title}-S"),)
            yield _digit_recipe("rotmnist", f"{family}_s", form, turned=False, rows=rows)
        for family, title in _TITLES.items():
            rows = (Row("rotmnist", f"{title}-B+"),)
            if family == "ptn":
                rows = (*rows, Row("rotmnist", "PTN-B++", AVERAGED), Row("ablation", "all"))
            if family == "ptn" and form == "modern":
                rows = (*rows, Row("rotmnist", "PTN-B+ origins", origins=AROUND))
            yield _digit_recipe("rotmnist", f"{family}_b", form, turned=True, rows=rows)
        yield from _ablation(form)
    yield _joint()
    large = (
        Row("rotmnist", "PTN-L+"),
        Row("rotmnist", "PTN-L++", AVERAGED),
        Row("rotmnist", "PTN-L+ origins", origins=AROUND),
    )
    recipe = _digit_recipe("rotmnist", "ptn_l", "modern", turned=True, rows=large, dropout=0.3)
    yield replace(
        recipe,
        model=ModelSpec("ptn_l", {"heatmap": "softplus", "origin_turns": 4}),
        augment=replace(recipe.augment, stretch=(0.8, 1.25)),
    )


def _joint() -> Recipe:
    """PTN-B and CCNN-B as one network whose logits are summed, where PTN-CNN-B is the two trained apart."""
    alone = _digit_recipe("rotmnist", "ptn_b", "modern", turned=True)
    return replace(
        alone,
        name=f"{alone.name}/joint",
        model=ModelSpec("ptn_b", {**alone.model.options, "two_stream": True}),
        rows=(Row("rotmnist", "PTN-CNN-B joint"), Row("rotmnist", "PTN-CNN-B joint++", AVERAGED)),
    )


def _ablation(form: Form) -> Iterator[Recipe]:
    full = _digit_recipe("rotmnist", "ptn_b", form, turned=True)

    def without(what: str, **changes: Any) -> Recipe:
        name = f"{full.name}/no-{what.split()[0]}"
        return replace(full, name=name, rows=(Row("ablation", f"no {what}"),), **changes)

    yield without("origin aug.", origin_jitter_px=0.0)
    yield without("rotation aug.", augment=AugmentSpec())
    yield without("wrap padding", model=replace(full.model, options={**full.model.options, "wrap": False}))


def _other_digits() -> Iterator[Recipe]:
    for dataset in ("mnist-r", "mnist-rts", "sim2mnist"):
        for form in FORMS:
            for model in ("ptn_s", "ptn_b", "pcnn_b", "ccnn_b", "stn_b"):
                family, size = model.split("_")
                # the paper writes + on every row, SIM2MNIST's included, where nothing is augmented
                rows = (Row(dataset, f"{_TITLES[family]}-{size.upper()}+"),)
                yield _digit_recipe(dataset, model, form, turned=dataset != "sim2mnist", rows=rows)
    rows = (Row("sim2mnist", "PTN-B+ aug"),)
    yield _digit_recipe("sim2mnist", "ptn_b", "modern", turned=True, rows=rows)


def _generalisation() -> Iterator[Recipe]:
    """Trained on some sizes or angles and tested on others; the validation set has those of training."""
    for dataset in ("sim2mnist-larger", "sim2mnist-turned"):
        for family, title in _TITLES.items():
            rows = (Row("generalisation", f"{title}-B"),)
            data = DataSpec(dataset, valid="valid")
            recipe = _digit_recipe(dataset, f"{family}_b", "modern", turned=False, rows=rows, data=data)
            yield recipe
            if family == "ptn":
                yield replace(
                    recipe,
                    name=f"{recipe.name}/turns",
                    model=ModelSpec("ptn_b", {**recipe.model.options, "origin_turns": 4}),
                    rows=(Row("generalisation", "PTN-B, origin turns"),),
                )


def _voxels() -> Iterator[Recipe]:
    """The paper gives no recipe; `paper` is Adam with a cosine, every shape turned about z at random.

    `modern` does not learn shapes by heart. Its controls are trained alike, and all three without the turns, for
    accuracy against azimuth, half as long.
    """
    paper = Recipe(
        name="modelnet40/cylindrical/paper+",
        data=DataSpec("modelnet40", train="train+valid"),
        model=ModelSpec("cylindrical", {"heatmap": "linear"}),
        form="paper",
        rows=(Row("modelnet40", "Cylindrical Transformer"),),
        optimizer=OptimizerSpec(lr=1e-3),
        schedule=ScheduleSpec("cosine"),
        augment=AugmentSpec(rotation_deg=180.0),
        epochs=80,
        batch=32,
        precision="bf16",
    )
    modern = replace(
        paper,
        name="modelnet40/cylindrical/modern+",
        form="modern",
        augment=AugmentSpec(rotation_deg=180.0, mirror=True),
        epochs=60,
        dropout=0.3,
        label_smoothing=0.1,
    )
    cartesian = replace(
        modern,
        name="modelnet40/ccnn_3d/modern+",
        model=ModelSpec("ccnn_3d"),
        rows=(Row("modelnet40", "Cartesian control"),),
    )
    fixed = replace(
        modern,
        name=f"{modern.name}/fixed-axis",
        model=ModelSpec("cylindrical", {"origin": "center"}),
        rows=(Row("modelnet40", "Fixed axis"),),
    )
    yield from (paper, modern, cartesian, fixed)
    for turned in (modern, cartesian, fixed):
        yield replace(
            turned,
            name=turned.name.replace("modern+", "modern"),
            rows=(Row("modelnet40", f"{turned.rows[0].row}, no rotation aug."),),
            augment=replace(turned.augment, rotation_deg=0.0),
            epochs=turned.epochs // 2,
        )
    strong = "Cylindrical Transformer strong"
    yield replace(
        paper,
        name="modelnet40/cylindrical_l/modern+",
        data=DataSpec("modelnet40", train="train+valid", options={"occupancy": "surface+solid", "size": 64}),
        model=ModelSpec("cylindrical_l"),
        form="modern",
        rows=(Row("modelnet40", strong), Row("modelnet40", f"{strong}+vote", VOTES)),
        optimizer=OptimizerSpec(lr=1e-3, weight_decay=0.02),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=AugmentSpec(
            rotation_deg=180.0,
            scale=(0.85, 1.15),
            shift_px=2.0,
            mirror=True,
            z_scale=(0.85, 1.15),
            z_shift_px=2.0,
            jitter=0.02,
            mode="bicubic",
        ),
        epochs=80,
        origin_jitter_px=1.0,
        dropout=0.2,
        label_smoothing=0.1,
    )


def _quickstart() -> Iterator[Recipe]:
    """What `ptn quickstart` trains in minutes on a CPU; chosen on 800 of the 4,000 training digits, held out."""
    for model in ("ptn_s", "ccnn_s"):
        yield Recipe(
            name=f"quickstart/{model}/modern",
            data=DataSpec("quickstart"),
            model=ModelSpec(model),
            form="modern",
            schedule=ScheduleSpec("cosine", warmup=0.1),
            epochs=15,
            batch=50,
            label_smoothing=0.1,
        )


_RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipes in (_rotated_mnist, _other_digits, _generalisation, photographs, _voxels, _quickstart)
    for recipe in recipes()
}


def _sums() -> Iterator[SumRecipe]:
    for form in FORMS:
        rows = (Row("rotmnist", "PTN-CNN-B+"), Row("rotmnist", "PTN-CNN-B++", AVERAGED))
        members = tuple(f"rotmnist/{model}/{form}+" for model in ("ptn_b", "ccnn_b"))
        yield SumRecipe(f"rotmnist/ptn_cnn_b/{form}+", members, form, rows)
    for size in ("b", "l"):
        title = f"PTN-{size.upper()}"
        rows = (Row("rotmnist", f"{title}+ ×5"), Row("rotmnist", f"{title}++ ×5", AVERAGED))
        member = f"rotmnist/ptn_{size}/modern+"
        yield SumRecipe(f"{member}/ensemble", (member,), "modern", rows, seeds=(0, 1, 2, 3, 4))
    pairs = [(f"{name}/ptn_resnet32/modern", f"{name}/resnet32/modern", "svhn") for name in UPRIGHT_SETS]
    pairs += [("svhn/holdout/ptn-resnet32-upright/modern", "svhn/holdout/resnet32/modern", "svhn-holdout")]
    for ptn, plain, table in pairs:
        yield SumRecipe(f"{ptn}/beside-resnet32", (ptn, plain), "modern", (Row(table, "PTN-ResNet32 + ResNet32"),))
        yield SumRecipe(f"{plain}/twice", (plain,), "modern", (Row(table, "ResNet32 ×2"),), seeds=(0, 1))


_SUMS = list(_sums())
