"""How long things take and how much memory they need, measured side by side."""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]

# a graph of one short call would be timed for its start
CALLS_IN_GRAPH = 20
# a sample shorter than this is mostly the clock's and the launch's own time: work is repeated until it is not
_SAMPLE_SECONDS = 0.002
# threads of one contender keep spinning for a while after its work, and would take the cores from the next
_SETTLE_SECONDS, _MOST_SETTLES = 0.01, 20
# threads that slept may wake on the same core, and part only after a while
_WAKE_SECONDS = 0.02
_STATUS, _CLEAR, _ALL_CORES = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/stat")


@dataclass(frozen=True)
class Effort:
    """How long to measure: for `seconds`, and for `rounds` rounds at least."""

    seconds: float = 4.0
    rounds: int = 9


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call, over so many rounds: the median and the quartiles."""

    ms: float
    quartiles: tuple[float, float]
    rounds: int

    def shared_by(self, calls: int) -> "Timing":
        """What each of `calls` calls has of it."""
        low, high = self.quartiles
        return Timing(self.ms / calls, (low / calls, high / calls), self.rounds)


def time_together(contenders: Mapping[str, Work], device: torch.device, effort: Effort) -> dict[str, Timing]:
    """The time of each contender, taken in turns so that what disturbs one disturbs all.

    Whoever's turn it is begins with as many calls that are not timed, or more, and so does not pay for what the
    others left behind, nor for a processor that has slept.
    """
    repeats = {}
    for name, work in contenders.items():
        work()  # what a first call does once: compile, allocate, choose an algorithm
        seconds = min(_seconds(work, 1, device) for _ in range(2))
        repeats[name] = max(1, round(_SAMPLE_SECONDS / max(seconds, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    start, rounds = time.perf_counter(), 0
    while rounds < effort.rounds or time.perf_counter() - start < effort.seconds:
        for name, work in contenders.items():
            _settle()
            _warm_up(work, repeats[name], device)
            samples[name].append(1000 * _seconds(work, repeats[name], device))
        rounds += 1
    return {name: summarise(values) for name, values in samples.items()}


def time_captured(contenders: Mapping[str, Work], device: torch.device, effort: Effort) -> dict[str, Timing]:
    """The time of each contender that `capture` made, one call of it."""
    times = time_together(contenders, device, effort)
    return {name: timing.shared_by(CALLS_IN_GRAPH) for name, timing in times.items()}


def capture(work: Work, device: torch.device) -> Work:
    """`CALLS_IN_GRAPH` calls of `work` as one CUDA graph: replaying it leaves the host next to nothing to do."""
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


def summarise(samples: list[float]) -> Timing:
    """The timing that samples in milliseconds amount to."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return Timing(middle, (low, high), len(samples))


def _settle() -> None:
    """Wait for threads that still spin to go to sleep, though not for ever: some are told never to."""
    for _ in range(_MOST_SETTLES):
        used = time.process_time()
        time.sleep(_SETTLE_SECONDS)
        if time.process_time() - used < _SETTLE_SECONDS / 10:
            return


def _warm_up(work: Work, repeats: int, device: torch.device) -> None:
    """So many calls; on a CPU more, until its threads have found their cores."""
    end = time.perf_counter() + (_WAKE_SECONDS if device.type == "cpu" else 0)
    _seconds(work, repeats, device)
    while time.perf_counter() < end:
        work()


def _seconds(work: Work, repeats: int, device: torch.device) -> float:
    """Seconds of one call, out of `repeats` in a row; on a GPU from the first kernel to the last."""
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000 / repeats
    begun = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - begun) / repeats


def peak_mib(work: Work, device: torch.device) -> float | None:
    """MiB of memory that one call needs at its peak beyond what is held before; None where that cannot be known.

    On a GPU what torch allocates. On a CPU the pages of the process, which Linux counts, after unused ones went
    back to the system; so it holds for packages other than torch too.
    """
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    if not (_CLEAR.exists() and hasattr(ctypes.CDLL(None), "malloc_trim")):
        return None
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")  # the peak so far is forgotten
    held = _resident_kib("VmRSS")
    work()
    return max(0, _resident_kib("VmHWM") - held) / 1024


def _resident_kib(key: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


class OtherWork:
    """How busy other processes keep the machine, counted from the moment this is made."""

    def __init__(self) -> None:
        self.start = self._now()

    def cores(self) -> float | None:
        """How many cores they kept busy on average; None where the system does not tell."""
        if self.start is None or (end := self._now()) is None:
            return None
        wall, all_of_them, ours = (after - before for before, after in zip(self.start, end, strict=True))
        return round(max(0.0, all_of_them - ours) / max(wall, 1e-9), 2)

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """Seconds on the clock, of all cores at work, and of our own process and its finished children."""
        if not _ALL_CORES.exists():
            return None
        user, nice, system = map(int, _ALL_CORES.read_text().split(maxsplit=4)[1:4])
        return time.perf_counter(), (user + nice + system) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])
