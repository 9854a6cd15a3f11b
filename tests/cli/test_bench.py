"""`ptn bench`."""

import json
import subprocess
import sys

import pytest

from ptn.bench import SUITES
from ptn.bench.timing import Timing


@pytest.fixture
def quick(monkeypatch):
    """Suites that measure nothing and find something."""

    def measure(bench, **options):
        bench.add("work", Timing(2.0, (2.0, 2.0), 1), "peer", Timing(5.0, (5.0, 5.0), 1))
        bench.skip("work", "nobody", "it is not here")
        bench.details["options"] = options

    for name, suite in SUITES.items():
        changed = type(suite)(measure, suite.about, suite.by_device, suite.by_default)
        monkeypatch.setitem(SUITES, name, changed)


def test_json_is_a_list_of_comparisons(ptn_cli, quick):
    outcome = ptn_cli("bench", "--json", "--device", "cpu")
    rows = json.loads(outcome.out)
    assert outcome.code == 0
    assert len(rows) == 3  # sampling, inference, training
    for row in rows:
        assert set(row) == {"name", "ours_ms", "peer", "peer_ms", "ratio", "device"}
        assert row["ratio"] == 2.5


def test_the_table_says_what_was_left_out(ptn_cli, quick):
    outcome = ptn_cli("bench", "startup", "--device", "cpu")
    assert "2.5" in outcome.out
    assert "left out of work: nobody (it is not here)" in outcome.out
    assert "measuring startup" in outcome.err


def test_results_go_to_a_file_per_suite(ptn_cli, quick, tmp_path):
    ptn_cli("bench", "sampling", "startup", "fleet", "--fleets", "1,2", "--device", "cpu", "-o", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fleet.cpu.json",
        "sampling.cpu.json",
        "startup.json",
    ]
    kept = json.loads((tmp_path / "fleet.cpu.json").read_text())
    assert kept["details"]["options"]["fleets"] == [1, 2]


def test_the_page_is_made_from_a_folder(ptn_cli, quick, tmp_path):
    ptn_cli("bench", "sampling", "--device", "cpu", "-o", tmp_path)
    outcome = ptn_cli("bench", "--page", tmp_path / "page.md", "--results", tmp_path)
    assert outcome.code == 0
    assert "**2.5**" in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["samplings"], "did you mean 'sampling'"),
        (["--seconds", "-1"], "--seconds must be at least 0"),
        (["fleet", "--fleets", "many"], "such as 1,8; got 'many'"),
        (["sampling", "--page", "x.md"], "give suites or --page"),
        (["--device", "cuda:99"], "no device 'cuda:99' here"),
        (["--page", "x.md", "--results", "nowhere"], "no results in nowhere"),
    ],
)
def test_mistakes_are_one_line(ptn_cli, arguments, says):
    outcome = ptn_cli("bench", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.slow
def test_as_a_user_runs_it(monkeypatch, tmp_path):
    monkeypatch.delenv("OMP_WAIT_POLICY")
    command = [sys.executable, "-m", "ptn", "bench", "startup", "--seconds", "0", "--json", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[0]["name"] == "from ptn import create_model"
    assert json.loads((tmp_path / "startup.json").read_text())["machine"]["wait_policy"] == "PASSIVE"
    wrong = subprocess.run([*command[:4], "nothing"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
