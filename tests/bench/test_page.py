"""The page: made from the files alone, and a claim stands in it only with its numbers."""

import json
from pathlib import Path

import pytest
import torch

from ptn import InputError
from ptn.bench import Bench, read_report, write_report
from ptn.bench.page import render, write_page
from ptn.bench.suites import SUITES
from ptn.bench.timing import Timing

ROOT = Path(__file__).parents[2]
CURVE = {
    "what": "polar_sample",
    "axis": "batch",
    "start": {"batch": 32, "size": 96, "angles": 96},
    "at": [1, 4, 16],
    "ms": {"ptn": [0.1, 0.2, 0.5], "F.grid_sample": [0.1, 0.3, 0.9]},
}


def report(suite="sampling"):
    bench = Bench(torch.device("cpu"))
    bench.add("work", Timing(2.0, (1.0, 3.0), 5), "one", Timing(7.0, (6.0, 8.0), 5), 10.0, 25.0)
    bench.add("work", Timing(2.0, (1.0, 3.0), 5), "another", Timing(1.0, (1.0, 1.0), 5))
    bench.skip("work", "nobody", "it is not here")
    return bench.report(suite)


def test_a_section_has_the_rows_the_hardware_and_what_was_left_out():
    text = render(report(), None)
    assert "| work | 2 | one | 7 | **3.5** | 10 / 25 |" in text
    assert "|  |  | another | 1 | **0.5** |  |" in text
    assert f"torch {torch.__version__}" in text
    assert "- Left out beside work: nobody (it is not here)." in text


def test_what_is_left_out_for_the_same_reason_is_one_line():
    bench = Bench(torch.device("cpu"))
    for name in ("work", "more work"):
        bench.skip(name, "nobody", "it is not here")
    for peer in ("a snail", "a sloth"):
        bench.skip("work", peer, "it is too slow")
    for name in ("one file", "another"):
        bench.skip(name, "", "it is lost")
    lines = [line for line in render(bench.report("sampling"), None).splitlines() if "Left out" in line]
    assert lines == [
        "- Left out beside 2 things measured: nobody (it is not here).",
        "- Left out beside work: a snail; a sloth (it is too slow).",
        "- Left out: one file; another (it is lost).",
    ]


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_its_section(suite):
    assert render(report(suite), None).startswith("## ")


def test_what_a_graph_is_stands_below_the_rows_that_have_one():
    found = report()
    assert "CUDA graph" not in render(found, None)
    found.details["calls_in_graph"] = 20
    assert "A *CUDA graph* is 20 such calls recorded once and replayed" in render(found, None)


def test_the_page_and_its_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    found = report("scaling")
    found.details["curves"] = [CURVE, {**CURVE, "axis": "angles"}]
    write_report(found, tmp_path / "results" / "scaling.cpu.json")
    write_report(report("inference"), tmp_path / "results" / "inference.cpu.json")
    written = write_page(tmp_path / "results", tmp_path / "docs" / "page.md")
    text = written[0].read_text(encoding="utf-8")
    assert text.index("## Answering") < text.index("## How cost grows")
    _, picture = written
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"images/{picture.name}" in text


def test_without_results_it_says_what_to_run(tmp_path):
    with pytest.raises(InputError, match="run `ptn bench -o"):
        write_page(tmp_path, tmp_path / "page.md")


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.json")), ids=lambda path: path.name)
def test_the_results_that_are_kept_can_be_read(path):
    json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = read_report(path)
    assert found.rows or found.details
    for row in found.rows:
        assert (row.peer is None) == (row.ratio is None)
        assert row.ratio is None or row.ratio == pytest.approx(row.peer_ms / row.ours_ms, rel=0.02, abs=0.01)


def test_the_documented_page_is_what_the_results_say(tmp_path):
    """docs/performance.md is made by `ptn bench --page docs/performance.md`, not written."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    page = write_page(ROOT / "benchmarks", tmp_path / "performance.md")[0]
    kept = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == kept
