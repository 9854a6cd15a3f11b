"""Many runs at once: interleaved step by step on one GPU, one after the other on a CPU."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
    runs: Iterable[Run | Callable[[], Run]],
    *,
    at_once: int | None = None,
    budget_seconds: float | None = None,
    on_done: Callable[[Run], None] | None = None,
    on_failed: Callable[[Run, str], None] | None = None,
) -> FleetOutcome:
    """Train `runs`, each giving the result it would give alone.

    On a GPU up to `at_once` advance together (None: all), each on its own stream; on a CPU one follows the other.
    A run that ends makes room for the next; what makes a run is called only then. A run that fails drops out and
    the others go on. When the budget is used up or the process is asked to stop (SIGINT, SIGTERM), every run on its
    way writes a checkpoint and stops where it is, and no other begins. `on_done` is called as each run ends; its
    graph is given back after that.
    """
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    with _stop_on_signals(Stop(deadline)) as stop:
        fleet = _Fleet(deque(runs), stop, at_once, on_done, on_failed)
        try:
            fleet.train()
        except InputError:  # no room for one more, say: the others lose nothing
            fleet.save()
            raise
    if fleet.active or fleet.waiting:
        fleet.outcome.reason = stop.reason
    return fleet.outcome


@dataclass
class _Fleet:
    """Runs on their way (`active`), and those still `waiting` for room."""

    waiting: deque[Run | Callable[[], Run]]
    stop: Stop
    at_once: int | None
    on_done: Callable[[Run], None] | None
    on_failed: Callable[[Run, str], None] | None
    active: dict[Run, Iterator[None]] = field(default_factory=dict)
    parallel: Parallel | None = None
    outcome: FleetOutcome = field(default_factory=FleetOutcome)

    def train(self) -> None:
        if self.waiting:
            self._start_next()  # one at least, so that there is something to go on with
        self._fill()
        rounds = 0
        while self.active and not self._asked_to_stop(rounds):
            rounds += 1
            clock = time.perf_counter()
            ended = [run for run in list(self.active) if self._has_ended(run)]
            spent = time.perf_counter() - clock
            total = sum(run.step.cost for run in self.active)
            for run in self.active:
                run.seconds += spent * run.step.cost / total
                run.together = max(run.together, len(self.active))
            for run in ended:
                self._conclude(run)
            self._fill()
        self.save()
        self.outcome.stopped += self.active

    def save(self) -> None:
        for run in self.active:
            run.save()

    def _fill(self) -> None:
        """Start what waits as long as there is room and nobody asks to stop."""
        while self.waiting and self._has_room() and not self._asked_to_stop(0):
            self._start_next()

    def _has_room(self) -> bool:
        """On a CPU for one run."""
        on_gpu = all(run.device.type == "cuda" for run in self.active)
        return not self.active or (on_gpu and (self.at_once is None or len(self.active) < self.at_once))

    def _start_next(self) -> None:
        first = self.waiting[0]
        run = first if isinstance(first, Run) else first()
        self.waiting.popleft()
        self.parallel = run.parallel
        self.active[run] = run.steps()

    def _asked_to_stop(self, rounds: int) -> bool:
        """Whether to stop now. Processes that share a run stop together, or those left would wait for ever."""
        if self.parallel is None:
            return self.stop.asked()
        if rounds % ROUNDS_BETWEEN_VOTES or not self.parallel.anyone(self.stop.asked()):
            return False
        self.stop.reason = self.stop.reason or "another process was asked to"
        return True

    def _has_ended(self, run: Run) -> bool:
        """Advance `run` by a step. Whether it has come to its end; one that fails is no longer active."""
        with self._failing(run):
            return next(self.active[run], _END) is _END
        return False

    def _conclude(self, run: Run) -> None:
        with self._failing(run):
            if self.on_done is not None:
                self.on_done(run)
            del self.active[run]
            self.outcome.done.append(run)
            run.release()

    @contextmanager
    def _failing(self, run: Run) -> Iterator[None]:
        """What goes wrong with this run alone is told, and the others go on.

        A run that is out of memory stops the fleet. It is in the midst of a step, so its last checkpoint stays.
        """
        try:
            yield
        except (RunFailedError, DivergedError) as error:
            del self.active[run]
            reason = f"{run.recipe.name} seed {run.recipe.seed}: {error}"
            self.outcome.failed.append((run, reason))
            run.release()
            if self.on_failed is not None:
                self.on_failed(run, reason)
        except torch.OutOfMemoryError as error:
            del self.active[run]
            raise out_of_memory(run.recipe, run.device) from error


_END = object()

ROUNDS_BETWEEN_VOTES = 10


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
