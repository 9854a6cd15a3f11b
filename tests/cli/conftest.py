"""Running the command line in the test's own process."""

from typing import NamedTuple

import pytest

from ptn.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def ptn_cli(capsys):
    """`ptn_cli("models", "--json")` -> exit code, standard output, standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(stop.value.code, out, err)

    return run
