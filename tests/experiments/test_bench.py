"""Benchmarks: timing, peers that do the same work, suites, reports and the page."""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.bench import SUITES, page, suites, timing
from experiments.bench.peers import grid_sample, kornia_remap
from experiments.bench.report import Bench, PeerMissing, read_report, write_report
from ptn import InputError, polar_sample

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    return Bench(CPU)


def absent():
    raise PeerMissing("not here")


def test_contenders_alternate_and_each_has_its_own_time(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0)
    monkeypatch.setattr(timing, "ROUNDS", 3)
    calls = []

    def sleeper(name, seconds):
        def work():
            calls.append(name)
            time.sleep(seconds)

        return work

    times = timing.time_together({"a": sleeper("a", 0.004), "b": sleeper("b", 0.012)})
    assert times["a"].ms == pytest.approx(4, rel=0.5, abs=4)
    assert times["b"].ms > 1.5 * times["a"].ms
    assert times["a"].rounds == 3
    assert [name for name, _ in itertools.groupby(calls)][-6:] == ["a", "b"] * 3


@pytest.mark.parametrize(("module", "make"), [("torch", grid_sample), ("kornia", kornia_remap)])
def test_torch_peers_give_our_polar_images_and_gradients(module, make):
    pytest.importorskip(module)
    images, origin, grid = suites.make_inputs((3, 1, 20), CPU)
    ours, theirs = origin.clone().requires_grad_(), origin.clone().requires_grad_()
    polar, other = polar_sample(images, ours, grid), make(grid, images)(images, theirs)
    assert torch.allclose(polar, other, atol=1e-4)
    for result in (polar, other):
        result.square().sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", suites.IMAGE_PEERS)
def test_image_peers_give_polar_images(name):
    pytest.importorskip("cv2")
    pytest.importorskip("skimage")
    images, origin, grid = suites.make_inputs((3, 1, 20), CPU)
    polar = suites.IMAGE_PEERS[name](images, origin, grid)()
    assert polar.shape == (3, 20, 20)
    if "remap" in name:
        assert np.abs(polar - polar_sample(images, origin, grid)[:, 0].numpy()).max() < 1e-4
    else:  # a radial law of its own
        assert polar.std() > 0.01


def test_sampling_has_a_row_for_every_peer_and_one_under_load(bench):
    pytest.importorskip("cv2")
    suites.sampling(bench, images=(3, 1, 12), maps=(2, 3, 12), busy=1)
    known = {row.peer for row in bench.rows} | {entry["peer"] for entry in bench.skipped}
    assert {*suites.TORCH_PEERS, *suites.IMAGE_PEERS} <= known
    assert bench.rows[-1].name.endswith("1 busy processes in the background")


def test_the_steps_that_are_timed_train(bench):
    step = suites.trainer_step(4, CPU)
    run = next(cell.cell_contents for cell in step.__closure__ if hasattr(cell.cell_contents, "model"))
    before = run.model.classifier.head.weight.clone()
    step()
    assert not torch.equal(before, run.model.classifier.head.weight)
    suites.training(bench, batch=4)
    assert [row.peer for row in bench.rows] == ["eager loop"]


@pytest.mark.slow
def test_inference_and_epochs_of_fleets_and_voxels_are_timed(bench):
    suites.inference(bench, sizes=(28,), batches=(2,))
    assert {row.peer for row in bench.rows} | {entry["peer"] for entry in bench.skipped} == {
        "eager",
        "ONNX Runtime",
    }
    bench.rows.clear()
    suites.fleet(bench, epochs=1, fleets=(1,), precisions=("fp32",), data=suites.random_digits(200))
    suites.voxels(bench, epochs=1, data=suites.random_voxels(32))
    names = [row.name.split(", ")[0] for row in bench.rows]
    assert names == ["PTN-B", "cylindrical", "cylindrical_l"]
    assert {row.rounds for row in bench.rows} == {1}


def test_scaling_has_a_curve_for_every_axis(bench):
    suites.scaling(bench, batches=(1, 2), sizes=(8, 12), angles=(4, 8))
    curves = bench.details["curves"]
    assert [(curve["what"], curve["axis"]) for curve in curves] == list(
        itertools.product(("polar_sample", "PTN-B inference"), ("batch", "image size", "angles"))
    )
    assert all(len(values) == 2 for curve in curves for values in curve["ms"].values())


def test_a_report_is_read_as_it_was_written_and_other_files_are_refused(bench, tmp_path):
    times = {"": [1.0, 2.0, 3.0], "one": [7.0], "another": [1.0]}
    bench.add("work", {name: timing.summarize(values) for name, values in times.items()}, {"": 10.0, "one": 25.0})
    bench.present("work", {"nobody": absent})
    written = bench.report("sampling")
    write_report(written, tmp_path)
    again = read_report(tmp_path / "sampling.cpu.json")
    assert (again.machine, again.skipped) == (written.machine, written.skipped)
    assert again.rows[0].ratio == 3.5
    assert again.rows[0].ours_quartiles_ms == [1.5, 2.5]
    text = page.render(again)
    assert "| work | 2 | one | 7 | **3.5** | 10 / 25 |" in text
    assert "Skipped: nobody (not here)." in text
    for content in ("[]", "{", '{"suite": "sampling"}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(InputError, match="not a benchmark report"):
            read_report(tmp_path / "x.json")


def test_the_page_in_the_documentation_is_up_to_date(tmp_path):
    pytest.importorskip("matplotlib")
    written, *figures = page.write_page(ROOT / "benchmarks", tmp_path / "performance.md")
    assert written.read_text(encoding="utf-8") == (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert all((ROOT / "docs" / "images" / figure.name).exists() for figure in figures)


def test_rows_as_json_and_reports_as_files(experiments, monkeypatch, tmp_path):
    def measure(bench):
        """Times nothing."""
        bench.add("work", {"": timing.summarize([2.0]), "peer": timing.summarize([5.0])})

    for name in SUITES:
        monkeypatch.setattr(suites, name, measure)
    outcome = experiments("bench", "fleet", "sampling", "--json", "--device", "cpu", "-o", tmp_path)
    rows = json.loads(outcome.out)
    assert [row["ratio"] for row in rows] == [2.5, 2.5]
    assert {"name", "ours_ms", "peer", "peer_ms", "ratio", "device"} <= set(rows[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.cpu.json", "sampling.cpu.json"]
    assert "**2.5**" in experiments("bench", "sampling", "--device", "cpu").out
    outcome = experiments("bench", "--page", tmp_path / "page.md", "-o", tmp_path)
    assert outcome.code == 0
    assert "**2.5**" in (tmp_path / "page.md").read_text(encoding="utf-8")
