"""Voxels in training: packed bits to channels on the device, every way to augment, what records say of them."""

from dataclasses import replace

import pytest
import torch

from ptn.data import VoxelDataset
from ptn.models import create_model
from ptn.training import Run, RunData
from ptn.training.batches import Resident, Streamed, epoch_order
from ptn.training.fleet import train_fleet
from ptn.training.recipe import AugmentSpec, DataSpec, ModelSpec, Recipe, Row
from ptn.training.results import conclude_run
from ptn.training.trainer import can_fuse

CPU = torch.device("cpu")
SIZE = 8


def shapes(count, split="train", *, channels=2):
    """Two kinds of random shapes, thin and thick."""
    labels = torch.arange(count) % 2
    full = torch.rand(count, channels * SIZE**3 // 8, 8) < torch.where(labels == 0, 0.2, 0.7)[:, None, None]
    packed = (full * 2 ** torch.arange(7, -1, -1)).sum(dim=2).byte()
    meta = {"source": "made up", "sha256": "0", "from_points": torch.arange(count) % 5 == 4}
    return VoxelDataset("shapes", split, packed, SIZE, labels, ("thin", "thick"), meta)


@pytest.fixture
def recipe():
    return Recipe(
        name="test/cylindrical_l",
        data=DataSpec("modelnet40"),
        model=ModelSpec("cylindrical_l"),
        rows=(Row("modelnet40", "strong"), Row("modelnet40", "strong+vote", 3)),
        augment=AugmentSpec(
            rotation_deg=180,
            scale=(0.9, 1.1),
            shift_px=1,
            mirror=True,
            z_scale=(0.9, 1.1),
            z_shift_px=1,
            jitter=0.1,
            mode="bicubic",
        ),
        epochs=2,
        batch=8,
        origin_jitter_px=0.5,
        dropout=0.2,
    )


@pytest.mark.parametrize("kind", [Resident, Streamed])
def test_batches_are_the_unpacked_channels(kind):
    data = shapes(12)
    order = epoch_order(len(data), 4, seed=0, epoch=0)
    batches = kind(data, 3, 4, CPU)
    assert batches.shape == (2, SIZE, SIZE, SIZE)
    batches.start(order, 1)
    batches.prepare()
    images, labels = batches.load()
    assert images.dtype == torch.float32
    assert torch.equal(images, data.images[order[1]].float())
    assert torch.equal(labels, data.labels[order[1]])


@pytest.mark.parametrize("name", ["cylindrical", "cylindrical_l", "ccnn_3d"])
def test_steps_are_fused_on_a_gpu_and_nowhere_else(name, monkeypatch):
    model = create_model(name, num_classes=3, image_size=16)
    monkeypatch.setattr("ptn.training.trainer.find_spec", lambda module: module)  # as if Triton were there
    assert can_fuse(model, torch.device("cuda"))
    assert not can_fuse(model, torch.device("cpu"))
    assert not can_fuse(torch.nn.Linear(1, 1), torch.device("cuda"))


def test_a_stopped_run_goes_on_to_the_same_weights(recipe, tmp_path):
    data = RunData(shapes(16))
    straight = Run(recipe, data, CPU)
    train_fleet([straight])
    first = Run(recipe, data, CPU, tmp_path)
    steps = first.steps()
    for _ in range(3):
        next(steps)
    first.save()
    second = Run(recipe, data, CPU, tmp_path)
    assert second.resume()
    train_fleet([second])
    expected = straight.step.tensors()
    assert [key for key, value in second.step.tensors().items() if not torch.equal(value, expected[key])] == []


def test_every_augmentation_changes_what_the_network_learns(recipe):
    data = RunData(shapes(16))

    def learned(augment):
        run = Run(replace(recipe, augment=augment, epochs=1), data, CPU)
        train_fleet([run])
        return run.model.classifier.head.weight.detach()

    plain = learned(AugmentSpec())
    for change in ({"mirror": True}, {"z_scale": (0.8, 1.2)}, {"z_shift_px": 2.0}, {"jitter": 0.3}):
        assert not torch.equal(learned(AugmentSpec(**change)), plain), change


def test_records_have_accuracies_with_and_without_shapes_from_points_and_by_azimuth(recipe):
    run = Run(recipe, RunData(shapes(16)), CPU)
    train_fleet([run])
    test = shapes(10, "test")
    _, (single, vote) = conclude_run(run, test)
    for record in (single, vote):
        metrics = record.metrics
        assert metrics["mesh_count"] == 8
        assert {"mesh_class_accuracy", "mesh_instance_accuracy", "class_accuracy"} <= metrics.keys()
        right = round((100 - record.test_error) * 10 / 100)
        assert round(metrics["mesh_instance_accuracy"] * 8 / 100) in (right, right - 1, right - 2)
    assert (single.row, single.tta, vote.row, vote.tta) == ("strong", 1, "strong+vote", 3)
    assert len(single.metrics["azimuth_deg"]) == len(single.metrics["azimuth_accuracy"]) == 24
    assert single.metrics["azimuth_accuracy"][0] == pytest.approx(100 - single.test_error, abs=0.01)
    assert "azimuth_accuracy" not in vote.metrics
