"""Telling people how training goes: a live line per run on a terminal, plain lines elsewhere, TensorBoard."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..evaluation import describe_tta
from .records import Record
from .session import Reporter
from .trainer import Progress, Run

LINES_PER_RUN = 20

HARDLY_LEARNED = 0.8
"""Of the error of guessing the most frequent class: above it a run is told to go on for longer."""


def make_reporter() -> Reporter:
    """Live lines on a terminal, plain ones otherwise."""
    return LiveReporter() if sys.stdout.isatty() else PlainReporter()


def summarise(records: Sequence[Record]) -> str:
    """The end of a run in a line."""
    parts = [
        f"{record.row or record.model}: {record.test_error:.2f}% error{describe_tta(record.tta, record.origins)}"
        for record in records
        if record.test_error is not None
    ]
    first = records[0]
    source = first.metrics.get("source")
    on = f"{first.dataset} ({source})" if source == "regenerated" else first.dataset
    return f"{first.recipe} seed {first.seed} on {on}: {'; '.join(parts)} [{first.train_seconds:.1f} s]"


def advice(run: Run) -> str | None:
    """What to do about a run that has hardly begun to learn, where its test error alone might be misread."""
    counts = run.data.train.labels.bincount()
    guessing = 100 * (1 - counts.max().item() / counts.sum().item())
    error = run.history[-1]["train_error"]
    if error < HARDLY_LEARNED * guessing:
        return None
    return (
        f"in its last epoch it was wrong about {error:.0f}% of its training images, guessing would be about "
        f"{guessing:.0f}%: it has hardly begun to learn, so train for longer (--epochs)"
    )


def _with_advice(run: Run, line: str) -> str:
    more = advice(run)
    return line if more is None else f"{line}\n{run.recipe.name} seed {run.recipe.seed}: {more}"


def _speed(run: Run) -> float:
    """Training images a second of this run's share of the device."""
    seen = run.epoch * run.steps_per_epoch * run.batch
    return seen / run.seconds if run.seconds else 0.0


def _seconds_left(run: Run) -> float:
    return run.seconds / max(1, run.epoch) * (run.recipe.epochs - run.epoch)


class PlainReporter:
    """A line now and then, for logs."""

    def begin(self, run: Run) -> None:
        where = f", from epoch {run.epoch}" if run.epoch or run.position else ""
        print(f"{run.recipe.name} seed {run.recipe.seed}: {run.recipe.epochs} epochs on {run.device}{where}")

    def epoch(self, run: Run, progress: Progress) -> None:
        every = max(1, run.recipe.epochs // LINES_PER_RUN)
        if progress.epoch % every and not run.done:
            return
        valid = "" if progress.valid_error is None else f"  valid error {progress.valid_error:.2f}%"
        print(
            f"{run.recipe.name} seed {run.recipe.seed}  epoch {progress.epoch}/{run.recipe.epochs}  "
            f"loss {progress.loss:.4f}  train error {progress.train_error:.2f}%{valid}  "
            f"{_speed(run):,.0f} images/s  {_seconds_left(run):.0f} s left",
            flush=True,
        )

    def done(self, run: Run, records: Sequence[Record]) -> None:
        print(_with_advice(run, summarise(records)), flush=True)

    def failed(self, run: Run, reason: str) -> None:
        print(f"failed: {reason}", flush=True)

    def tested(self, records: Sequence[Record]) -> None:
        print(summarise(records), flush=True)

    def close(self) -> None:
        pass


class LiveReporter:
    """A line per run that is kept up to date."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        self.tasks: dict[int, Any] = {}

    def begin(self, run: Run) -> None:
        name = f"{run.recipe.name} seed {run.recipe.seed}"
        total, done = run.recipe.epochs, run.epoch
        self.tasks[id(run)] = self.bars.add_task(name, total=total, completed=done, state="starting")
        self.bars.start()

    def epoch(self, run: Run, progress: Progress) -> None:
        valid = "" if progress.valid_error is None else f"  valid {progress.valid_error:.2f}%"
        state = f"loss {progress.loss:.4f}  error {progress.train_error:.2f}%{valid}  {_speed(run):,.0f} images/s"
        self.bars.update(self.tasks[id(run)], completed=progress.epoch, state=state)

    def done(self, run: Run, records: Sequence[Record]) -> None:
        self._end(run, _with_advice(run, summarise(records)))

    def failed(self, run: Run, reason: str) -> None:
        self._end(run, f"failed: {reason}")

    def tested(self, records: Sequence[Record]) -> None:
        self.bars.console.print(summarise(records), highlight=False)

    def _end(self, run: Run, line: str) -> None:
        self.bars.remove_task(self.tasks.pop(id(run)))
        self.bars.console.print(line, highlight=False)

    def close(self) -> None:
        self.bars.stop()
        for task in self.tasks.values():
            self.bars.remove_task(task)
        self.tasks.clear()


class TensorBoardReporter:
    """Scalars for TensorBoard in each run's folder, beside another reporter."""

    def __init__(self, other: Reporter) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("--tensorboard needs tensorboard: pip install 'ptn[tensorboard]'") from None
        self.other = other
        self.open: Any = SummaryWriter
        self.writers: dict[int, Any] = {}

    def begin(self, run: Run) -> None:
        self.writers[id(run)] = self.open(str((run.folder or Path()) / "tensorboard"))
        self.other.begin(run)

    def epoch(self, run: Run, progress: Progress) -> None:
        writer = self.writers[id(run)]
        for name in ("loss", "train_error", "lr", "valid_error"):
            value = getattr(progress, name)
            if value is not None:
                writer.add_scalar(name, value, progress.epoch)
        self.other.epoch(run, progress)

    def done(self, run: Run, records: Sequence[Record]) -> None:
        writer = self.writers.pop(id(run))
        for record in records:
            looks = f"{record.tta}_rotations" + (f"_{record.origins}_origins" if record.origins > 1 else "")
            writer.add_scalar(f"test_error/{looks}", record.test_error, record.epochs)
        writer.close()
        self.other.done(run, records)

    def failed(self, run: Run, reason: str) -> None:
        self.writers.pop(id(run)).close()
        self.other.failed(run, reason)

    def tested(self, records: Sequence[Record]) -> None:
        self.other.tested(records)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.writers.clear()
        self.other.close()
