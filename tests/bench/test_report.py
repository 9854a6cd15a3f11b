"""Rows, what is left out, and the files they are kept in."""

from types import SimpleNamespace

import pytest
import torch

from ptn import InputError
from ptn.bench import Bench, Effort, PeerMissing, file_name, read_report, report, write_report
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


def test_on_a_gpu_plain_calls_and_graphs_have_rows_of_their_own(bench, monkeypatch):
    """Without a GPU here, what needs one is stood in for."""

    def capture(work, device):
        if work() == "stubborn":
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        return work

    bench.device = SimpleNamespace(type="cuda")
    monkeypatch.setattr(report, "describe_device", lambda device: "a GPU")
    monkeypatch.setattr(report, "peak_mib", lambda work, device: 7.0)
    monkeypatch.setattr(report, "time_together", lambda works, *_: {who: Timing(40, (30, 50), 2) for who in works})
    monkeypatch.setattr(report, "time_captured", lambda works, *_: {who: Timing(2, (1, 3), 2) for who in works})
    monkeypatch.setattr(report, "capture", capture)
    peers = {"peer": lambda: lambda: "willing", "other": lambda: lambda: "stubborn"}
    bench.compare("adding", lambda: "ours", peers, memory=True, graph=True)
    assert [(row.name, row.peer, row.ours_ms, row.ours_mib) for row in bench.rows] == [
        ("adding, eager calls", "peer", 40.0, 7.0),
        ("adding, eager calls", "other", 40.0, 7.0),
        ("adding, CUDA graph", "peer", 2.0, None),
    ]
    reason = "it cannot be captured: operation not permitted"
    assert bench.skipped == [{"name": "adding, CUDA graph", "peer": "other", "reason": reason}]
    with pytest.raises(RuntimeError, match="not permitted"):
        bench.compare("adding", lambda: "stubborn", {}, graph=True)


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
