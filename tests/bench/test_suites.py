"""Every suite runs, small and quick."""

import pytest
import torch

from ptn import InputError
from ptn.bench import SUITES, Bench, Effort, data, inference, run_suites, sampling, scaling, steerable, training

CPU = torch.device("cpu")


@pytest.fixture
def bench():
    return Bench(CPU, Effort(seconds=0, rounds=1))


def peers(bench):
    return {row.peer for row in bench.rows} | {skipped["peer"] for skipped in bench.skipped}


def test_sampling(bench):
    sampling.measure(bench, images=(3, 1, 12), maps=(2, 3, 12))
    assert {row.name.partition(", ")[2] for row in bench.rows} == {
        "forward",
        "forward + backward to the origin",
        "forward + backward to image and origin",
    }
    assert {*sampling.TORCH_PEERS, *sampling.IMAGE_PEERS} <= peers(bench)


def test_the_share_of_the_bandwidth_is_a_share():
    found = sampling.measure_bandwidth(CPU, Effort(seconds=0, rounds=1), (8, 1, 32))
    assert found["shape"] == "8×1×32×32"
    assert found["share_of_copy"] == pytest.approx(
        found["sample_gb_per_second"] / found["copy_gb_per_second"], abs=0.1
    )


@pytest.mark.filterwarnings("default")  # ONNX's exporter has some
def test_inference(bench):
    inference.measure(bench, sizes=(12,), batches=(2,))
    assert {"plain eager", "ONNX Runtime"} <= peers(bench)


@pytest.mark.filterwarnings("default")
def test_onnx_runtime_gives_the_same_logits():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, images = inference.make_model(12), torch.rand(2, 1, 12, 12)
    theirs = torch.from_numpy(inference.onnx(model, images)())
    assert torch.allclose(theirs, inference.answering(model, images)(), atol=1e-4)


def test_training(bench, monkeypatch):
    monkeypatch.setattr(steerable, "make_step", lambda batch, device: lambda: None)
    monkeypatch.setattr(steerable, "make_builder", lambda: lambda: None)
    training.measure(bench, batch=4, small_batch=2)
    assert [row.name.partition(",")[0] for row in bench.rows] == ["PTN-B training step"] * 2 + [
        "PTN-B construction"
    ]


def test_the_steps_that_are_timed_do_learn():
    step = training.make_step(4, CPU)
    run = next(cell.cell_contents for cell in step.__closure__ if hasattr(cell.cell_contents, "model"))
    before = run.model.classifier.head.weight.clone()
    step()
    assert not torch.equal(before, run.model.classifier.head.weight)
    training.make_plain_step(4, CPU)()


@pytest.mark.slow
def test_the_escnn_network_answers():
    pytest.importorskip("escnn.nn", reason="escnn is not installed")
    steerable.make_step(2, CPU)()


def test_scaling(bench):
    scaling.measure(bench, batches=(1, 2), sizes=(8, 12), angles=(4, 8))
    curves = bench.details["curves"]
    assert [(curve["what"], curve["axis"]) for curve in curves] == [
        (what, axis) for what in ("polar_sample", "PTN-B inference") for axis in ("batch", "image size", "angles")
    ]
    for curve in curves:
        assert {len(values) for values in curve["ms"].values()} == {2}
        assert next(iter(curve["ms"])) == "ptn"


def test_data_skips_what_has_no_files(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "list_datasets", lambda: [info for info in DATASETS if info.name == "sim2mnist"])
    data.measure(bench, meshes=1)
    assert [row.name for row in bench.rows] == ["voxelise 1 meshes of 3,600 faces"]
    assert {skipped["name"].split()[0] for skipped in bench.skipped} == {"make", "load"}


DATASETS = data.list_datasets()


def test_an_unknown_suite_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'sampling'"):
        run_suites(["samplin"], CPU)


def test_suites_run_in_their_order_and_report_as_they_end(monkeypatch):
    seen = []
    for name in ("sampling", "startup"):
        quick = SUITES[name].__class__(lambda bench, **options: seen.append(options), "", by_device=False)
        monkeypatch.setitem(SUITES, name, quick)
    reports = run_suites(["startup", "sampling"], CPU, options={"startup": {"a": 1}})
    assert [report.suite for report in reports] == ["sampling", "startup"]
    assert seen == [{}, {"a": 1}]
