"""The training loop: equal seeds give equal weights, alone or in a fleet, interrupted or not."""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from ptn import InputError, create_model
from ptn.config import override
from ptn.data import Dataset
from ptn.files import save_tensors
from ptn.layers.origin import centroid
from ptn.training import ModelSpec, Run, RunData, ScheduleSpec
from ptn.training.fleet import train_fleet
from ptn.training.step import EVIDENCE_SHARE, classify
from ptn.training.trainer import build_model, chance_error

CPU = torch.device("cpu")


def state(run):
    return {key: value.clone() for key, value in run.step.tensors().items()}


def different(a, b):
    assert a.keys() == b.keys()
    return [key for key in a if not torch.equal(a[key], b[key])]


def train(recipe, data, **options):
    run = Run(recipe, data, CPU, **options)
    train_fleet([run])
    return run


def stop_after(run, steps):
    for count, _ in enumerate(run.steps(), start=1):
        if count == steps:
            break
    run.save()


@pytest.fixture(scope="module")
def finished():
    return {}


@pytest.fixture
def reference(finished, recipe, digits):
    """The uninterrupted run of `recipe`, trained once."""
    if not finished:
        finished["run"] = train(recipe, digits)
    return finished["run"]


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not(reference, recipe, digits):
    torch.manual_seed(99)  # the global generator is not used
    assert different(state(train(recipe, digits)), state(reference)) == []
    assert different(state(train(replace(recipe, seed=1), digits)), state(reference)) != []
    assert reference.history[-1]["loss"] < reference.history[0]["loss"]


@pytest.mark.parametrize("steps", [4, 7])
def test_a_resumed_run_equals_an_uninterrupted_one(reference, recipe, digits, tmp_path, steps):
    stopped = Run(recipe, digits, CPU, tmp_path)
    stop_after(stopped, steps)
    resumed = Run(recipe, digits, CPU, tmp_path)
    assert resumed.resume()
    assert (resumed.epoch, resumed.position) == (stopped.epoch, stopped.position)
    train_fleet([resumed])
    assert different(state(resumed), state(reference)) == []
    assert resumed.history == reference.history


def test_origin_predictors_are_first_updated_after_the_delay(recipe, digits):
    run = Run(override(recipe, {"schedule.origin_delay": 0.5}), digits, CPU)
    head, first = run.model.transformer.predictor.head, run.model.classifier.features[0].conv
    initial_head, initial_first = head.weight.detach().clone(), first.weight.detach().clone()
    for count, _ in enumerate(run.steps(), start=1):
        assert torch.equal(head.weight, initial_head) == (count <= 6)
        assert not torch.equal(first.weight, initial_first)
    assert count == 12


def test_origin_jitter_fades_over_the_last_steps(recipe, digits):
    widths = {}
    for fade in (0.5, 0.0):
        run = Run(override(recipe, {"schedule.jitter_fade": fade}), digits, CPU)
        noise = run.model.transformer.jitter.noise
        widths[fade] = [float((noise - 0.5).abs().max()) for _ in run.steps()]
    ratios = [faded / plain for faded, plain in zip(widths[0.5], widths[0.0], strict=True)]
    assert ratios == pytest.approx([1.0] * 7 + [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6], rel=1e-5)


def test_the_model_has_the_normalization_of_each_channel_of_the_training_images(recipe):
    images = torch.randint(0, 256, (5, 3, 7, 6), dtype=torch.uint8)
    train_set = Dataset("noise", "train", images, torch.arange(5) % 2, ("a", "b"))
    model = build_model(override(recipe, {"model.name": "ccnn_s"}), train_set)
    values = images.double().transpose(0, 1).flatten(1) / 255
    assert torch.allclose(model.mean.double(), values.mean(1), atol=1e-6)
    assert torch.allclose(model.std.double(), values.std(1, correction=0), atol=1e-6)


def test_a_cropped_recipe_trains_on_crops(recipe):
    images = torch.randint(0, 256, (32, 3, 24, 24), dtype=torch.uint8)
    data = RunData(Dataset("noise", "train", images, torch.arange(32) % 2, ("a", "b")))
    settings = {"model.name": "resnet32", "augment.crop_px": 16, "augment.cutout_px": 4, "augment.brightness": 0.2}
    run = Run(override(recipe, settings), data, CPU)
    assert run.model.input_shape == (3, 16, 16)
    inputs = []
    run.model.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    next(run.steps())
    assert inputs[0].shape == (32, 3, 16, 16)
    assert 0 <= inputs[0].min() <= inputs[0].max() <= 1
    with pytest.raises(InputError, match=r"crop_px 25 is more than the images' 24"):
        Run(override(recipe, {"augment.crop_px": 25}), data, CPU)


def break_at(run, step):
    """Makes the loss NaN at `step`."""
    load = run.batches.load

    def broken():
        images, labels = load()
        return (images * float("nan") if int(run.step.count) == step else images), labels

    run.batches.load = broken


def test_a_nan_loss_stops_that_run_only_and_keeps_its_checkpoint(recipe, digits, tmp_path):
    bad = Run(recipe, digits, CPU, tmp_path / "bad", checkpoint_every=1)
    break_at(bad, 6)
    good = Run(replace(recipe, seed=1), digits, CPU, tmp_path / "good", checkpoint_every=1)
    outcome = train_fleet([bad, good])
    assert outcome.done == [good]
    [(failed, reason)] = outcome.failed
    assert failed is bad.recipe
    assert "not finite at step 6 (epoch 2, learning rate 0.00" in reason
    again = Run(recipe, digits, CPU, tmp_path / "bad")
    again.resume()
    assert again.epoch == 1
    assert all(torch.isfinite(p).all() for p in again.model.parameters())


def test_a_stop_after_a_nan_loss_keeps_the_last_good_checkpoint(recipe, digits, tmp_path):
    run = Run(recipe, digits, CPU, tmp_path, checkpoint_every=1)
    break_at(run, 5)
    stop_after(run, 7)
    again = Run(recipe, digits, CPU, tmp_path)
    again.resume()
    assert (again.epoch, again.position) == (1, 0)


def test_a_checkpoint_of_another_run_or_damaged_is_refused(recipe, digits, tmp_path):
    Run(recipe, digits, CPU, tmp_path).save()
    assert not Run(recipe, digits, CPU, tmp_path / "empty").resume()
    for other in (replace(recipe, seed=5), replace(recipe, dropout=0.1)):
        with pytest.raises(InputError, match="another recipe, seed or settings"):
            Run(other, digits, CPU, tmp_path).resume()
    with pytest.raises(InputError, match="another model"):
        Run(recipe, digits, CPU, tmp_path, network=create_model("ccnn_s", image_size=20)).resume()
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    save_tensors(path, {"weight": torch.zeros(1)}, {})
    for content in (path.read_bytes(), whole[:-100]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not a checkpoint"):
            Run(recipe, digits, CPU, tmp_path).resume()


def test_too_few_images_are_refused(recipe, digits):
    one = Dataset("few", "train", digits.train.images[:1], digits.train.labels[:1], tuple("0123456789"))
    with pytest.raises(InputError, match="too few"):
        Run(recipe, RunData(one), CPU)


def held(recipe, **changes):
    """A recipe that may end early."""
    data, schedule = replace(recipe.data, valid="valid"), ScheduleSpec("hold")
    return replace(recipe, data=data, schedule=schedule, selection="valid", **changes)


def test_a_run_ends_early_when_the_validation_error_stalls(recipe, digits, tmp_path, monkeypatch):
    errors = iter([80.0, 50.0, 60.0, 60.0, 60.0, *[70.0] * 20])
    monkeypatch.setattr(
        "ptn.training.trainer.evaluate", lambda *args, **options: SimpleNamespace(error=next(errors))
    )
    best = []
    run = Run(held(recipe, epochs=20, patience=3), digits, CPU, tmp_path)
    run.on_best = lambda run, model: best.append(run.epoch)
    deque(run.steps(), 0)
    assert best == [1, 2]
    assert (run.epoch, run.epochs) == (8, 8)  # the best epoch is 2, it stalls after 5, and 5 = 0.7 · 8 rounded up
    rates = [epoch["lr"] for epoch in run.history]
    assert rates[:5] == pytest.approx([0.01] * 5)
    assert rates[5] > rates[6] > rates[7]
    longer = Run(held(recipe, epochs=40, patience=3), digits, CPU, tmp_path)
    assert longer.resume()
    deque(longer.steps(), 0)
    assert longer.epoch == 18  # it stalls again after 12, three epochs after the first one at the higher rate


def test_errors_near_chance_do_not_end_a_run(recipe, digits, monkeypatch):
    chance = chance_error(digits.valid)
    assert 80 < chance < 90
    errors = SimpleNamespace(error=0.95 * chance)
    monkeypatch.setattr("ptn.training.trainer.evaluate", lambda *args, **options: errors)
    run = Run(held(recipe, epochs=6, patience=1), digits, CPU)
    deque(run.steps(), 0)
    assert run.epoch == 6


def test_a_run_ends_in_time(recipe, digits):
    run = Run(held(recipe, epochs=1000, max_seconds=10.0), digits, CPU)
    for steps, _ in enumerate(run.steps()):
        run.seconds = 2.0 * (steps + 1) / run.steps_per_epoch
    assert run.epoch == 5


def test_a_finished_run_continues_with_more_epochs(recipe, digits, tmp_path):
    short = Run(held(recipe, epochs=2), digits, CPU, tmp_path)
    deque(short.steps(), 0)
    longer = Run(held(recipe, epochs=5), digits, CPU, tmp_path)
    assert longer.resume()
    assert (longer.epoch, longer.epochs) == (2, 5)
    deque(longer.steps(), 0)
    assert len(longer.history) == 5
    with pytest.raises(InputError, match="another recipe"):
        Run(held(recipe, epochs=5, dropout=0.1), digits, CPU, tmp_path).resume()


def test_the_evidence_has_its_share_of_the_loss(recipe, digits):
    recipe = replace(recipe, model=ModelSpec("ptn_s", {"heatmap": "evidence"}), dropout=0.0)
    run = Run(recipe, digits, CPU)
    images, labels = digits.train.images[:8].float() / 255, digits.train.labels[:8]
    *parts, changes = run.model.eval()(images, with_evidence=True)
    logits_loss, evidence_loss = (F.cross_entropy(part, labels, label_smoothing=0.1) for part in parts)
    loss, _ = classify(run.model, images, labels, None, recipe, has_evidence=True)
    expected = (1 - EVIDENCE_SHARE) * logits_loss + EVIDENCE_SHARE * evidence_loss + changes.mean()
    assert torch.allclose(loss, expected)
    assert torch.allclose(run.model(images), parts[0], atol=1e-6)
    origins = [
        centroid(run.model.transformer.locate(run.model.normalize(x)).heatmap)[0]
        for x in (images, images.rot90(2, (2, 3)))
    ]
    assert changes[0].item() == pytest.approx(sum(origins).square().sum().item(), abs=1e-6)
    deque(run.steps(), 0)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
