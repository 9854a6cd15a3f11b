"""Many runs: who starts when, who stops, and what is kept of those on their way."""

import itertools
import os
import signal
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from ptn import InputError
from ptn.training import Run
from ptn.training.fleet import train_fleet

CPU = torch.device("cpu")


def test_a_used_up_budget_stops_at_a_checkpoint(recipe, digits, tmp_path):
    run = Run(recipe, digits, CPU, tmp_path)
    outcome = train_fleet([run], budget_seconds=0)
    assert outcome.stopped == [run]
    assert outcome.reason == "the time budget is used up"
    assert (tmp_path / "checkpoint.safetensors").exists()


def makers(recipe, digits, count, made, folder=None):
    """What makes `count` runs, of an epoch each; each notes its seed in `made`."""

    def make(seed):
        made.append(seed)
        return Run(replace(recipe, seed=seed, epochs=1), digits, CPU, folder and folder / str(seed))

    return [partial(make, seed) for seed in range(count)]


def test_a_run_is_made_when_there_is_room_for_it(recipe, digits):
    made, ended = [], []
    runs = makers(recipe, digits, 3, made)
    outcome = train_fleet(runs, on_done=lambda run: ended.append((run.recipe.seed, list(made))))
    assert ended == [(0, [0]), (1, [0, 1]), (2, [0, 1, 2])]
    assert [run.together for run in outcome.done] == [1, 1, 1]


@pytest.fixture
def side_by_side(monkeypatch):
    """Runs on a CPU that advance together, as on a GPU."""
    monkeypatch.setattr("ptn.training.fleet._Fleet._has_room", lambda fleet: len(fleet.active) < 2)


def test_runs_share_the_time_and_make_room_for_each_other(recipe, digits, side_by_side):
    made, ended = [], []
    runs = makers(recipe, digits, 3, made)
    outcome = train_fleet(runs, on_done=lambda run: ended.append((run.recipe.seed, list(made))))
    assert ended == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1, 2])]
    assert [run.together for run in outcome.done] == [2, 2, 1]
    assert all(run.seconds > 0 for run in outcome.done)


def test_no_room_for_one_more_loses_nothing(recipe, digits, tmp_path, side_by_side):
    first = Run(recipe, digits, CPU, tmp_path)

    def too_large():
        raise InputError("the device is out of memory")

    with pytest.raises(InputError, match="out of memory"):
        train_fleet([first, *makers(recipe, digits, 1, []), too_large])
    again = Run(recipe, digits, CPU, tmp_path)
    assert again.resume()
    assert (again.epoch, again.position) == (first.epoch, first.position) != (0, 0)


def test_a_run_that_is_out_of_memory_in_a_step_keeps_its_last_checkpoint(recipe, digits, tmp_path, monkeypatch):
    whole = Run(recipe, digits, CPU)
    train_fleet([whole])
    run = Run(recipe, digits, CPU, tmp_path, checkpoint_every=1)
    step, count = run.step._begin, itertools.count()

    def begin(*given):
        if next(count) == run.steps_per_epoch + 1:
            raise torch.OutOfMemoryError
        return step(*given)

    monkeypatch.setattr(run.step, "_begin", begin)
    with pytest.raises(InputError, match="out of memory"):
        train_fleet([run])
    resumed = Run(recipe, digits, CPU, tmp_path)
    assert resumed.resume()
    assert (resumed.epoch, resumed.position) == (1, 0)
    train_fleet([resumed])
    left, right = (run.step.tensors() for run in (resumed, whole))
    assert [key for key in right if not torch.equal(left[key], right[key])] == []


def test_no_run_begins_once_somebody_asks_to_stop(recipe, digits, side_by_side):
    made = []

    def interrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        return makers(recipe, digits, 1, made)[0]()

    outcome = train_fleet([interrupted, *makers(recipe, digits, 3, made)])
    assert made == [0]
    assert outcome.reason == "asked to by SIGTERM"
    assert len(outcome.stopped) == 1


def test_a_budget_that_ends_after_the_last_run_stopped_nothing(recipe, digits, monkeypatch):
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr("ptn.training.fleet.time", clock)
    run = Run(replace(recipe, epochs=1), digits, CPU)
    outcome = train_fleet([run], budget_seconds=60, on_done=lambda run: now.append(now.pop() + 100))
    assert (outcome.done, outcome.reason) == ([run], None)
