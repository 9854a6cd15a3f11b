"""The command line: one file a command group, each command a thin call into the library."""

from .app import main

__all__ = ["main"]
