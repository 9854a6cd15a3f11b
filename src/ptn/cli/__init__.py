"""The command line: one file a command group, each command a thin call into the library.

Threads sleep while they wait for each other, unless the caller says otherwise. By default they spin: where others
use the cores too, one that spins holds up the one it waits for, and training becomes many times slower. OpenMP
reads this when torch is loaded, which no command does before it has to.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from .app import main

__all__ = ["main"]
