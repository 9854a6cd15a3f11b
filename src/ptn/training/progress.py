"""Progress of a training session: progress bars on a terminal, plain lines otherwise."""

import sys
from collections.abc import Sequence
from typing import Any

from ..evaluation import describe_tta, origin_changes_px
from ..models import Model, count_parameters
from .records import Record
from .trainer import Progress, Run, chance_error

LINES_PER_RUN = 20
_TIMED_STEPS = 6  # after which the time of a run is estimated
_TITLE = 28  # characters of a title that fit into a line of 80


class PlainReporter:
    """Prints plain lines, about 20 for each run; `opening` comes before those of the first run."""

    def __init__(self, opening: str = "") -> None:
        self.opening = opening

    def begin(self, run: Run) -> None:
        if self.opening:
            self.print(self.opening)
            self.opening = ""
        self.print(f"{run.title}: {describe_choices(run)}")

    def step(self, run: Run) -> None:
        steps = run.epoch * run.steps_per_epoch + run.position
        if steps == _TIMED_STEPS and run.steps_per_epoch > _TIMED_STEPS:
            seconds = run.seconds / (steps - 1) * run.epochs * run.steps_per_epoch
            self.print(f"{run.title}: up to about {duration(seconds)}")

    def epoch(self, run: Run, progress: Progress) -> None:
        if progress.epoch % max(1, run.recipe.epochs // LINES_PER_RUN) == 0 or progress.epoch == 1 or run.done:
            remaining = duration(run.seconds / run.epoch * (run.epochs - run.epoch))
            self.print(f"{run.title}  epoch {progress.epoch}/{run.epochs}  {_describe(progress)}  {remaining} left")

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

    def __init__(self, opening: str = "") -> None:
        super().__init__(opening)
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.bars = Bars(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        self.tasks: dict[Run, Any] = {}

    def begin(self, run: Run) -> None:
        title = run.title if len(run.title) <= _TITLE else f"…{run.title[1 - _TITLE :]}"
        self.tasks[run] = self.bars.add_task("", title=title, state="starting")
        self.step(run)
        self.bars.start()
        super().begin(run)

    def step(self, run: Run) -> None:
        done, total = run.epoch * run.steps_per_epoch + run.position, run.epochs * run.steps_per_epoch
        self.bars.update(self.tasks[run], completed=done, total=total)

    def epoch(self, run: Run, progress: Progress) -> None:
        error = progress.train_error if progress.valid_error is None else progress.valid_error
        self.bars.update(self.tasks[run], state=f"{progress.epoch}/{run.epochs}  error {error:.1f}%")

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


def make_reporter(opening: str = "") -> PlainReporter:
    """Returns a reporter for standard output."""
    return (LiveReporter if sys.stdout.isatty() else PlainReporter)(opening)


def summarize(records: Sequence[Record]) -> str:
    """Returns the results of a run in one line."""
    parts = [
        f"{record.id or record.model}: {record.test_error:.2f}% error"
        f"{describe_tta(record.rotations, record.origins)}"
        for record in records
    ]
    first = records[0]
    return f"{first.recipe} seed {first.seed} on {first.dataset}: {'; '.join(parts)} [{first.train_seconds:.1f} s]"


def describe_choices(run: Run) -> str:
    """Returns the data, the network and the length of a run in one line."""
    recipe, train = run.recipe, run.data.train
    size = "×".join(map(str, train.image_shape[1:]))
    parts = [
        f"{len(train):,} images of {len(train.classes)} classes at {size}",
        f"{recipe.model.name} with {count_parameters(run.model):,} parameters",
        f"batches of {run.batch}",
        f"{'up to ' if recipe.patience or recipe.max_seconds else ''}{run.epochs} epochs on {run.device}",
    ]
    if 0 < recipe.patience < run.epochs:
        parts.append(f"fewer if the validation error does not improve for {recipe.patience}")
    if recipe.max_seconds is not None:
        parts.append(f"{duration(recipe.max_seconds)} at most")
    if run.epoch or run.position:
        parts.append(f"from epoch {run.epoch}")
    return ", ".join(parts)


def _describe(progress: Progress) -> str:
    """Loss and errors in one line."""
    valid = "" if progress.valid_error is None else f"  valid error {progress.valid_error:.2f}%"
    return f"loss {progress.loss:.4f}  train error {progress.train_error:.2f}%{valid}"


def duration(seconds: float) -> str:
    """Returns a time in seconds, minutes or hours.

    >>> duration(45), duration(600), duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def advice(run: Run, model: Model) -> list[str]:
    """Returns lines about a network that has not learned or whose origin is unstable, with what to try."""
    valid = run.data.valid
    if run.best_error is None or valid is None:
        return []
    lines = []
    chance = chance_error(valid)
    if run.best_error > 0.8 * chance:
        lines.append(
            f"the validation error ({run.best_error:.0f}%) is close to that of chance ({chance:.0f}%): nothing was "
            "learned. Check the labels, train longer (--resume --epochs N), or use larger images (--image-size)"
        )
    changes = origin_changes_px(model, valid.images)
    limit = max(valid.images.shape[-2:]) / 6  # the evidence locates objects to a few pixels only
    share = 0.0 if changes is None else (changes > limit).double().mean().item()
    # Networks with an origin beside the centre of the object can have small errors: no warning for those.
    if share > 0.1 and run.best_error > 0.1 * chance:
        lines.append(
            f"the origin is unstable: it moves by more than {limit:.0f} pixels for {share:.0%} of the validation "
            "images when they are rotated. Look at the report, train longer (--resume --epochs N), or compare with "
            "a network without an origin (--models ptn_b,ccnn_b)"
        )
    return lines
