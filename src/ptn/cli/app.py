"""The `ptn` command. A mistake prints one line that says what to do and exits with 2, never a traceback."""

import logging
import sys
from typing import Annotated, NoReturn

import typer

from ..errors import InputError
from . import (
    audit,
    bench,
    data,
    demo,
    evaluate,
    export,
    figures,
    models,
    polar,
    predict,
    quickstart,
    train,
)

# the base of typer's usage errors: click's own up to some version of typer, a copy of it since
_UsageProblem: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]


class _Warnings(logging.Handler):
    """What the library logs, as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"ptn: {record.getMessage()}", file=sys.stderr)


logging.getLogger("ptn").addHandler(_Warnings())

app = typer.Typer(
    name="ptn",
    help="Polar Transformer Networks: shift-invariant, equivariant to rotation and scale.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print(f"ptn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for group in (
    *(quickstart, train, evaluate, predict, audit, export, figures),
    *(data, models, polar, bench, demo),
):
    group.register(app)


def main(arguments: list[str] | None = None, commands: typer.Typer = app) -> NoReturn:
    """Run the command line and exit."""
    try:
        code = commands(args=arguments, standalone_mode=False)
    except _UsageProblem as error:
        message: str = error.format_message()  # type: ignore[attr-defined]
        if not message or "Usage:" in message:  # a group without a command: help, which some typers leave to us
            print(message, end="")
            sys.exit(0)
        _fail(message, 2)
    except InputError as error:
        _fail(str(error), 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except (RuntimeError, MemoryError) as error:
        if "allocate memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        _fail("not enough memory for that: ask for less", 2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    print(f"ptn: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
