"""Progress of a session: plain lines in a log, live lines on a terminal."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import ptn
from ptn.layers.origin import Location
from ptn.training import Run
from ptn.training.fleet import train_fleet
from ptn.training.progress import LiveReporter, PlainReporter, advice, summarize
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


class RandomOrigins(torch.nn.Module):
    def forward(self, x):
        return Location(2 * torch.rand(len(x), 2) - 1, x[:, 0])


@pytest.mark.parametrize(("error", "words"), [(2.0, []), (30.0, ["unstable"]), (85.0, ["chance", "unstable"])])
def test_unstable_origins_are_reported_where_they_cause_errors(digits, error, words):
    model = ptn.create_model("ptn_s", num_classes=10, image_size=28).eval()
    run = SimpleNamespace(data=SimpleNamespace(valid=digits.valid), best_error=error)
    assert len(advice(run, model)) == (error > 80)  # the first origins are the centre
    model.transformer.predictor = RandomOrigins()
    lines = advice(run, model)
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
