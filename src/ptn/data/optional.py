"""Packages that only some readers need, imported when they are."""

from typing import Any

from .. import errors


def optional_module(name: str) -> Any:
    """The module `name`, or one line saying how to install it."""
    return errors.optional_module(name, "ptn[data]")
