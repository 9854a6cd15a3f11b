"""Metrics of a trained network beyond the test error: origins, accuracy by angle, shapes with a mesh."""

from dataclasses import replace
from typing import Any

import torch

from ptn.data import Dataset, VoxelDataset, load_dataset
from ptn.data.dataset import subset
from ptn.evaluation import ANGLES, accuracy_by_angle, evaluate, origin_error_px
from ptn.layers import PolarTransformer
from ptn.models import Model
from ptn.training.recipe import EvaluationSpec, Recipe
from ptn.training.session import load_split

ANGLE_STRIDE = 10
"""Accuracy by angle on SVHN is measured on every tenth test digit."""


def extra_metrics(
    model: Model, recipe: Recipe, test: Dataset | VoxelDataset, evaluation: EvaluationSpec
) -> dict[str, Any]:
    """Returns the metrics that tables and figures use; with test-time augmentation only those of meshes."""
    metrics: dict[str, Any] = {}
    if "from_points" in test.meta:
        metrics |= _of_meshes(model, recipe, test, evaluation)
    if (evaluation.rotations, evaluation.origins) != (1, 1):
        return metrics
    if isinstance(test, VoxelDataset):
        curve = accuracy_by_angle(model, test, precision=recipe.precision)
        metrics |= {"azimuth_deg": list(ANGLES), "azimuth_accuracy": _rounded(curve, 2)}
    transformer = getattr(model, "transformer", None)
    if "center" in test.meta and isinstance(transformer, PolarTransformer) and transformer.predictor is not None:
        metrics |= _of_origins(model, recipe, test)
    # the usual crops of SVHN digits, if the pixels around them are available
    usual = recipe.data.options.keys() <= {"training_tiles"} and recipe.data.test == "test"
    if usual and "svhn" in recipe.data.name and test.meta.get("source") != "official crops":
        metrics |= _by_angle(model, recipe)
    return metrics


def _of_origins(model: Model, recipe: Recipe, test: Dataset | VoxelDataset) -> dict[str, Any]:
    """Returns the errors of origins, also on the same images without clutter."""
    sets = {"": test}
    if test.meta.get("clutter"):
        spec = replace(recipe.data, options={**recipe.data.options, "clutter": 0})
        sets["_without_clutter"] = load_split(spec, spec.test)
    metrics: dict[str, float] = {}
    for suffix, dataset in sets.items():
        median, p90 = _rounded(origin_error_px(model, dataset), 3)
        metrics |= {f"origin_error_px_median{suffix}": median, f"origin_error_px_p90{suffix}": p90}
    return metrics


def _by_angle(model: Model, recipe: Recipe) -> dict[str, Any]:
    """Returns the accuracies on upright digits rotated by each angle and cropped from tiles, without a border."""
    tiles = load_dataset(recipe.data.name.removeprefix("rot"), "test", size=48)
    some = subset(tiles, torch.arange(0, len(tiles), ANGLE_STRIDE))
    _, height, width = model.input_shape
    curve = accuracy_by_angle(model, some, size=(height, width), precision=recipe.precision)
    return {"angle_deg": list(ANGLES), "angle_count": len(some), "angle_accuracy": _rounded(curve, 2)}


def _of_meshes(
    model: Model, recipe: Recipe, test: Dataset | VoxelDataset, evaluation: EvaluationSpec
) -> dict[str, Any]:
    """Returns the accuracies without the shapes that have no mesh and are voxelized from points."""
    meshes = subset(test, (~test.meta["from_points"]).nonzero()[:, 0])
    result = evaluate(model, meshes, rotations=evaluation.rotations, precision=recipe.precision)
    return {
        "mesh_count": result.n,
        "mesh_class_accuracy": round(result.class_accuracy, 4),
        "mesh_instance_accuracy": round(result.accuracy, 4),
    }


def _rounded(values: Any, digits: int) -> list[float]:
    return [round(value, digits) for value in values]
