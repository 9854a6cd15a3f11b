"""Blocks on a GPU as few kernels: the blocks' own numbers, to rounding, in less time.

Operators of `torch.library`, which `torch.compile` takes as they are. Imported only where Triton is installed.
"""

from .run import can_run, can_stand_for, run_blocks

__all__ = ["can_run", "can_stand_for", "run_blocks"]
