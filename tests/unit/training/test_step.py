"""One optimization step: batches, learning rates, weight decay, counters."""

from types import SimpleNamespace

import pytest
import torch

import ptn
from ptn.data import VoxelDataset
from ptn.training import OptimizerSpec, Run, ScheduleSpec
from ptn.training.step import Batches, compiled, epoch_order, learning_rate, make_optimizer, tally

CPU = torch.device("cpu")


def test_an_epoch_has_every_sample_once_in_an_order_of_its_own():
    first = epoch_order(103, 10, seed=3, epoch=0)
    assert first.shape == (10, 10)
    assert len(first.unique()) == 100
    assert torch.equal(first, epoch_order(103, 10, seed=3, epoch=0))
    for seed, epoch in ((3, 1), (4, 0)):
        assert not torch.equal(first, epoch_order(103, 10, seed=seed, epoch=epoch))


def make_voxels(count, channels=2, size=8):
    generator = torch.Generator().manual_seed(0)
    packed = torch.randint(0, 256, (count, channels * size**3 // 8), dtype=torch.uint8, generator=generator)
    return VoxelDataset("shapes", "train", packed, size, torch.arange(count) % 2, ("thin", "thick"))


@pytest.mark.parametrize("voxels", [False, True])
def test_batches_are_the_samples_of_the_order_as_floats(digits, voxels):
    data = make_voxels(12) if voxels else digits.train
    order = epoch_order(12, 4, seed=0, epoch=0)
    batches = Batches(data, 3, 4, CPU)
    batches.start(order, 1)
    for step in (1, 2):
        images, labels = batches.load()
        assert images.shape[1:] == batches.shape
        assert torch.equal(images, data.images[order[step]].float() / (1 if voxels else 255))
        assert torch.equal(labels, data.labels[order[step]])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ScheduleSpec(), {0: 0.5, 99: 0.5}),
        (ScheduleSpec("steps"), {0: 0.5, 49: 0.5, 50: 0.05, 74: 0.05, 75: 0.005}),
        (ScheduleSpec("hold", warmup=0.1), {0: 0.05, 9: 0.5, 70: 0.5, 85: 0.25, 99: 0.00137}),
        (ScheduleSpec("cosine", warmup=0.1), {0: 0.05, 9: 0.5, 10: 0.5, 55: 0.25, 99: 0.00015}),
        (ScheduleSpec("decay"), {0: 0.5, 24: 0.5, 25: 0.05, 49: 0.05, 50: 0.005, 99: 0.0005}),
        (ScheduleSpec("decay", decay_start=0.4, decay_every=0.05, decay_factor=0.8), {39: 0.5, 40: 0.4, 45: 0.32}),
    ],
)
def test_learning_rates(spec, expected):
    rates = [learning_rate(spec, 0.5, step, 100) for step in range(100)]
    assert {step: rates[step] for step in expected} == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_weight_decay_is_not_for_biases_norms_and_the_heatmap_layer(kind):
    model = ptn.create_model("ptn_s")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, OptimizerSpec(kind, lr=0.1, weight_decay=0.5), torch.tensor(0.1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = dict(model.named_parameters())
    decayed = {name for name in before if not torch.equal(after[name], before[name])}
    assert decayed == {name for name in before if name.endswith("conv.weight") or name == "classifier.head.weight"}
    for name in decayed:
        assert torch.allclose(after[name], before[name] * 0.95, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_compiled_step_counts_correctly(recipe, digits):
    step = Run(recipe, digits, CPU).step
    names = ("loss_sum", "wrong", "count", "first_bad")
    counters = SimpleNamespace(**{name: getattr(step, name).clone() for name in names})
    compiled_tally = compiled(tally)
    for loss, wrong in ((1.5, 3), (0.25, 1), (float("inf"), 0), (float("nan"), 2)):
        compiled_tally(counters, torch.tensor(loss), torch.tensor(wrong))
        if loss == 0.25:
            assert float(counters.loss_sum) == 1.75
    assert (int(counters.wrong), int(counters.count), int(counters.first_bad)) == (6, 4, 2)
