"""Recipes of Table 3: ModelNet40.

The paper gives no training procedure. `paper` is Adam with a cosine schedule and random rotations about z; `modern`
adds mirroring, dropout and label smoothing.
"""

from collections.abc import Iterator
from dataclasses import replace

from ptn.data.augment import AugmentSpec
from ptn.training.recipe import DataSpec, EvaluationSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

from .base import evaluations

VOTES = 9
"""Rotations that the voting row averages. Steps of 40° sample nine phases between two columns of the last feature
maps, which are 45° apart; steps of 45° would repeat a single phase."""


def recipes() -> Iterator[Recipe]:
    """Yields the recipes in the order of the table."""
    paper = Recipe(
        name="modelnet40/cylindrical/paper+",
        data=DataSpec("modelnet40", train="train+valid"),
        model=ModelSpec("cylindrical", {"heatmap": "linear"}),
        optimizer=OptimizerSpec(lr=1e-3),
        schedule=ScheduleSpec("cosine"),
        augment=AugmentSpec(rotation_deg=180.0),
        epochs=80,
        batch=32,
        precision="bf16",
        evaluations=evaluations("modelnet40.cylindrical"),
    )
    modern = replace(
        paper,
        name="modelnet40/cylindrical/modern+",
        augment=AugmentSpec(rotation_deg=180.0, mirror=True),
        epochs=60,
        dropout=0.3,
        label_smoothing=0.1,
    )
    cartesian = replace(
        modern,
        name="modelnet40/ccnn_3d/modern+",
        model=ModelSpec("ccnn_3d"),
        evaluations=evaluations("modelnet40.ccnn_3d"),
    )
    fixed_axis = replace(
        modern,
        name="modelnet40/cylindrical/modern+/fixed-axis",
        model=ModelSpec("cylindrical", {"origin": "center"}),
        evaluations=evaluations("modelnet40.cylindrical.fixed_axis"),
    )
    yield from (paper, modern, cartesian, fixed_axis)
    # accuracy by azimuth of networks that are trained on upright shapes only, in half as many epochs
    for rotated in (modern, cartesian, fixed_axis):
        yield replace(
            rotated,
            name=rotated.name.replace("modern+", "modern"),
            augment=replace(rotated.augment, rotation_deg=0.0),
            epochs=rotated.epochs // 2,
            evaluations=evaluations(f"{rotated.evaluations[0].id}.no_rotation"),
        )
    yield replace(
        paper,
        name="modelnet40/cylindrical_l/modern+",
        data=DataSpec("modelnet40", train="train+valid", options={"occupancy": "surface+solid", "size": 64}),
        model=ModelSpec("cylindrical_l"),
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
        origin_jitter_px=1.0,
        dropout=0.2,
        label_smoothing=0.1,
        evaluations=(
            EvaluationSpec("modelnet40.cylindrical_l"),
            EvaluationSpec("modelnet40.cylindrical_l.vote", VOTES),
        ),
    )
