"""Metrics of trained networks: origins, accuracy by angle, shapes with a mesh."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.metrics import extra_metrics
from experiments.recipes import find_recipe
from ptn import create_model
from ptn.data import Dataset, VoxelDataset
from ptn.training import EvaluationSpec
from ptn.training.session import load_split
from tests.unit.data.conftest import write_atlas

COUNT = 70
PLAIN = EvaluationSpec()


@pytest.fixture
def svhn(tmp_path, monkeypatch):
    """A small SVHN of random tiles: 70 for training and 70 for test."""
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    tiles = np.random.default_rng(0).integers(0, 256, (COUNT, 48, 48, 3), dtype=np.uint8)
    for split in ("train", "test"):
        write_atlas(tmp_path / "svhn", split, tiles, np.arange(COUNT) % 10)


@pytest.mark.usefixtures("svhn")
@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("svhn/resnet32/paper", True),
        ("svhn/resnet32/modern", True),
        ("rotsvhn-minus/resnet32/modern", True),
        ("rotsvhn/resnet32/paper/scaled", False),
    ],
)
def test_accuracy_by_angle_is_measured_on_the_usual_crops(name, measured):
    classes = 8 if "minus" in name else 10
    model = create_model("resnet32", num_classes=classes, in_chans=3, image_size=32).eval()
    recipe = replace(find_recipe(name), precision="fp32")
    metrics = extra_metrics(model, recipe, load_split(recipe.data, recipe.data.test), PLAIN)
    assert ("angle_accuracy" in metrics) == measured
    if measured:
        assert len(metrics["angle_accuracy"]) == len(metrics["angle_deg"]) == 24
        assert metrics["angle_count"] == math.ceil(COUNT * classes / 10 / 10)


def test_origin_errors_with_and_without_clutter(monkeypatch):
    """An untrained origin is the image center."""
    images = torch.zeros(4, 1, 42, 42, dtype=torch.uint8)
    centers = torch.tensor([[0.0, 0.0], [0.0, 2 / 21], [0.0, 2 / 21], [2 / 21, 0.0]])

    def digits(center, clutter):
        meta = {"center": center, "clutter": clutter}
        return Dataset("sim2mnist", "test", images, torch.arange(4), tuple("0123456789"), meta)

    specs = []
    monkeypatch.setattr(
        "experiments.metrics.load_split",
        lambda spec, split: specs.append((spec.options, split)) or digits(centers * 0, 0),
    )
    model = create_model("ptn_s", image_size=42).eval()
    recipe = find_recipe("sim2mnist/ptn_s/paper")
    metrics = extra_metrics(model, recipe, digits(centers, 4), PLAIN)
    assert specs == [({"clutter": 0}, "test")]
    assert metrics == {
        "origin_error_px_median": pytest.approx(2, abs=0.01),
        "origin_error_px_p90": pytest.approx(2, abs=0.01),
        "origin_error_px_median_without_clutter": pytest.approx(0, abs=0.01),
        "origin_error_px_p90_without_clutter": pytest.approx(0, abs=0.01),
    }
    assert extra_metrics(model, recipe, digits(centers, 4), EvaluationSpec(rotations=8)) == {}


def test_accuracy_by_azimuth_and_on_shapes_with_a_mesh():
    classes = tuple(map(str, range(40)))
    packed = torch.randint(0, 256, (6, 16**3 // 8), dtype=torch.uint8)
    from_points = torch.tensor([False, True, False, False, True, False])
    shapes = VoxelDataset("modelnet40", "test", packed, 16, torch.arange(6), classes, {"from_points": from_points})
    model = create_model("ccnn_3d", num_classes=40, image_size=16).eval()
    recipe = replace(find_recipe("modelnet40/ccnn_3d/modern+"), precision="fp32")
    metrics = extra_metrics(model, recipe, shapes, PLAIN)
    assert len(metrics["azimuth_accuracy"]) == len(metrics["azimuth_deg"]) == 24
    assert metrics["mesh_count"] == 4
    votes = extra_metrics(model, recipe, shapes, EvaluationSpec(rotations=2))
    assert set(votes) == {"mesh_count", "mesh_class_accuracy", "mesh_instance_accuracy"}
