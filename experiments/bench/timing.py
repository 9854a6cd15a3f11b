"""Time and memory of functions, measured side by side."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

Work = Callable[[], object]

# Every contender is measured at least this long and at least this often.
SECONDS, ROUNDS = 4.0, 9
CALLS_IN_GRAPH = 20
# Duration of one measurement: calls are repeated to reach it.
_SAMPLE_SECONDS = 0.01


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call: median and quartiles over `rounds` measurements."""

    ms: float
    quartiles: tuple[float, float]
    rounds: int


def summarize(milliseconds: list[float]) -> Timing:
    """Returns median and quartiles of measurements, to four digits."""
    samples = milliseconds if len(milliseconds) > 1 else 2 * milliseconds
    low, median, high = (float(f"{value:.4g}") for value in statistics.quantiles(samples, n=4, method="inclusive"))
    return Timing(median, (low, high), len(milliseconds))


def time_together(contenders: Mapping[str, Work], *, calls: int = 1) -> dict[str, Timing]:
    """Times all contenders in alternation, so that disturbances affect all of them alike.

    Args:
        calls: number of calls that each contender stands for, such as those in a CUDA graph.
    """
    timers, repeats = {}, {}
    for name, work in contenders.items():
        work()  # compile, allocate, choose algorithms
        timers[name] = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
        repeats[name] = max(1, round(_SAMPLE_SECONDS / max(timers[name].timeit(1).mean, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    start, rounds = time.perf_counter(), 0
    while rounds < ROUNDS or time.perf_counter() - start < SECONDS:
        for name, timer in timers.items():
            timer.timeit(repeats[name])  # warm up: caches and threads were used by the previous contender
            samples[name].append(1000 * timer.timeit(repeats[name]).mean / calls)
        rounds += 1
    return {name: summarize(values) for name, values in samples.items()}


def capture(work: Work, device: torch.device) -> Work:
    """Returns a function that replays `CALLS_IN_GRAPH` calls of `work` as one CUDA graph."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(CALLS_IN_GRAPH):
            work()
    return graph.replay


def peak_mib(work: Work, device: torch.device) -> float:
    """Returns the GPU memory that torch allocates during one call at its peak, in MiB."""
    work()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Context manager: `count` other processes that each keep a core busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
