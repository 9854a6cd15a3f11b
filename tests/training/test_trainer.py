"""The loop: equal seeds give equal weights, alone or in a fleet, interrupted or not, resident or streamed."""

from dataclasses import replace

import pytest
import torch

from ptn import InputError, create_model
from ptn.models.inference import put_channels_last
from ptn.training import Run
from ptn.training.batches import epoch_order
from ptn.training.fleet import train_fleet
from ptn.training.recipe import ModelSpec
from ptn.training.trainer import RunFailedError, channel_statistics

CPU = torch.device("cpu")


def weights(run):
    return {key: value.clone() for key, value in run.step.tensors().items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    different = [key for key in a if not torch.equal(a[key], b[key])]
    assert different == []


def train(recipe, data, **options):
    run = Run(recipe, data, CPU, **options)
    train_fleet([run])
    return run


@pytest.fixture(scope="module")
def straight():
    """Finished runs, by recipe, so that each is trained once."""
    return {}


@pytest.fixture
def reference(straight, recipe, digits):
    if "run" not in straight:
        straight["run"] = train(recipe, digits)
    return straight["run"]


def test_training_learns_and_keeps_its_history(reference):
    losses = [epoch["loss"] for epoch in reference.history]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert reference.history[-1]["lr"] < 1e-3


def test_origins_begin_to_learn_when_the_schedule_says(recipe, digits):
    """Of 12 steps the first 6 leave the predictor as it was made, and the origin in the middle."""
    late = replace(recipe, schedule=replace(recipe.schedule, origin_delay=0.5))
    run = Run(late, digits, CPU)
    head, first = run.model.transformer.predictor.head, run.model.classifier.features[0].conv
    made, begun = head.weight.detach().clone(), first.weight.detach().clone()
    for count, _ in enumerate(run.steps(), start=1):
        assert torch.equal(head.weight, made) == (count <= 6)
        assert not torch.equal(first.weight, begun)
    assert count == 12


def test_the_jitter_of_origins_fades_when_the_schedule_says(recipe, digits):
    """Over the last 6 of 12 steps it falls to nothing; a number of one half moves nothing."""
    fading = replace(recipe, schedule=replace(recipe.schedule, jitter_fade=0.5))
    widths = {}
    for name, schedule in (("faded", fading), ("plain", recipe)):
        run = Run(schedule, digits, CPU)
        noise = run.model.transformer.jitter.noise
        widths[name] = [float((noise - 0.5).abs().max()) for _ in run.steps()]
    shares = [faded / plain for faded, plain in zip(widths["faded"], widths["plain"], strict=True)]
    assert shares == pytest.approx([1.0] * 7 + [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6], rel=1e-5)


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not(reference, recipe, digits):
    assert_equal(weights(train(recipe, digits)), weights(reference))
    other = train(replace(recipe, seed=1), digits)
    assert not torch.equal(other.model.classifier.head.weight, reference.model.classifier.head.weight)


def test_a_run_in_a_fleet_equals_that_run_alone(reference, recipe, digits):
    fleet = [Run(replace(recipe, seed=seed), digits, CPU) for seed in (2, 0, 1)]
    steps = [run.steps() for run in fleet]
    live = list(steps)
    while live:  # interleaved, as on a GPU
        for iterator in list(live):
            if next(iterator, "end") == "end":
                live.remove(iterator)
    assert_equal(weights(fleet[1]), weights(reference))


def test_the_global_generator_has_no_say(reference, recipe, digits):
    torch.manual_seed(99)
    torch.rand(3)
    assert_equal(weights(train(recipe, digits)), weights(reference))


@pytest.mark.parametrize("stop_after", [1, 3, 4, 7, 11])
def test_resumed_equals_straight_wherever_it_stopped(reference, recipe, digits, tmp_path, stop_after):
    stopped = Run(recipe, digits, CPU, tmp_path)
    for count, _ in enumerate(stopped.steps(), start=1):
        if count == stop_after:
            break
    stopped.save()
    resumed = Run(recipe, digits, CPU, tmp_path)
    assert resumed.resume()
    assert (resumed.epoch, resumed.position) == (stopped.epoch, stopped.position)
    train_fleet([resumed])
    assert_equal(weights(resumed), weights(reference))
    assert resumed.history == reference.history


@pytest.mark.parametrize("workers", [0, 1])
def test_streamed_batches_train_to_the_same_weights(reference, recipe, digits, workers):
    run = Run(recipe, digits, CPU, stream_data=True)
    run.batches.workers = workers
    train_fleet([run])
    assert_equal(weights(run), weights(reference))


def test_sgd_resumes_exactly_too(recipe, digits, tmp_path):
    sgd = replace(recipe, optimizer=replace(recipe.optimizer, kind="sgd", lr=0.05, weight_decay=1e-3))
    reference = train(sgd, digits)
    stopped = Run(sgd, digits, CPU, tmp_path)
    for count, _ in enumerate(stopped.steps(), start=1):
        if count == 5:
            break
    stopped.save()
    resumed = Run(sgd, digits, CPU, tmp_path)
    resumed.resume()
    train_fleet([resumed])
    assert_equal(weights(resumed), weights(reference))


def test_an_epoch_sees_every_sample_once_in_an_order_of_its_own():
    first = epoch_order(103, 10, seed=3, epoch=0)
    assert first.shape == (10, 10)
    assert len(first.unique()) == 100
    assert torch.equal(first, epoch_order(103, 10, seed=3, epoch=0))
    assert not torch.equal(first, epoch_order(103, 10, seed=3, epoch=1))
    assert not torch.equal(first, epoch_order(103, 10, seed=4, epoch=0))


def test_the_best_weights_on_validation_are_kept(recipe, digits):
    run = train(replace(recipe, selection="valid", data=replace(recipe.data, valid="valid"), epochs=4), digits)
    errors = [epoch["valid_error"] for epoch in run.history]
    assert run.best_error == min(errors)
    from ptn.evaluation import evaluate

    assert evaluate(run.finished_model(), digits.valid).error == min(errors)


def test_the_averaged_weights_are_the_finished_ones(reference):
    finished = reference.finished_model()
    shadow = reference.step.average.shadow["classifier.head.weight"]
    assert torch.equal(finished.classifier.head.weight, shadow)
    assert not torch.equal(finished.classifier.head.weight, reference.model.classifier.head.weight)
    assert not finished.training


def test_the_model_is_normalised_by_the_training_images(reference, digits):
    images = digits.train.images.double() / 255
    assert reference.model.mean.item() == pytest.approx(images.mean().item(), abs=1e-6)
    assert reference.model.std.item() == pytest.approx(images.std(correction=0).item(), abs=1e-6)


def test_channel_statistics_are_per_channel():
    images = torch.randint(0, 256, (5, 3, 7, 6), dtype=torch.uint8)
    mean, deviation = channel_statistics(images)
    values = images.double().transpose(0, 1).flatten(1) / 255
    assert torch.allclose(mean.double(), values.mean(1), atol=1e-6)
    assert torch.allclose(deviation.double(), values.std(1, correction=0), atol=1e-6)


def explode_at(run, step):
    """Let the loss become NaN at `step`."""
    load = run.batches.load

    def broken():
        images, labels = load()
        return (images * float("nan") if int(run.step.count) == step else images), labels

    run.batches.load = broken


def test_a_nan_loss_stops_that_run_alone_and_keeps_its_last_good_checkpoint(recipe, digits, tmp_path):
    bad = Run(recipe, digits, CPU, tmp_path / "bad", checkpoint_every=1)
    explode_at(bad, 6)
    good = Run(replace(recipe, seed=1), digits, CPU, tmp_path / "good", checkpoint_every=1)
    outcome = train_fleet([bad, good])
    assert outcome.done == [good]
    [(failed, reason)] = outcome.failed
    assert failed is bad
    assert "not finite at step 6" in reason
    assert "learning rate" in reason
    again = Run(recipe, digits, CPU, tmp_path / "bad")
    again.resume()
    assert again.epoch == 1
    assert all(torch.isfinite(p).all() for p in again.model.parameters())


def test_a_stop_after_the_loss_broke_does_not_spoil_the_checkpoint(recipe, digits, tmp_path):
    run = Run(recipe, digits, CPU, tmp_path, checkpoint_every=1)
    explode_at(run, 5)
    for count, _ in enumerate(run.steps(), start=1):
        if count == 7:
            break
    run.save()
    again = Run(recipe, digits, CPU, tmp_path)
    again.resume()
    assert (again.epoch, again.position) == (1, 0)


def test_failure_names_step_epoch_and_rate(recipe, digits):
    run = Run(recipe, digits, CPU)
    explode_at(run, 5)
    with pytest.raises(RunFailedError, match=r"step 5 \(epoch 2, learning rate 0\.00"):
        for _ in run.steps():
            pass


def test_a_checkpoint_of_other_settings_is_refused(recipe, digits, tmp_path):
    Run(recipe, digits, CPU, tmp_path).save()
    for other, says in (
        (replace(recipe, seed=5), "belongs to test/ptn_s seed 0"),
        (replace(recipe, dropout=0.1), "other settings"),
    ):
        with pytest.raises(InputError, match=says):
            Run(other, digits, CPU, tmp_path).resume()


def test_a_damaged_checkpoint_is_named(recipe, digits, tmp_path):
    run = Run(recipe, digits, CPU, tmp_path)
    run.save()
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not a checkpoint"):
        run.resume()


def test_a_device_without_memory_says_what_to_lower(recipe, digits):
    run = Run(recipe, digits, CPU)

    def full():
        raise torch.OutOfMemoryError("out of memory")

    run.step._step = full
    with pytest.raises(InputError, match=r"cpu is out of memory: lower batch \(--set batch=16\)"):
        train_fleet([run])


def test_a_step_may_run_before_the_epoch_starts_more_often_than_it_has_steps(reference, recipe, digits):
    """As capturing it on a GPU does; what that changes is put back."""
    run = Run(recipe, digits, CPU)
    kept = weights(run)
    state = run.step.generator.get_state()
    for _ in range(2 * run.steps_per_epoch + 1):
        run.step()
    for key, value in run.step.tensors().items():
        value.copy_(kept[key])
    run.step.generator.set_state(state)
    train_fleet([run])
    assert_equal(weights(run), weights(reference))


def test_channels_last_is_for_convolutions_of_images_and_of_volumes():
    model = create_model("cylindrical", image_size=8, num_classes=3).eval()
    volumes = torch.rand(2, 1, 8, 8, 8)
    before = model(volumes)
    put_channels_last(model)
    image, volume = model.transformer.polar.predictor.body[0].conv.weight, model.classifier.features[1].conv.weight
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert volume.is_contiguous(memory_format=torch.channels_last_3d)
    assert torch.allclose(model(volumes), before, atol=1e-5)
