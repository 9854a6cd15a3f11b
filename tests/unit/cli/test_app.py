"""The command line as a whole: help, version, usage errors, invalid input of every command."""

import os
import subprocess
import sys

import pytest
import torch

import ptn

COMMANDS = (
    *("quickstart", "train", "evaluate", "predict", "audit", "export"),
    *("polar", "register", "data", "models", "demo"),
)


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
        ("modles", "modles"),
        ("polar a.png", "--output"),
        ("demo --port 70000", "65535"),
        ("demo --no-open --weights gone.safetensors", "gone.safetensors"),
        ("predict gone.safetensors a.png", "gone.safetensors"),
        ("predict w.safetensors gone.png", "no file at gone.png"),
        ("predict w.safetensors empty", "contains no image"),
        ("predict w.safetensors a.png --device gpu", "device"),
        ("predict w.safetensors a.png --overlay text.png/out", "cannot create folder"),
        ("predict voxels.safetensors a.png", "neither images nor meshes"),
        ("evaluate gone.onnx", "gone.onnx"),
        ("evaluate w.safetensors", "--dataset or --folder"),
        ("evaluate folder.safetensors", "use --folder"),
        ("evaluate w.safetensors --dataset mnist --folder x", "either"),
        ("evaluate w.safetensors --dataset quickstar", "did you mean 'quickstart'"),
        ("evaluate w.safetensors --folder one", "class"),
        ("evaluate w.safetensors --folder animals --split tests", "did you mean 'test'"),
        ("evaluate voxels.safetensors --folder animals", "not images"),
        ("evaluate w.safetensors larger.safetensors --folder animals", "image size"),
        ("evaluate w.safetensors others.safetensors --folder animals", "classes"),
        ("evaluate others.safetensors --folder animals", "'ant'"),
        ("evaluate plain.safetensors --folder animals --origins 5", "polar transformer"),
        ("audit w.safetensors --folder damaged", "can be read"),
        ("audit nameless.safetensors --folder animals", "4 classes"),
        ("export w.safetensors -o model.pth", ".onnx or .pt2"),
        ("data check mnits", "did you mean 'mnist'"),
        ("data fetch quickstart", "ptn[data]"),
        ("data show mnist", "ptn data fetch mnist"),
        ("data example photos", "coins, digits, symbols, textures"),
        ("polar text.png -o out", "text.png"),
        ("polar a.png -o out --origin middle", "--origin"),
        ("polar a.png -o out --origin 3,0", "--origin"),
        ("polar a.png -o out --law lineal", "did you mean 'linear'"),
        ("polar a.png -o out --mode cubic", "did you mean 'bicubic'"),
        ("polar a.png -o out --angles 10000000 --radii 100000", "at most"),
        ("polar a.png animals/test/ant/a.png -o out", "another result"),
        ("polar --inverse a.png -o out", "not written by"),
        ("polar --inverse a.png -o out --r-max-px 9", "omit"),
        ("quickstart --epochs 0", "epochs"),
        ("train", "--folder DIR or --dataset NAME"),
        ("train --folder gone", "no folder at gone"),
        ("train --dataset mnist --image-size 32", "--image-size"),
        ("train --folder animals --set optimiser.lr=1", "did you mean 'optimizer.lr'"),
        ("train --folder animals --seeds a-b", "--seeds"),
        ("train --folder animals --model ptn_x", "did you mean"),
        ("train --folder animals --resume --fresh", "either"),
        ("train --folder animals -o text.png/runs", "cannot create folder"),
    ],
)
def test_invalid_input_is_one_line_and_exit_code_2(ptn_cli, world, tmp_path, monkeypatch, arguments, word):
    for package in ("matplotlib", "onnxruntime", "mlxtend", "starlette", "uvicorn"):
        pytest.importorskip(package)
    monkeypatch.chdir(world)
    monkeypatch.setenv("PTN_CACHE", str(tmp_path))
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    before = sorted(world.rglob("*"))
    outcome = ptn_cli(*arguments.split())
    assert outcome.code == 2
    progress = ("loading ", "checking ", "ptn: skipped")
    errors = [line for line in outcome.err.splitlines() if not line.startswith(progress)]
    assert len(errors) == 1, outcome.err
    assert errors[0].startswith("ptn: ")
    assert word in errors[0]
    assert sorted(world.rglob("*")) == before


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried"), RuntimeError("can't allocate memory")],
)
def test_too_little_memory_is_one_line(ptn_cli, world, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("ptn.evaluation.scores", fail)
    outcome = ptn_cli("evaluate", world / "w.safetensors", "--folder", world / "animals")
    assert (outcome.code, outcome.err.splitlines()[-1].startswith("ptn: out of memory")) == (2, True)


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("matplotlib", "quickstart"),
        ("matplotlib", "audit ptn_b.rotmnist"),
        ("uvicorn", "demo --no-open"),
        ("timm", "train --folder animals --model timm:resnet18 -o runs"),
    ],
)
def test_a_missing_package_is_named(ptn_cli, world, monkeypatch, package, arguments):
    monkeypatch.chdir(world)
    monkeypatch.setitem(sys.modules, package, None)
    outcome = ptn_cli(*arguments.split())
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"package {package}: pip install" in outcome.err
    assert not (world / "runs").exists()
