"""Many runs at once: interleaved step by step on one GPU, one after the other on a CPU."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import torch

from ..errors import InputError
from ..evaluation.classify import DivergedError
from .recipe import Recipe
from .step import Parallel
from .trainer import Run, RunFailedError


@dataclass
class Stop:
    """Whether and why to stop before the end: a signal, or the budget."""

    deadline: float | None = None
    reason: str | None = None

    def asked(self) -> bool:
        if self.reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason = "the time budget is used up"
        return self.reason is not None


@dataclass
class FleetOutcome:
    """What became of the runs: those that are `done`, those that `failed` and why, those stopped on the way."""

    done: list[Run] = field(default_factory=list)
    failed: list[tuple[Run, str]] = field(default_factory=list)
    stopped: list[Run] = field(default_factory=list)
    reason: str | None = None


def train_fleet(
    runs: Sequence[Run],
    *,
    budget_seconds: float | None = None,
    on_done: Callable[[Run], None] | None = None,
    on_failed: Callable[[Run, str], None] | None = None,
) -> FleetOutcome:
    """Train `runs`, each giving the result it would give alone.

    On a GPU all advance together, each on its own stream; on a CPU one follows the other. A run that fails drops
    out and the others go on. When the budget is used up or the process is asked to stop (SIGINT, SIGTERM), every
    run writes a checkpoint and stops where it is. `on_done` is called as each run ends.
    """
    outcome = FleetOutcome()
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    together = any(run.device.type == "cuda" for run in runs)
    waves = [list(runs)] if together else [[run] for run in runs]
    with _stop_on_signals(Stop(deadline)) as stop:
        for wave in waves:
            _train_wave(wave, stop, outcome, on_done, on_failed)
    outcome.reason = stop.reason
    return outcome


def _train_wave(
    runs: list[Run],
    stop: Stop,
    outcome: FleetOutcome,
    on_done: Callable[[Run], None] | None,
    on_failed: Callable[[Run, str], None] | None,
) -> None:
    active: list[tuple[Run, Iterator[None]]] = [(run, run.steps()) for run in runs]
    clock = time.perf_counter()
    rounds = 0
    while active and not _asked_to_stop(stop, runs[0].parallel, rounds):
        rounds += 1
        for run, steps in list(active):
            try:
                if next(steps, _END) is not _END:
                    continue
                if on_done is not None:
                    on_done(run)
                outcome.done.append(run)
            except (RunFailedError, DivergedError) as error:
                reason = f"{run.recipe.name} seed {run.recipe.seed}: {error}"
                outcome.failed.append((run, reason))
                if on_failed is not None:
                    on_failed(run, reason)
            except torch.OutOfMemoryError as error:
                raise out_of_memory(run.recipe, run.device) from error
            active.remove((run, steps))
            clock = time.perf_counter()  # what the caller did with the result is not training
        now = time.perf_counter()
        total = sum(run.step.cost for run, _ in active)
        for run, _ in active:
            run.seconds += (now - clock) * run.step.cost / total
        clock = now
    for run, _ in active:
        run.save()
        outcome.stopped.append(run)


_END = object()

ROUNDS_BETWEEN_VOTES = 10


def _asked_to_stop(stop: Stop, parallel: Parallel | None, rounds: int) -> bool:
    """Whether to stop now. Processes that share a run stop together, or those left would wait for ever."""
    if parallel is None:
        return stop.asked()
    if rounds % ROUNDS_BETWEEN_VOTES or not parallel.anyone(stop.asked()):
        return False
    stop.reason = stop.reason or "another process was asked to"
    return True


def out_of_memory(recipe: Recipe, device: torch.device) -> InputError:
    """The error for a device without memory left, which says what to lower."""
    return InputError(
        f"{recipe.name}: {device} is out of memory: lower batch (--set batch={max(2, recipe.batch // 2)}), "
        "or train fewer runs at once (--at-once)"
    )


@contextmanager
def _stop_on_signals(stop: Stop) -> Iterator[Stop]:
    """Let SIGINT and SIGTERM ask for a clean stop while the block runs; a second SIGINT interrupts at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.reason = f"asked to by {signal.Signals(number).name}"
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
