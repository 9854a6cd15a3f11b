"""The command line: one file a command group, each command a thin call into the library.

Threads that wait for each other soon go to sleep, unless the caller says otherwise. By default they spin for long:
where others use the cores too, one that spins holds up the one it waits for, and training becomes many times
slower. Not to spin at all would be too soon: most waits are shorter than waking up. OpenMP reads this when torch is
loaded, which no command does before it has to.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

from .app import main

__all__ = ["main"]
