"""The command line as a whole: help, version, and mistakes in one line."""

import os
import subprocess
import sys

import pytest

import ptn


def test_help_lists_the_commands(ptn_cli):
    outcome = ptn_cli("--help")
    assert outcome.code == 0
    for command in ("models", "polar", "quickstart"):
        assert command in outcome.out


def test_without_a_command_it_shows_help(ptn_cli):
    for arguments in ([], ["data"]):
        outcome = ptn_cli(*arguments)
        assert outcome.code == 0
        assert "Usage" in outcome.out
        assert outcome.err == ""


def test_version(ptn_cli):
    assert ptn_cli("--version") == (0, f"ptn {ptn.__version__}\n", "")


def test_mistakes_are_one_line_and_exit_2(ptn_cli):
    for arguments in (["modles"], ["models", "--jason"], ["polar"], ["polar", "x.png"]):
        outcome = ptn_cli(*arguments)
        assert outcome.code == 2, arguments
        assert outcome.err.startswith("ptn: ")
        assert outcome.err.count("\n") == 1, outcome.err


def test_it_runs_as_a_module():
    out = subprocess.run([sys.executable, "-m", "ptn", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout == f"ptn {ptn.__version__}\n"


def test_help_is_given_without_torch_and_threads_will_wait_patiently():
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    code = f"import os, sys, ptn.cli; print('torch' in sys.modules, *map(os.environ.get, {names}))"
    env = {key: value for key, value in os.environ.items() if key not in names}
    cases = [
        ({}, ["PASSIVE", "3000"]),
        ({names[1]: "7"}, ["PASSIVE", "7"]),
        ({names[0]: "ACTIVE"}, ["ACTIVE", "None"]),
    ]
    for given, said in cases:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env | given, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["False", *said]


def test_what_the_package_offers_is_there_when_it_is_asked_for():
    absent = "[name for name in ptn.__all__ if not hasattr(ptn, name)]"
    code = f"import ptn; print({absent}, set(ptn.__all__) - set(dir(ptn)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] set()\n"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ptn.nothing  # noqa: B018
