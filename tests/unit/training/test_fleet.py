"""Fleets: when runs start and stop, and which checkpoints they leave."""

import itertools
import os
import signal
import threading
from dataclasses import replace
from functools import partial

import pytest
import torch

from ptn import InputError
from ptn.training import Run
from ptn.training.fleet import train_fleet

CPU = torch.device("cpu")


def factories(recipe, digits, count, created):
    """Functions that create `count` runs of one epoch; each appends its seed to `created`."""

    def create(seed):
        created.append(seed)
        return Run(replace(recipe, seed=seed, epochs=1), digits, CPU)

    return [partial(create, seed) for seed in range(count)]


@pytest.fixture
def side_by_side(monkeypatch):
    """Interleaves two runs on the CPU, as on a GPU."""
    monkeypatch.setattr("ptn.training.fleet._Fleet._has_room", lambda fleet: len(fleet.active) < 2)


def test_interleaved_runs_share_the_time(recipe, digits, side_by_side):
    created, ended = [], []
    runs = factories(recipe, digits, 3, created)
    outcome = train_fleet(runs, on_done=lambda run: ended.append((run.recipe.seed, list(created))))
    assert ended == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1, 2])]
    assert all(run.seconds > 0 for run in outcome.done)


def test_a_run_that_cannot_be_created_leaves_checkpoints_of_the_others(recipe, digits, tmp_path, side_by_side):
    first = Run(recipe, digits, CPU, tmp_path)

    def too_large():
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="out of memory"):
        train_fleet([first, *factories(recipe, digits, 1, []), too_large])
    again = Run(recipe, digits, CPU, tmp_path)
    assert again.resume()
    assert (again.epoch, again.position) == (first.epoch, first.position) != (0, 0)


def test_out_of_memory_in_a_step_keeps_the_last_checkpoint(recipe, digits, tmp_path, monkeypatch):
    run = Run(recipe, digits, CPU, tmp_path, checkpoint_every=1)
    step, count = run.step._begin, itertools.count()

    def begin(*arguments):
        if next(count) == run.steps_per_epoch + 1:
            raise torch.OutOfMemoryError
        return step(*arguments)

    monkeypatch.setattr(run.step, "_begin", begin)
    with pytest.raises(InputError, match="out of memory: lower the batch size"):
        train_fleet([run])
    again = Run(recipe, digits, CPU, tmp_path)
    assert again.resume()
    assert (again.epoch, again.position) == (1, 0)


def test_no_run_starts_after_a_signal(recipe, digits, side_by_side):
    created = []

    def interrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        return factories(recipe, digits, 1, created)[0]()

    outcome = train_fleet([interrupted, *factories(recipe, digits, 3, created)])
    assert (created, outcome.done, outcome.reason) == ([0], [], "received SIGTERM")


def test_a_signal_during_the_last_test_is_reported(recipe, digits):
    run = Run(replace(recipe, epochs=1), digits, CPU)
    outcome = train_fleet([run], on_done=lambda run: os.kill(os.getpid(), signal.SIGINT))
    assert (outcome.done, outcome.reason) == ([run], "received SIGINT")


def test_a_fleet_can_be_trained_outside_the_main_thread(recipe, digits):
    outcomes = []
    run = Run(replace(recipe, epochs=1), digits, CPU)
    thread = threading.Thread(target=lambda: outcomes.append(train_fleet([run])))
    thread.start()
    thread.join()
    assert (outcomes[0].done, outcomes[0].reason) == ([run], None)
