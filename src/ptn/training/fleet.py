"""Fleets: several runs in one process, interleaved step by step on a GPU, one after the other on a CPU."""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import torch

from ..errors import InputError
from ..evaluation import DivergedError
from .distributed import Parallel
from .recipe import Recipe
from .trainer import Run, RunFailedError

VOTE_EVERY = 10
"""Number of steps after which processes that share a run agree on whether to stop."""


@dataclass
class FleetOutcome:
    """Runs that are `done`, that `failed` (with the reason), and that were `stopped`; `reason` of the stop."""

    done: list[Run] = field(default_factory=list)
    failed: list[tuple[Run, str]] = field(default_factory=list)
    stopped: list[Run] = field(default_factory=list)
    reason: str | None = None


def train_fleet(
    runs: Iterable[Run | Callable[[], Run]],
    *,
    at_once: int | None = None,
    budget_seconds: float | None = None,
    on_done: Callable[[Run], None] | None = None,
    on_failed: Callable[[Run, str], None] | None = None,
) -> FleetOutcome:
    """Trains several runs; each result is equal to that of training the run alone.

    A run that fails does not stop the others. When the budget is used up, or on SIGINT or SIGTERM, every active run
    writes a checkpoint and stops.

    Args:
        runs: Runs, or functions that create one; these are called when a slot is free.
        at_once: Number of runs that share a GPU, each on a stream of its own; None for all. A CPU trains one.
        on_done: Called with each run that ends, before the memory of its step is freed.
        on_failed: Called with each run that fails, and the reason.
    """
    stop = _Stop(None if budget_seconds is None else time.monotonic() + budget_seconds)
    fleet = _Fleet(deque(runs), stop, at_once, on_done, on_failed)
    with stop.on_signals():
        try:
            fleet.train()
        except InputError:  # such as too little memory for one more run
            fleet.save()
            raise
        fleet.save()
    fleet.outcome.stopped = list(fleet.active)
    if fleet.active or fleet.waiting:
        fleet.outcome.reason = stop.reason
    return fleet.outcome


@dataclass
class _Stop:
    """Whether and why to stop early: a signal, or the deadline."""

    deadline: float | None = None
    reason: str | None = None

    def requested(self) -> bool:
        if self.reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason = "the time budget is used up"
        return self.reason is not None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.reason = f"received {signal.Signals(number).name}"
        signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Context manager: SIGINT and SIGTERM request a stop; a second SIGINT interrupts at once."""
        in_main_thread = threading.current_thread() is threading.main_thread()  # only it may handle signals
        numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        before = {number: signal.signal(number, self.on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass
class _Fleet:
    """The `active` runs, each with its iterator over steps, and those `waiting` for a slot."""

    waiting: deque[Run | Callable[[], Run]]
    stop: _Stop
    at_once: int | None
    on_done: Callable[[Run], None] | None
    on_failed: Callable[[Run, str], None] | None
    active: dict[Run, Iterator[None]] = field(default_factory=dict)
    parallel: Parallel = field(default_factory=Parallel)
    outcome: FleetOutcome = field(default_factory=FleetOutcome)

    def train(self) -> None:
        if self.waiting:
            self._start_next()  # even if the budget is used up: there is then a checkpoint to resume
        self._fill()
        rounds = 0
        while self.active and not self._must_stop(rounds):
            rounds += 1
            start = time.perf_counter()
            ended = [run for run in list(self.active) if self._advance(run)]
            elapsed = time.perf_counter() - start
            total = sum(run.step.cost for run in self.active)
            for run in self.active:
                run.seconds += elapsed * run.step.cost / total
                run.together = max(run.together, len(self.active))
            for run in ended:
                self._conclude(run)
            self._fill()

    def save(self) -> None:
        for run in self.active:
            run.save()

    def _fill(self) -> None:
        """Starts waiting runs while slots are free."""
        while self.waiting and self._has_room() and not self._must_stop(0):
            self._start_next()

    def _has_room(self) -> bool:
        on_gpu = all(run.device.type == "cuda" for run in self.active)
        return not self.active or (on_gpu and (self.at_once is None or len(self.active) < self.at_once))

    def _start_next(self) -> None:
        first = self.waiting[0]
        run = first if isinstance(first, Run) else first()
        self.waiting.popleft()
        self.parallel = run.parallel
        self.active[run] = run.steps()

    def _must_stop(self, rounds: int) -> bool:
        """True to stop now. Processes that share a run stop at the same step: a collective needs all of them."""
        if (self.parallel.world > 1 and rounds % VOTE_EVERY) or not self.parallel.any(self.stop.requested()):
            return False
        self.stop.reason = self.stop.reason or "another process stopped"
        return True

    def _advance(self, run: Run) -> bool:
        """Advances a run by one step; returns True at its end."""
        with self._catch_failure(run):
            return next(self.active[run], _END) is _END
        return False

    def _conclude(self, run: Run) -> None:
        with self._catch_failure(run):
            if self.on_done is not None:
                self.on_done(run)
            del self.active[run]
            self.outcome.done.append(run)
            run.release()

    @contextmanager
    def _catch_failure(self, run: Run) -> Iterator[None]:
        """Removes a run that fails from the fleet. Out of memory stops the fleet; the last checkpoint is kept."""
        try:
            yield
        except (RunFailedError, DivergedError) as error:
            del self.active[run]
            reason = f"{run.title}: {error}"
            self.outcome.failed.append((run, reason))
            run.release()
            if self.on_failed is not None:
                self.on_failed(run, reason)
        except torch.OutOfMemoryError as error:
            del self.active[run]
            raise out_of_memory(run.recipe, run.device) from error


_END = object()


def out_of_memory(recipe: Recipe, device: torch.device) -> InputError:
    """Returns the error for a device without free memory, with the settings to lower."""
    return InputError(
        f"{recipe.name}: {device} is out of memory: lower batch (--set batch={max(2, recipe.batch // 2)}), "
        "or train fewer runs at once (--at-once)"
    )
