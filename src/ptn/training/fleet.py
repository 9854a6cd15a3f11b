"""Fleets: several runs in one process, interleaved step by step on a GPU, one after the other on a CPU."""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Self

import torch

from ..device import Parallel
from ..errors import InputError
from ..evaluation import DivergedError
from .recipe import Recipe
from .trainer import Run

VOTE_EVERY = 10
"""Number of steps after which processes that share a run agree on whether to stop."""


@dataclass
class FleetOutcome:
    """Runs that are `done`, recipes that `failed` (with the reason), and the `reason` of an early stop."""

    done: list[Run] = field(default_factory=list)
    failed: list[tuple[Recipe, str]] = field(default_factory=list)
    reason: str | None = None


def train_fleet(
    runs: Iterable[Run | Callable[[], Run]],
    *,
    at_once: int | None = None,
    budget_seconds: float | None = None,
    on_done: Callable[[Run], None] = lambda run: None,
    on_failed: Callable[[Run, str], None] = lambda run, reason: None,
) -> FleetOutcome:
    """Trains several runs; each result is equal to that of training the run alone.

    A run that fails does not stop the others. When the budget is used up, or on SIGINT or SIGTERM, every active run
    writes a checkpoint and stops; also if a run cannot be created or memory is exhausted, which raise `InputError`.

    Args:
        runs: Runs, or functions that create one; these are called when a slot is free.
        at_once: Number of runs that share a GPU, each on a stream of its own; None for all. A CPU trains one.
        on_done: Called with each run that ends, before the memory of its step is freed.
        on_failed: Called with each run that fails, and the reason.
    """
    fleet = _Fleet(deque(runs), at_once, on_done, on_failed)
    with _Stop(budget_seconds) as stop:
        try:
            fleet.train(stop)
        except InputError:
            fleet.save()
            raise
        except torch.OutOfMemoryError as error:
            fleet.save()
            raise InputError(
                "out of memory: lower the batch size (--set batch=...), or train fewer runs at once (--at-once)"
            ) from error
        fleet.save()
        fleet.outcome.reason = fleet.outcome.reason or stop.reason  # a signal during the last test counts as well
    return fleet.outcome


class _Stop:
    """Whether and why to stop early. SIGINT and SIGTERM request a stop; a second SIGINT interrupts at once."""

    def __init__(self, budget_seconds: float | None) -> None:
        self.deadline = math.inf if budget_seconds is None else time.monotonic() + budget_seconds
        self.reason: str | None = None

    def requested(self) -> bool:
        if self.reason is None and time.monotonic() >= self.deadline:
            self.reason = "the time budget is used up"
        return self.reason is not None

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()  # only it may handle signals
        numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        self.before = {number: signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.reason = f"received {signal.Signals(number).name}"
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class _Fleet:
    """The `active` runs, each with its iterator over steps, and those `waiting` for a slot."""

    waiting: deque[Run | Callable[[], Run]]
    at_once: int | None
    on_done: Callable[[Run], None]
    on_failed: Callable[[Run, str], None]
    active: dict[Run, Iterator[None]] = field(default_factory=dict)
    parallel: Parallel | None = None
    rounds: int = 0
    outcome: FleetOutcome = field(default_factory=FleetOutcome)

    def train(self, stop: _Stop) -> None:
        while self.active or self.waiting:
            if self._must_stop(stop):
                self.outcome.reason = stop.reason or "another process stopped"
                return
            if self.waiting and self._has_room():
                self._start_next()
            else:
                self._advance()

    def save(self) -> None:
        for run in self.active:
            run.save()

    def _must_stop(self, stop: _Stop) -> bool:
        """True to stop now. Processes that share a run stop at the same step: a collective needs all of them."""
        if self.parallel is None:  # the first run starts in any case: there is then a checkpoint to resume
            return False
        if self.parallel.world > 1 and self.rounds % VOTE_EVERY:
            return False
        return self.parallel.any(stop.requested())

    def _has_room(self) -> bool:
        on_gpu = all(run.device.type == "cuda" for run in self.active)
        return not self.active or (on_gpu and (self.at_once is None or len(self.active) < self.at_once))

    def _start_next(self) -> None:
        first = self.waiting.popleft()
        run = first if isinstance(first, Run) else first()
        self.parallel = run.parallel
        self.active[run] = run.steps()

    def _advance(self) -> None:
        """Advances every run by one step and divides the time among them by the cost of their steps."""
        self.rounds += 1
        start = time.perf_counter()
        ended = []
        for run, steps in list(self.active.items()):
            with self._failures_of(run):
                if next(steps, "end") == "end":
                    ended.append(run)
        elapsed = time.perf_counter() - start
        total = sum(run.step.cost for run in self.active)
        for run in self.active:
            run.seconds += elapsed * run.step.cost / total
        for run in ended:
            with self._failures_of(run):
                self.on_done(run)
                del self.active[run]
                self.outcome.done.append(run)
                run.release()

    @contextmanager
    def _failures_of(self, run: Run) -> Iterator[None]:
        """Context manager: removes a run that fails; its last checkpoint is kept."""
        try:
            yield
        except DivergedError as error:
            del self.active[run]
            reason = f"{run.title}: {error}"
            self.outcome.failed.append((run.recipe, reason))
            run.release()
            self.on_failed(run, reason)
        except torch.OutOfMemoryError:
            del self.active[run]
            raise
