"""The command line. Commands are thin layers over the library; errors are reported in one line."""

import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from ..errors import InputError
from ..files import LOG
from . import data, evaluate, models, train
from .options import warn

__all__ = ["app", "main"]

# Let idle OpenMP threads sleep: spinning ones slow training down several times where other processes use the cores.
# A short spin is still faster than waking up. OpenMP reads this when torch is imported, which commands do later.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

# The base of typer's usage errors: click's own class or, in later versions, a copy of it.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


LOG.addHandler(_WarningHandler())

app = typer.Typer(
    name="ptn",
    help="Polar Transformer Networks: invariant to shifts, equivariant to rotation and scale.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        from .. import __version__

        print(f"ptn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for command in (
    *(train.quickstart, train.train, evaluate.evaluate, evaluate.predict, evaluate.audit),
    *(models.export, data.polar, data.register, models.models, models.demo),
):
    app.command()(command)
app.add_typer(data.group, name="data")


def main(arguments: list[str] | None = None, commands: typer.Typer = app) -> NoReturn:
    """Runs the command line and exits: with 2 and one line on standard error for invalid input."""
    try:
        code = commands(args=arguments, standalone_mode=False)
    except _UsageError as error:
        message: str = error.format_message()  # type: ignore[attr-defined]
        if not message or "Usage:" in message:  # a group without a command: some versions raise its help
            print(message, end="")
            sys.exit(0)
        _fail(message)
    except InputError as error:
        _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except (RuntimeError, MemoryError) as error:
        # The messages of torch on a GPU and on a CPU.
        memory = any(words in str(error) for words in ("out of memory", "allocate memory"))
        if not memory and not isinstance(error, MemoryError):
            raise
        _fail("out of memory: use a smaller input or batch")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    warn(message)
    sys.exit(code)
