"""Rows, what is left out, and the files they are kept in."""

import pytest
import torch

from ptn import InputError
from ptn.bench import Bench, Effort, PeerMissing, file_name, read_report, write_report
from ptn.bench.timing import Timing

QUICK = Effort(seconds=0, rounds=2)


@pytest.fixture
def bench():
    return Bench(torch.device("cpu"), QUICK)


def absent():
    raise PeerMissing("it is not here")


def test_a_row_for_every_peer_that_is_there_and_a_reason_for_those_that_are_not(bench):
    bench.compare("adding", lambda: 1 + 1, {"sum": lambda: lambda: sum((1, 1)), "nobody": absent})
    assert [(row.name, row.peer) for row in bench.rows] == [("adding", "sum")]
    row = bench.rows[0]
    assert row.ratio == pytest.approx(row.peer_ms / row.ours_ms, abs=0.02)
    assert set(row.brief()) == {"name", "ours_ms", "peer", "peer_ms", "ratio", "device"}
    assert bench.skipped == [{"name": "adding", "peer": "nobody", "reason": "it is not here"}]


def test_without_any_peer_our_own_time_stays(bench):
    bench.compare("adding", lambda: 1 + 1, {"nobody": absent})
    assert [(row.peer, row.peer_ms, row.ratio) for row in bench.rows] == [(None, None, None)]


def test_the_ratio_is_how_many_times_faster_ours_is(bench):
    bench.add("work", Timing(2.0, (1.0, 3.0), 5), "peer", Timing(7.0, (6.0, 8.0), 5))
    assert bench.rows[0].ratio == 3.5


def test_a_report_is_read_as_it_was_written(bench, tmp_path):
    bench.add("work", Timing(2.0, (1.0, 3.0), 5), "peer", Timing(7.0, (6.0, 8.0), 5), 1.5, 3.0)
    bench.details["more"] = {"a": 1}
    report = bench.report("sampling")
    path = tmp_path / "new" / file_name(report)
    assert path.name == "sampling.cpu.json"
    write_report(report, path)
    again = read_report(path)
    assert again.machine == report.machine
    assert again.details == report.details
    assert again.rows[0].brief() == report.rows[0].brief()
    assert list(path.parent.iterdir()) == [path]


def test_hardware_and_commit_are_on_record(bench):
    machine = bench.report("startup").machine
    assert machine["kind"] == "cpu"
    assert "CPU" in machine["device"]
    assert machine["torch"] == torch.__version__
    assert machine["git"]
    assert file_name(bench.report("startup")) == "startup.json"


@pytest.mark.parametrize("text", ["[]", "{", '{"suite": "sampling"}'])
def test_another_file_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not a report of `ptn bench`"):
        read_report(path)
