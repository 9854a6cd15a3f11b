"""What people see while training: plain lines in a log, live lines on a terminal, nothing left behind."""

import io

import pytest
import torch
from rich.console import Console

from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.reporters import LiveReporter, PlainReporter, advice, summarise
from ptn.training.results import conclude_run, failed_records


@pytest.fixture
def run(recipe, digits):
    return Run(recipe, digits, torch.device("cpu"))


def test_a_log_gets_a_line_per_epoch_with_what_matters(run, digits, capsys):
    reporter = PlainReporter()
    run.on_epoch = reporter.epoch
    reporter.begin(run)
    train_fleet([run])
    _, records = conclude_run(run, digits.valid)
    reporter.done(run, records)
    reporter.close()
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "test/ptn_s seed 0: 3 epochs on cpu"
    assert [line.split("epoch ")[1].split()[0] for line in out[1:4]] == ["1/3", "2/3", "3/3"]
    for word in ("loss", "train error", "images/s", "s left"):
        assert word in out[1]
    assert out[4] == summarise(records)
    assert f"{records[0].test_error:.2f}% error" in out[4]


@pytest.mark.parametrize(("train_error", "told"), [(20.0, False), (60.0, False), (80.0, True), (100.0, True)])
def test_a_run_that_has_hardly_learned_is_told_to_go_on(run, digits, capsys, train_error, told):
    """Of ten classes about as frequent, guessing is wrong about nine in ten."""
    train_fleet([run])
    _, records = conclude_run(run, digits.valid)
    run.history[-1]["train_error"] = train_error
    PlainReporter().done(run, records)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == summarise(records)
    assert (advice(run) is not None) == told == (len(lines) == 2)
    if told:
        assert "--epochs" in lines[1]


def test_the_live_lines_end_with_the_result_and_show_the_cursor_again(run, digits):
    reporter = LiveReporter()
    terminal = io.StringIO()
    reporter.bars.live.console = Console(file=terminal, force_terminal=True, width=160)
    run.on_epoch = reporter.epoch
    reporter.begin(run)
    train_fleet([run])
    _, records = conclude_run(run, digits.valid)
    reporter.done(run, records)
    reporter.close()
    assert "% error" in terminal.getvalue()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_live_lines_that_are_interrupted_show_the_cursor_again(run):
    reporter = LiveReporter()
    terminal = io.StringIO()
    reporter.bars.live.console = Console(file=terminal, force_terminal=True, width=160)
    reporter.begin(run)
    reporter.close()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_a_failed_run_is_recorded_with_its_reason(run):
    [record] = failed_records(run, "the loss is not finite at step 3")
    assert record.status == "failed"
    assert record.test_error is None
    assert record.metrics == {"reason": "the loss is not finite at step 3"}
