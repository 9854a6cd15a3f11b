"""The code blocks of Markdown pages, and running them as a reader would.

A page is read from top to bottom. Comments above a block say how it is run:

    <!-- not run: REASON -->    not at all; commands are still checked to exist
    <!-- slow -->               Python for the slow tests; commands always belong to them
    <!-- first                  commands that the reader has run elsewhere, run before the next block
    ptn data example coins photos
    -->
"""

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

REPOSITORY = Path(__file__).parents[2]
PYTHON, SHELL = ("python",), ("sh", "bash", "console")

_PIECES = re.compile(
    r"^<!-- not run: (?P<reason>.+?) -->$"
    r"|^<!-- (?P<slow>slow) -->$"
    r"|^<!-- first\n(?P<first>.*?)^-->$"
    r"|^(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code, its first line number, whether it is slow, and the reason if it is not run."""

    kind: Literal["python", "shell"]
    code: str
    line: int
    hidden: bool = False
    slow: bool = False
    reason: str = ""


def pages() -> list[Path]:
    """README.md and every page of the documentation."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def read_blocks(text: str) -> list[Block]:
    """The blocks of Python and of commands in a page, in their order; other languages are skipped."""
    blocks, reason, slow = [], "", False
    for match in _PIECES.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["reason"]:
            reason = match["reason"]
        elif match["slow"]:
            slow = True
        elif match["first"] is not None:
            blocks.append(Block("shell", match["first"], line, hidden=True, slow=True))
        else:
            if match["language"] in PYTHON:
                blocks.append(Block("python", match["code"], line, slow=slow, reason=reason))
            elif match["language"] in SHELL:
                blocks.append(Block("shell", match["code"], line, slow=True, reason=reason))
            reason, slow = "", False
    return blocks


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> None:
    """Run a block where earlier ones left off; errors name the page and its line."""
    code = "\n" * block.line + block.code
    exec(compile(code, str(page), "exec"), namespace)


def run_shell(block: Block, page: Path, folder: Path, *, cache: Path, seconds: float = 1200) -> None:
    """Run commands in `folder`, and raise, with the output, if one of them fails or they take too long."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", strip_prompts(block.code)],
        cwd=folder,
        env=_environment(cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that child processes of bash can be stopped with it
    )
    where = f"{page.name}:{block.line}"
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise AssertionError(f"{where} takes longer than {seconds:g} s:\n{block.code}") from None
    if process.returncode:
        raise AssertionError(f"{where} exits with {process.returncode}:\n{block.code}\n{output[-2000:]}")


def strip_prompts(code: str) -> str:
    """Commands without the `$ ` of a console, and without its output."""
    lines = code.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return "\n".join(lines)


def ptn_commands(block: Block, program: tuple[str, ...] = ("ptn",)) -> list[list[str]]:
    """The arguments of every command of `program` in a block of commands."""
    joined = strip_prompts(block.code).replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [line[len(program) :] for line in words if tuple(line[: len(program)]) == program]


def _environment(cache: Path) -> dict[str, str]:
    """An environment in which `ptn`, `python` and `pip` are those of the interpreter that runs the tests."""
    tools = cache / "bin"
    if not tools.exists():
        tools.mkdir(parents=True)
        for name, command in {
            "ptn": f'exec {shlex.quote(sys.executable)} -m ptn "$@"',
            "python": f'exec {shlex.quote(sys.executable)} "$@"',
            "pip": _PIP.format(python=shlex.quote(sys.executable), project=shlex.quote(str(REPOSITORY))),
        }.items():
            path = tools / name
            path.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{command}\n", encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    source = str(REPOSITORY / "src")
    return os.environ | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([source, str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PTN_CACHE": str(cache / "ptn"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }


# `pip install 'ptn[extra]'` of this project as a dry run without network: checks that the extra exists and that its
# requirements are installed.
_PIP = """[ $# = 2 ] && [ "$1" = install ] && [ "${{2#ptn}}" != "$2" ] || {{ echo "pip $*?" >&2; exit 1; }}
{python} -m pip install --dry-run --no-index --no-build-isolation {project}"${{2#ptn}}" 2>&1 | tee pip.log
! grep "does not provide the extra" pip.log"""
