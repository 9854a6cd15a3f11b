"""What goes wrong because of what the user gave us, said in one line that tells them what to do."""

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """Bad input. Its message is one line for a person; the CLI prints it and exits with 2."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`, naming the nearest one that is.

    >>> str(unknown_name("model", "ptn_c", ["ptn_s", "ptn_b"]))
    "unknown model 'ptn_c'; did you mean 'ptn_b'? Known: ptn_s, ptn_b"
    """
    names = list(known)
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return InputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")


def nothing_at(kind: str, path: Path | str) -> InputError:
    """The error for a path where no `kind` is.

    >>> str(nothing_at("folder", "/photos"))
    'no folder at /photos: check the path'
    """
    start = "" if Path(path).is_absolute() else f", which starts at {Path.cwd()}"
    return InputError(f"no {kind} at {path}: check the path{start}")


def check_choice(kind: str, value: str, known: Iterable[str]) -> None:
    """Raise unless `value` is one of `known`."""
    if value not in known:
        raise unknown_name(kind, value, known)


def optional_module(name: str, install: str = "ptn[data]") -> Any:
    """The module `name` of a package that only some need, or one line saying to `pip install` it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"this needs the package {name.partition('.')[0]}: pip install '{install}'") from error
