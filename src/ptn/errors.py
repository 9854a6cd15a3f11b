"""Exceptions for invalid user input."""

import difflib
import importlib
from collections.abc import Iterable
from numbers import Number
from pathlib import Path
from typing import Any

_MAX_LINE = 2000


class InputError(ValueError):
    """Invalid input from the user. The message is one line; the command line prints it and exits with 2."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().splitlines())
        return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


class InputTypeError(InputError, TypeError):
    """Input of a wrong type."""


def unknown_name(kind: str, name: object, known: Iterable[object]) -> InputError:
    """Returns the error for a name that is not in `known`, with the nearest one that is.

    >>> str(unknown_name("model", "ptn_c", ["ptn_s", "ptn_b"]))
    "unknown model 'ptn_c'; did you mean 'ptn_b'? Known: ptn_s, ptn_b"
    """
    names = list(map(str, known))
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return InputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")


def nothing_at(kind: str, path: Path | str) -> InputError:
    """Returns the error for a path that does not exist; `kind` is what was expected there.

    >>> str(nothing_at("folder", "/photos"))
    'no folder at /photos: check the path'
    """
    start = "" if Path(path).is_absolute() else f", which is relative to {Path.cwd()}"
    return InputError(f"no {kind} at {path}: check the path{start}")


def check_choice(kind: str, value: object, known: Iterable[object]) -> None:
    """Raises `InputError` unless `value` is one of `known`."""
    names = list(known)
    if not isinstance(value, str | Number | None) or value not in names:  # tensors cannot be compared
        raise unknown_name(kind, value, names)


def first_line(error: Exception) -> str:
    """Returns the first line of the message of an exception, or the name of its type."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def optional_module(name: str, install: str = "ptn[data]") -> Any:
    """Imports a module of an optional dependency.

    Raises:
        InputError: The package is not installed; the message has the `pip install` command.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"this needs the package {name.partition('.')[0]}: pip install '{install}'") from error
