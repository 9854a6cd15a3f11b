"""How far a command has come, for people: on standard error, so that standard output is the answer alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, plain lines elsewhere. Yields what to call with (done, total) where steps are known."""
    if not sys.stderr.isatty():
        print(what, file=sys.stderr)
        tenths = 0

        def report(done: int, total: int) -> None:
            nonlocal tenths
            if 10 * done // total > tenths:
                tenths = 10 * done // total
                print(f"{what}: {done} of {total}", file=sys.stderr)

        yield report
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)
