"""Learning rates, weight decay and averages."""

import math

import pytest
import torch

import ptn
from ptn.training.optimise import AveragedWeights, learning_rates, make_optimizer, split_for_decay
from ptn.training.recipe import OptimizerSpec, ScheduleSpec


def test_cosine_falls_to_zero_after_the_warmup():
    rates = learning_rates(ScheduleSpec("cosine", warmup=0.1), 0.5, 100)
    assert rates[0].item() == pytest.approx(0.05)
    assert rates[9].item() == pytest.approx(0.5)
    assert rates[10].item() == pytest.approx(0.5)
    assert rates[55].item() == pytest.approx(0.5 * 0.5 * (1 + math.cos(math.pi * 0.5)))
    assert rates[99] < 0.001


def test_steps_fall_tenfold_at_each_milestone():
    rates = learning_rates(ScheduleSpec("steps"), 0.1, 100)
    expected = [0.1, 0.1, 0.01, 0.01, 0.001]
    assert [rates[i].item() for i in (0, 49, 50, 74, 75)] == pytest.approx(expected)


def test_constant_is_constant():
    assert learning_rates(ScheduleSpec(), 0.01, 10).unique().tolist() == pytest.approx([0.01])


def test_decay_spares_biases_norms_and_the_heatmap_layer():
    model = ptn.create_model("ptn_s")
    decayed, spared = split_for_decay(model)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in decayed} == {
        name for name in names.values() if name.endswith("conv.weight") or name == "classifier.head.weight"
    }
    assert "transformer.predictor.head.weight" in {names[id(p)] for p in spared}
    assert len(decayed) + len(spared) == len(names)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_decay_shrinks_what_it_is_for_and_nothing_else(kind):
    model = ptn.create_model("ptn_s")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, OptimizerSpec(kind, lr=0.1, weight_decay=0.5), torch.tensor(0.1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = dict(model.named_parameters())
    name = "classifier.head.weight"
    assert torch.allclose(after[name], before[name] * 0.95, atol=1e-6)
    for name in ("transformer.predictor.head.weight", "classifier.features.0.norm.weight"):
        assert torch.equal(after[name], before[name])


def test_the_rate_is_read_from_its_tensor():
    model = torch.nn.Linear(2, 1, bias=False)
    rate = torch.tensor(0.0)
    optimizer = make_optimizer(model, OptimizerSpec("sgd"), rate)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert torch.equal(model.weight, before)
    rate.fill_(0.5)
    optimizer.step()
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_origin_predictors_may_have_a_rate_of_their_own(decay):
    model = ptn.create_model("ptn_s")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    spec = OptimizerSpec("sgd", lr=0.1, weight_decay=decay)
    optimizer = make_optimizer(model, spec, torch.tensor(0.1), torch.tensor(0.0))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if not name.startswith("transformer.predictor.")}


def test_averaged_weights_follow_slowly():
    model = torch.nn.BatchNorm1d(3)
    average = AveragedWeights(model, 0.75)
    with torch.no_grad():
        model.weight.fill_(5)
    average.update()
    assert average.shadow["weight"].tolist() == [2, 2, 2]
    assert "num_batches_tracked" not in average.shadow
