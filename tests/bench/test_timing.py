"""Clocks and memory: that they measure what they say."""

import itertools
import math
import subprocess
import sys
import time

import pytest
import torch

from ptn.bench import timing
from ptn.bench.timing import (
    CALLS_IN_GRAPH,
    Effort,
    OtherWork,
    capture,
    peak_mib,
    summarise,
    time_together,
)

CPU = torch.device("cpu")


def test_contenders_take_turns_and_each_gets_its_own_time():
    calls = []

    def sleeper(name, seconds):
        def work():
            calls.append(name)
            time.sleep(seconds)

        return work

    times = time_together({"a": sleeper("a", 0.004), "b": sleeper("b", 0.012)}, CPU, Effort(seconds=0, rounds=3))
    assert times["a"].ms == pytest.approx(4, rel=0.5, abs=4)
    assert times["b"].ms > 1.5 * times["a"].ms
    assert times["a"].rounds == 3
    turns = [(name, len(list(group))) for name, group in itertools.groupby(calls)][-6:]
    assert [name for name, _ in turns] == ["a", "b"] * 3
    assert all(count > 1 for _, count in turns)  # the last of each turn is timed


@pytest.mark.parametrize(("spinning_for", "sleeps"), [(0, 1), (5, 6), (math.inf, 20)])
def test_threads_that_spin_are_waited_for_but_not_for_ever(monkeypatch, spinning_for, sleeps):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "process_time", lambda: 0.01 * min(len(slept), spinning_for))
    timing._settle()
    assert len(slept) == sleeps


def test_short_work_is_repeated_within_a_sample():
    count = 0

    def work():
        nonlocal count
        count += 1

    times = time_together({"quick": work}, CPU, Effort(seconds=0, rounds=2))
    assert count > 1000
    assert times["quick"].ms < 0.1


def test_the_median_and_the_quartiles():
    timing = summarise([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (timing.ms, timing.quartiles, timing.rounds) == (3.0, (2.0, 4.0), 5)
    assert summarise([7.0]).quartiles == (7.0, 7.0)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts the pages of a process")
def test_the_peak_of_memory_is_that_of_the_call():
    def work():
        torch.ones(3 * 2**20).mul(2)  # two tensors of 12 MiB at once

    assert peak_mib(work, CPU) == pytest.approx(24, abs=3)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how busy its cores are")
def test_other_processes_are_seen_and_our_own_work_is_not():
    watch = OtherWork()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    cores = watch.cores()
    assert cores is not None
    assert cores >= 0
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        watch = OtherWork()
        time.sleep(0.5)
        busy = watch.cores()
        other.kill()
    assert busy > 0.1


def test_the_calls_in_a_graph_share_its_time():
    assert summarise([40.0, 20.0, 60.0]).shared_by(20).ms == 2.0
    assert summarise([40.0, 20.0, 60.0]).shared_by(20).quartiles == (1.5, 2.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_graph_does_the_work_when_it_is_replayed():
    count = torch.zeros(1, device="cuda")
    replay = capture(lambda: count.add_(1), torch.device("cuda"))
    count.zero_()
    replay()
    assert count.item() == CALLS_IN_GRAPH
