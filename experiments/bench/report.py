"""Results of benchmarks: rows of our time beside that of a peer, with hardware and commit."""

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from ptn.device import describe_device
from ptn.errors import InputError
from ptn.files import write_text
from ptn.training.records import git_commit, timestamp

from .timing import CALLS_IN_GRAPH, Effort, Timing, Work, capture, peak_mib, time_together


class PeerMissing(Exception):  # noqa: N818
    """Raised by a peer that cannot take part, with the reason."""


@dataclass(frozen=True)
class Row:
    """Milliseconds per call of ours and of a peer; `ratio` is the peer's time divided by ours. Memory in MiB."""

    name: str
    ours_ms: float
    peer: str | None
    peer_ms: float | None
    ratio: float | None
    device: str
    ours_quartiles_ms: tuple[float, float] | None = None
    peer_quartiles_ms: tuple[float, float] | None = None
    rounds: int = 1
    ours_mib: float | None = None
    peer_mib: float | None = None


@dataclass(frozen=True)
class Report:
    """The rows of a suite, the peers that were skipped, with reasons, and further results."""

    suite: str
    machine: dict[str, Any]
    rows: list[Row]
    skipped: list[dict[str, str]]
    details: dict[str, Any] = field(default_factory=dict)


class Bench:
    """Measures on one device and collects the results."""

    def __init__(self, device: torch.device, effort: Effort | None = None) -> None:
        self.device = device
        self.effort = effort or Effort()
        self.rows: list[Row] = []
        self.skipped: list[dict[str, str]] = []
        self.details: dict[str, Any] = {}
        self.on_row: Callable[[Row], None] = lambda row: None
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    def compare(
        self,
        name: str,
        ours: Work,
        peers: Mapping[str, Callable[[], Work]],
        *,
        memory: bool = False,
        graph: bool = False,
        effort: Effort | None = None,
    ) -> None:
        """Times `ours` beside each peer, in one run; peers are functions that return the work or raise PeerMissing.

        With `graph`, on a GPU, once more as CUDA graphs, which training uses.
        """
        contenders = {"": ours} | self.present(name, peers)
        effort = effort or self.effort
        times = time_together(contenders, effort)
        peaks = {who: peak_mib(work, self.device) for who, work in contenders.items()} if memory else {}
        if not graph or self.device.type != "cuda":
            self._add_all(name, times, peaks)
            return
        self._add_all(f"{name}, eager calls", times, peaks)
        graphs = {}
        for who, work in contenders.items():
            try:
                graphs[who] = capture(work, self.device)
            except RuntimeError as error:
                if not who:
                    raise
                self.skip(f"{name}, CUDA graph", who, f"it cannot be captured: {str(error).splitlines()[0]}")
        self._add_all(f"{name}, CUDA graph", time_together(graphs, effort, calls=CALLS_IN_GRAPH), {})

    def present(self, name: str, peers: Mapping[str, Callable[[], Work]]) -> dict[str, Work]:
        """Returns the peers that can take part; the others are noted as skipped."""
        contenders = {}
        for peer, make in peers.items():
            try:
                contenders[peer] = make()
            except PeerMissing as reason:
                self.skip(name, peer, str(reason))
        return contenders

    def skip(self, name: str, peer: str, reason: str) -> None:
        """Notes that a peer was skipped."""
        note = {"name": name, "peer": peer, "reason": reason}
        if note not in self.skipped:
            self.skipped.append(note)

    def _add_all(self, name: str, times: Mapping[str, Timing], peaks: Mapping[str, float | None]) -> None:
        ours, *others = times
        if not others:
            self.add(name, times[ours], ours_mib=peaks.get(ours))
        for peer in others:
            self.add(name, times[ours], peer, times[peer], peaks.get(ours), peaks.get(peer))

    def add(
        self,
        name: str,
        ours: Timing,
        peer: str | None = None,
        theirs: Timing | None = None,
        ours_mib: float | None = None,
        peer_mib: float | None = None,
    ) -> None:
        """Adds a row."""
        row = Row(
            name=name,
            ours_ms=ours.ms,
            peer=peer,
            peer_ms=None if theirs is None else theirs.ms,
            ratio=None if theirs is None else round(theirs.ms / ours.ms, 2),
            device=describe_device(self.device),
            ours_quartiles_ms=ours.quartiles,
            peer_quartiles_ms=None if theirs is None else theirs.quartiles,
            rounds=ours.rounds,
            ours_mib=ours_mib,
            peer_mib=peer_mib,
        )
        self.rows.append(row)
        self.on_row(row)

    def report(self, suite: str) -> Report:
        """Returns all results so far, with hardware, versions and commit."""
        machine = {
            "kind": self.device.type,
            "device": describe_device(self.device),
            "cpu": describe_device(torch.device("cpu")),
            "system": platform.system(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "spin_count": os.environ.get("GOMP_SPINCOUNT"),
            "load": self.load,
            "git": git_commit(),
            "date": timestamp(),
        }
        return Report(suite, machine, self.rows, self.skipped, self.details)


def write_report(report: Report, folder: Path) -> None:
    """Writes `report` to SUITE.DEVICE.json in `folder`."""
    text = json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"
    write_text(folder / f"{report.suite}.{report.machine['kind']}.json", text)


def read_report(path: Path) -> Report:
    """Returns the report in a file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Report(**{**values, "rows": [Row(**row) for row in values["rows"]]})
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is not a benchmark report: {error}") from error
