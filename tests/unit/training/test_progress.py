"""Progress of a session: plain lines in a log, live lines on a terminal."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.progress import LiveReporter, PlainReporter, summarize
from ptn.training.session import make_record


def train(recipe, digits, reporter):
    """Trains a run with a reporter; returns its record."""
    run = Run(recipe, digits, torch.device("cpu"), on_epoch=reporter.epoch)
    reporter.begin(run)
    train_fleet([run])
    record = replace(make_record(run, {}), test_error=12.5, status="done")
    reporter.done(run, [record])
    reporter.close()
    return record


def test_a_log_has_a_line_for_each_epoch_and_the_result(recipe, digits, capsys):
    record = train(recipe, digits, PlainReporter())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("test/ptn_s seed 0: ")
    assert lines[0].endswith("3 epochs on cpu")
    assert [line.split("epoch ")[1].split()[0] for line in lines[1:4]] == ["1/3", "2/3", "3/3"]
    assert lines[4] == summarize([record])
    assert "ptn_s: 12.50% error" in lines[4]


@pytest.mark.parametrize("interrupted", [False, True])
def test_live_lines_end_with_the_result_and_a_visible_cursor(recipe, digits, interrupted):
    reporter, terminal = LiveReporter(), io.StringIO()
    reporter.bars.live.console = Console(file=terminal, force_terminal=True, width=160)
    if interrupted:
        reporter.begin(Run(recipe, digits, torch.device("cpu")))
        reporter.close()
    else:
        train(recipe, digits, reporter)
        assert "% error" in terminal.getvalue()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")
