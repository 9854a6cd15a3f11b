"""Progress of a session: plain lines in a log, live lines on a terminal."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.progress import LiveReporter, PlainReporter, advice, summarize
from ptn.training.session import make_record


@pytest.fixture
def run(recipe, digits):
    return Run(recipe, digits, torch.device("cpu"))


def train(run, reporter):
    """Trains a run with a reporter; returns its record."""
    run.on_epoch = reporter.epoch
    reporter.begin(run)
    train_fleet([run])
    record = replace(make_record(run, {}), test_error=12.5, status="done")
    reporter.done(run, [record])
    reporter.close()
    return record


def test_a_log_has_a_line_for_each_epoch_and_the_result(run, capsys):
    record = train(run, PlainReporter())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test/ptn_s seed 0: 3 epochs on cpu"
    assert [line.split("epoch ")[1].split()[0] for line in lines[1:4]] == ["1/3", "2/3", "3/3"]
    for word in ("loss", "train error", "images/s", "s left"):
        assert word in lines[1]
    assert lines[4] == summarize([record])
    assert "ptn_s: 12.50% error" in lines[4]


@pytest.mark.parametrize(("train_error", "advised"), [(20.0, False), (60.0, False), (80.0, True), (100.0, True)])
def test_a_run_that_has_barely_learned_is_advised_to_train_longer(run, train_error, advised):
    run.history.append({"train_error": train_error})
    hint = advice(run)
    assert (hint is not None and "--epochs" in hint) == advised


@pytest.mark.parametrize("interrupted", [False, True])
def test_live_lines_end_with_the_result_and_a_visible_cursor(run, interrupted):
    reporter, terminal = LiveReporter(), io.StringIO()
    reporter.bars.live.console = Console(file=terminal, force_terminal=True, width=160)
    if interrupted:
        reporter.begin(run)
        reporter.close()
    else:
        train(run, reporter)
        assert "% error" in terminal.getvalue()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")
