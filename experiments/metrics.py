"""Metrics of a trained network beyond the test error: origins, accuracy by pose, shapes with a mesh, memory."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch
import torch.nn.functional as F

from ptn.data import Dataset, VoxelDataset, load_dataset
from ptn.data.dataset import AnyDataset, subset
from ptn.data.digits import Poses
from ptn.device import placement, precision_of
from ptn.evaluation import ANGLES, accuracy_by_angle, evaluate, origin_error_px
from ptn.evaluation.classify import Posed
from ptn.geometry import Similarity
from ptn.layers import PolarTransformer
from ptn.models import Model
from ptn.training.recipe import EvaluationSpec, Recipe
from ptn.training.session import load_split

ANGLE_STRIDE = 10
"""Accuracy by angle on SVHN is measured on every tenth test digit."""
AVERAGED_ROTATIONS = 5
"""Rotations of TTA for networks trained upright: steps of 72°, as strided networks repeat after 45° or 90°."""
POSE_CURVES: dict[str, tuple[Sequence[float], Callable[[float], Similarity]]] = {
    "angle_deg": (range(0, 360, 15), lambda degrees: Similarity(math.radians(degrees))),
    "shift_px": (range(9), lambda pixels: Similarity(shift_px=(pixels, -pixels))),
    "scale": ([tenths / 10 for tenths in range(5, 17)], lambda scale: Similarity(scale=scale)),
}
"""Changes of pose, one at a time, for which every fifth upright test digit is evaluated."""


def extra_metrics(model: Model, recipe: Recipe, test: AnyDataset, evaluation: EvaluationSpec) -> dict[str, Any]:
    """Returns the metrics that tables and figures use; with test-time augmentation only those of meshes."""
    metrics: dict[str, Any] = {}
    if "from_points" in test.meta:
        metrics |= _of_meshes(model, recipe, test, evaluation)
    if (evaluation.rotations, evaluation.origins) != (1, 1):
        return metrics
    if placement(model)[0].type == "cuda" and isinstance(test, Dataset):
        metrics["peak_memory_gb"] = _step_memory_gb(model, recipe, test)
    if recipe.data.name == "mnist-anywhere":
        metrics |= _by_pose(model, recipe)
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


def _of_origins(model: Model, recipe: Recipe, test: AnyDataset) -> dict[str, Any]:
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


def _by_pose(model: Model, recipe: Recipe) -> dict[str, Any]:
    """Returns the errors in each of `Poses`, and accuracies by angle, shift and scale.

    For rotated digits, also returns the errors of 6, of 9 and of the other classes.
    """
    metrics: dict[str, Any] = {}
    for poses in get_args(Poses):
        test = load_split(replace(recipe.data, options={**recipe.data.options, "poses": poses}), recipe.data.test)
        result = evaluate(model, test, precision=recipe.precision)
        metrics[f"{poses}_error"] = result.error
        if poses == "upright":
            assert isinstance(test, Dataset)
            metrics |= _pose_curves(model, recipe, subset(test, torch.arange(0, len(test), 5)))
        else:
            averaged = evaluate(model, test, rotations=AVERAGED_ROTATIONS, precision=recipe.precision)
            metrics[f"{poses}_error_averaged"] = averaged.error
        if poses == "rotated":
            wrong = result.confusion.sum(dim=1) - result.confusion.diagonal()
            shares = 100 * wrong / result.confusion.sum(dim=1)
            others = [label for label in range(10) if label not in (6, 9)]
            rest = 100 * wrong[others].sum() / result.confusion[others].sum()
            parts = zip(("6", "9", "others"), (shares[6], shares[9], rest), strict=True)
            metrics |= {f"rotated_error_{name}": round(float(value), 3) for name, value in parts}
    return metrics


def _pose_curves(model: Model, recipe: Recipe, upright: Dataset) -> dict[str, Any]:
    """Returns the amounts of `POSE_CURVES`, and the accuracies as "angle_accuracy" and so on."""
    curves: dict[str, Any] = {}
    for name, (amounts, pose) in POSE_CURVES.items():
        posed = [Posed(model, pose(amount)) for amount in amounts]
        accuracies = [evaluate(each, upright, precision=recipe.precision).accuracy for each in posed]
        curves |= {name: list(amounts), f"{name.partition('_')[0]}_accuracy": _rounded(accuracies, 2)}
    return curves


def _step_memory_gb(model: Model, recipe: Recipe, test: Dataset) -> float:
    """Returns the peak of GPU memory in a training step: with the network, its gradients and its optimizer."""
    device, _ = placement(model)
    images = test.images[: recipe.batch].to(device).float() / 255
    labels = test.labels[: recipe.batch].to(device)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    trained = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.0)
    for _ in range(2):
        with precision_of(recipe.precision, device):
            loss = F.cross_entropy(trained(images).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return round((torch.cuda.max_memory_allocated(device) - before) / 1e9, 3)


def _by_angle(model: Model, recipe: Recipe) -> dict[str, Any]:
    """Returns the accuracies on upright digits rotated by each angle and cropped from tiles, without a border."""
    tiles = load_dataset(recipe.data.name.removeprefix("rot"), "test", size=48)
    some = subset(tiles, torch.arange(0, len(tiles), ANGLE_STRIDE))
    _, height, width = model.input_shape
    curve = accuracy_by_angle(model, some, size=(height, width), precision=recipe.precision)
    return {"angle_deg": list(ANGLES), "angle_count": len(some), "angle_accuracy": _rounded(curve, 2)}


def _of_meshes(model: Model, recipe: Recipe, test: AnyDataset, evaluation: EvaluationSpec) -> dict[str, Any]:
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
