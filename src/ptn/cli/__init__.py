"""The command line; each command is a thin layer over the library."""

import os

# Let idle OpenMP threads sleep: spinning ones slow training down several times where other processes use the cores.
# A short spin is still faster than waking up. OpenMP reads this when torch is imported, which commands do later.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

from .app import main

__all__ = ["main"]
