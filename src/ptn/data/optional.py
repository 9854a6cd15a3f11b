"""Packages that only some readers need, imported when they are."""

import importlib
from typing import Any

from ..errors import InputError


def optional_module(name: str) -> Any:
    """The module `name`, or one line saying how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InputError(f"this needs the package {package}: pip install 'ptn[data]'") from error
