"""The command line as a whole: help, version, usage errors, invalid input of every command."""

import os
import subprocess
import sys

import pytest
from PIL import Image

import ptn

COMMANDS = ("quickstart", "train", "evaluate", "predict", "audit", "export", "polar", "data", "models", "demo")


def test_help_and_version(ptn_cli):
    assert ptn_cli("--version") == (0, f"ptn {ptn.__version__}\n", "")
    assert all(command in ptn_cli("--help").out for command in COMMANDS)
    for arguments in ([], ["data"], *([command, "--help"] for command in COMMANDS)):
        outcome = ptn_cli(*arguments)
        assert (outcome.code, outcome.err) == (0, "")
        assert "Usage" in outcome.out


def test_the_command_line_imports_torch_only_when_needed():
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    code = f"import os, sys, ptn.cli; print('torch' in sys.modules, *map(os.environ.get, {names}))"
    environment = {key: value for key, value in os.environ.items() if key not in names}
    for extra, expected in (({}, ["PASSIVE", "3000"]), ({names[0]: "ACTIVE"}, ["ACTIVE", "None"])):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment | extra, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["False", *expected]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["modles"], "modles"),
        (["polar", "a.png"], "--output"),
        (["demo", "--port", "70000"], "65535"),
        (["train", "--folder", "gone"], "no folder at gone"),
        (["predict", "gone.safetensors", "a.png"], "gone.safetensors"),
        (["evaluate", "gone.onnx"], "gone.onnx"),
        (["demo", "--no-open", "--weights", "gone.safetensors"], "gone.safetensors"),
        (["predict", "w.safetensors", "gone.png"], "no file at gone.png"),
        (["predict", "w.safetensors", "empty"], "contains no image"),
        (["predict", "w.safetensors", "a.png", "--device", "gpu"], "device"),
        (["predict", "w.safetensors", "a.png", "--overlay", "text.png/out"], "cannot create folder"),
        (["predict", "voxels.safetensors", "a.png"], "neither images nor meshes"),
        (["evaluate", "w.safetensors"], "--dataset or --folder"),
        (["evaluate", "folder.safetensors"], "use --folder"),
        (["evaluate", "w.safetensors", "--dataset", "mnist", "--folder", "x"], "either"),
        (["evaluate", "w.safetensors", "--dataset", "quickstar"], "did you mean 'quickstart'"),
        (["evaluate", "w.safetensors", "--folder", "one"], "class"),
        (["evaluate", "w.safetensors", "--folder", "animals", "--split", "tests"], "did you mean 'test'"),
        (["evaluate", "w.safetensors", "--folder", "animals", "--precision", "fp16"], "precision"),
        (["evaluate", "voxels.safetensors", "--folder", "animals"], "not images"),
        (["evaluate", "w.safetensors", "larger.safetensors", "--folder", "animals"], "image size"),
        (["evaluate", "w.safetensors", "others.safetensors", "--folder", "animals"], "classes"),
        (["evaluate", "others.safetensors", "--folder", "animals"], "'ant'"),
        (["evaluate", "plain.safetensors", "--folder", "animals", "--origins", "5"], "polar transformer"),
        (["audit", "w.safetensors", "--folder", "damaged"], "can be read"),
        (["audit", "w.safetensors", "--folder", "animals", "--layer", "transformr"], "did you mean 'transformer'"),
        (["audit", "nameless.safetensors", "--folder", "animals"], "4 classes"),
        (["export", "w.safetensors", "-o", "model.pth"], ".onnx or .pt2"),
        (["data", "check", "mnits"], "did you mean 'mnist'"),
        (["data", "fetch", "quickstart"], "ptn[data]"),
        (["data", "show", "quickstart", "--split", "valid"], "unknown split"),
        (["data", "show", "mnist"], "ptn data fetch mnist"),
        (["data", "example", "photos"], "coins, textures"),
        (["polar", "text.png", "-o", "out"], "not an image"),
        (["polar", "a.png", "-o", "out", "--origin", "middle"], "--origin"),
        (["polar", "a.png", "-o", "out", "--origin", "3,0"], "--origin"),
        (["polar", "a.png", "-o", "out", "--law", "lineal"], "did you mean 'linear'"),
        (["polar", "a.png", "-o", "out", "--mode", "cubic"], "did you mean 'bicubic'"),
        (["polar", "a.png", "-o", "out", "--angles", "10000000", "--radii", "100000"], "too large"),
        (["polar", "a.png", "-o", "text.png/out"], "cannot create folder"),
        (["polar", "a.png", "animals/test/ant/a.png", "-o", "out"], "both"),
        (["polar", "--inverse", "a.png", "-o", "out"], "not written by"),
        (["polar", "--inverse", "a.png", "-o", "out", "--r-max-px", "9"], "omit"),
        (["quickstart", "--epochs", "0"], "epochs"),
        (["train"], "--folder DIR or --dataset NAME"),
        (["train", "--dataset", "mnist", "--image-size", "32"], "--image-size"),
        (["train", "--folder", "animals", "--set", "optimiser.lr=1"], "did you mean 'optimizer.lr'"),
        (["train", "--folder", "animals", "--seeds", "a-b"], "--seeds"),
        (["train", "--folder", "animals", "--model", "ptn_x"], "did you mean"),
        (["train", "--folder", "animals", "--resume", "--fresh"], "either"),
        (["train", "--folder", "animals", "-o", "text.png/runs"], "cannot create folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_input_is_one_line_and_exit_code_2(
    ptn_cli, bees, animals, save, tmp_path, monkeypatch, arguments, word
):
    for package in ("matplotlib", "onnxruntime", "mlxtend", "starlette", "uvicorn"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    bees.rename(tmp_path / "w.safetensors")
    logits = [0.0, 5.0, 0.0]
    save("larger", logits, image_size=24)
    save("others", logits, classes=("x", "y", "z"))
    save("plain", logits, model="ccnn_s")
    save("folder", logits, dataset="folder")
    save("voxels", logits, model="cylindrical", image_size=8)
    save("nameless", [0.0] * 4, classes=None)
    for folder in ("empty", "one/cat", "damaged"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("a.png", "one/cat/a.png", "animals/test/ant/a.png"):
        Image.new("L", (30, 20), 90).save(tmp_path / path)
    for path in ("text.png", "damaged/a.png"):
        (tmp_path / path).write_text("not an image")
    before = sorted(tmp_path.rglob("*"))
    outcome = ptn_cli(*arguments)
    assert outcome.code == 2
    lines = [
        line for line in outcome.err.splitlines() if not line.startswith(("loading ", "checking ", "auditing "))
    ]
    errors = [line for line in lines if not line.startswith("ptn: skipped")]
    assert len(errors) == 1, outcome.err
    assert errors[0].startswith("ptn: ")
    assert word in errors[0]
    written = [path for path in sorted(tmp_path.rglob("*")) if path not in before and "cache" not in path.parts]
    assert [path for path in written if path != tmp_path / "audit"] == []


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("matplotlib", ["quickstart"]),
        ("matplotlib", ["audit", "ptn_b.rotmnist"]),
        ("uvicorn", ["demo", "--no-open"]),
        ("timm", ["train", "--folder", "animals", "--model", "timm:resnet18"]),
    ],
)
def test_a_missing_package_is_named(ptn_cli, animals, tmp_path, monkeypatch, package, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    outcome = ptn_cli(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert f"package {package}: pip install" in outcome.err
    assert not (tmp_path / "runs").exists()
