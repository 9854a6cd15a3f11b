"""Work on many rows, cut into slices that do not wait for each other."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")

# More get in each other's way, since Python itself runs one at a time.
_MOST_THREADS = 4


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover range(count)."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def in_threads(work: Callable[[slice], Result], count: int, size: int) -> list[Result]:
    """What `work` returns for each slice of range(count), in order, computed on several CPU cores.

    Each thread does its slices alone. The threads of torch's own would meet after every operation, and where
    other programs keep the cores busy small operations then take much longer.
    """
    threads = torch.get_num_threads()
    try:
        workers = min(threads, _MOST_THREADS)
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, slices(count, size)))
    finally:
        torch.set_num_threads(threads)  # threads that come later take the number that was set last
