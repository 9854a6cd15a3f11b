"""Progress callbacks of a training session: a terminal, plain lines, TensorBoard."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import InputError
from ..evaluation import describe_tta
from .records import Record
from .trainer import Progress, Run

LINES_PER_RUN = 20

BARELY_LEARNED = 0.8
"""Fraction of the error of always predicting the most frequent class, above which a run has barely learned."""


class Reporter(Protocol):
    """Callbacks of a session."""

    def begin(self, run: Run) -> None: ...
    def epoch(self, run: Run, progress: Progress) -> None: ...
    def done(self, run: Run, records: Sequence[Record]) -> None: ...
    def failed(self, run: Run, reason: str) -> None: ...
    def tested(self, records: Sequence[Record]) -> None: ...
    def close(self) -> None: ...


def make_reporter(*, tensorboard: bool = False) -> Reporter:
    """Returns a reporter for standard output: progress bars on a terminal, plain lines otherwise."""
    reporter: Reporter = LiveReporter() if sys.stdout.isatty() else PlainReporter()
    return TensorBoardReporter(reporter) if tensorboard else reporter


def summarize(records: Sequence[Record]) -> str:
    """Returns the results of a run in one line."""
    parts = [
        f"{record.id or record.model}: {record.test_error:.2f}% error"
        f"{describe_tta(record.rotations, record.origins)}"
        for record in records
        if record.test_error is not None
    ]
    first = records[0]
    source = first.metrics.get("source")
    dataset = f"{first.dataset} ({source})" if source == "regenerated" else first.dataset
    return f"{first.recipe} seed {first.seed} on {dataset}: {'; '.join(parts)} [{first.train_seconds:.1f} s]"


def advice(run: Run) -> str | None:
    """Returns a hint to train longer if a run has barely learned, else None."""
    counts = run.data.train.labels.bincount()
    baseline = 100 * (1 - counts.max().item() / counts.sum().item())
    error = run.history[-1]["train_error"]
    if error < BARELY_LEARNED * baseline:
        return None
    return (
        f"the error on the training images of the last epoch is {error:.0f}%, that of always predicting the most "
        f"frequent class {baseline:.0f}%: train longer (--epochs)"
    )


def _final_lines(run: Run, records: Sequence[Record]) -> str:
    hint = advice(run)
    return summarize(records) + ("" if hint is None else f"\n{run.title}: {hint}")


def _speed(run: Run) -> float:
    """Training images per second."""
    images = run.epoch * run.steps_per_epoch * run.batch
    return images / run.seconds if run.seconds else 0.0


def _remaining_seconds(run: Run) -> float:
    return run.seconds / max(1, run.epoch) * (run.recipe.epochs - run.epoch)


class PlainReporter:
    """Prints plain lines, about 20 for each run."""

    def begin(self, run: Run) -> None:
        start = f", from epoch {run.epoch}" if run.epoch or run.position else ""
        print(f"{run.title}: {run.recipe.epochs} epochs on {run.device}{start}", flush=True)

    def epoch(self, run: Run, progress: Progress) -> None:
        if progress.epoch % max(1, run.recipe.epochs // LINES_PER_RUN) and not run.done:
            return
        valid = "" if progress.valid_error is None else f"  valid error {progress.valid_error:.2f}%"
        print(
            f"{run.title}  epoch {progress.epoch}/{run.recipe.epochs}  "
            f"loss {progress.loss:.4f}  train error {progress.train_error:.2f}%{valid}  "
            f"{_speed(run):,.0f} images/s  {_remaining_seconds(run):.0f} s left",
            flush=True,
        )

    def done(self, run: Run, records: Sequence[Record]) -> None:
        print(_final_lines(run, records), flush=True)

    def failed(self, run: Run, reason: str) -> None:
        print(f"failed: {reason}", flush=True)

    def tested(self, records: Sequence[Record]) -> None:
        print(summarize(records), flush=True)

    def close(self) -> None:
        pass


class LiveReporter:
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
        self.tasks: dict[int, Any] = {}

    def begin(self, run: Run) -> None:
        total, done = run.recipe.epochs, run.epoch
        self.tasks[id(run)] = self.bars.add_task(run.title, total=total, completed=done, state="starting")
        self.bars.start()

    def epoch(self, run: Run, progress: Progress) -> None:
        valid = "" if progress.valid_error is None else f"  valid {progress.valid_error:.2f}%"
        state = f"loss {progress.loss:.4f}  error {progress.train_error:.2f}%{valid}  {_speed(run):,.0f} images/s"
        self.bars.update(self.tasks[id(run)], completed=progress.epoch, state=state)

    def done(self, run: Run, records: Sequence[Record]) -> None:
        self._end(run, _final_lines(run, records))

    def failed(self, run: Run, reason: str) -> None:
        self._end(run, f"failed: {reason}")

    def tested(self, records: Sequence[Record]) -> None:
        self.bars.console.print(summarize(records), highlight=False, markup=False)

    def _end(self, run: Run, line: str) -> None:
        self.bars.remove_task(self.tasks.pop(id(run)))
        self.bars.console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self.bars.stop()
        for task in self.tasks.values():
            self.bars.remove_task(task)
        self.tasks.clear()


class TensorBoardReporter:
    """Writes scalars to `tensorboard/` in the folder of each run and passes all calls on to another reporter."""

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
        for name in ("loss", "train_error", "lr", "valid_error"):
            if (value := getattr(progress, name)) is not None:
                self.writers[id(run)].add_scalar(name, value, progress.epoch)
        self.other.epoch(run, progress)

    def done(self, run: Run, records: Sequence[Record]) -> None:
        writer = self.writers.pop(id(run))
        for record in records:
            tta = f"{record.rotations}_rotations" + (f"_{record.origins}_origins" if record.origins > 1 else "")
            writer.add_scalar(f"test_error/{tta}", record.test_error, record.epochs)
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
