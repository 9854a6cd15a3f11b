"""Progress of a training session: progress bars on a terminal, plain lines otherwise."""

import sys
from collections.abc import Sequence
from typing import Any

from ..evaluation import describe_tta
from .records import Record
from .trainer import Progress, Run

LINES_PER_RUN = 20


class PlainReporter:
    """Prints plain lines, about 20 for each run."""

    def begin(self, run: Run) -> None:
        start = f", from epoch {run.epoch}" if run.epoch or run.position else ""
        self.print(f"{run.title}: {run.recipe.epochs} epochs on {run.device}{start}")

    def epoch(self, run: Run, progress: Progress) -> None:
        epochs = run.recipe.epochs
        if progress.epoch % max(1, epochs // LINES_PER_RUN) == 0 or run.done:
            remaining = run.seconds / run.epoch * (epochs - run.epoch)
            state = _describe(run, progress)
            self.print(f"{run.title}  epoch {progress.epoch}/{epochs}  {state}  {remaining:.0f} s left")

    def done(self, run: Run, records: Sequence[Record]) -> None:
        self.print(summarize(records))

    def failed(self, run: Run, reason: str) -> None:
        self.print(f"failed: {reason}")

    def close(self) -> None:
        """Ends all output."""

    def print(self, line: str) -> None:
        print(line, flush=True)


class QuietReporter(PlainReporter):
    """Prints nothing."""

    def print(self, line: str) -> None:
        pass


class LiveReporter(PlainReporter):
    """Shows a progress bar for each active run."""

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
        self.tasks: dict[Run, Any] = {}

    def begin(self, run: Run) -> None:
        total, done = run.recipe.epochs, run.epoch
        self.tasks[run] = self.bars.add_task(run.title, total=total, completed=done, state="starting")
        self.bars.start()

    def epoch(self, run: Run, progress: Progress) -> None:
        self.bars.update(self.tasks[run], completed=progress.epoch, state=_describe(run, progress))

    def done(self, run: Run, records: Sequence[Record]) -> None:
        self.bars.remove_task(self.tasks.pop(run))
        super().done(run, records)

    def failed(self, run: Run, reason: str) -> None:
        self.bars.remove_task(self.tasks.pop(run))
        super().failed(run, reason)

    def close(self) -> None:
        self.bars.stop()

    def print(self, line: str) -> None:
        self.bars.console.print(line, highlight=False, markup=False)


def make_reporter() -> PlainReporter:
    """Returns a reporter for standard output."""
    return LiveReporter() if sys.stdout.isatty() else PlainReporter()


def summarize(records: Sequence[Record]) -> str:
    """Returns the results of a run in one line."""
    parts = [
        f"{record.id or record.model}: {record.test_error:.2f}% error"
        f"{describe_tta(record.rotations, record.origins)}"
        for record in records
    ]
    first = records[0]
    return f"{first.recipe} seed {first.seed} on {first.dataset}: {'; '.join(parts)} [{first.train_seconds:.1f} s]"


def _describe(run: Run, progress: Progress) -> str:
    """Loss, errors and speed in one line."""
    valid = "" if progress.valid_error is None else f"  valid error {progress.valid_error:.2f}%"
    images = run.epoch * run.steps_per_epoch * run.batch
    speed = images / run.seconds if run.seconds else 0.0
    return f"loss {progress.loss:.4f}  train error {progress.train_error:.2f}%{valid}  {speed:,.0f} images/s"
