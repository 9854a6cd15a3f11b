"""Results of benchmarks: rows of our time beside that of a peer, with hardware and commit."""

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ptn.device import describe_device
from ptn.errors import InputError
from ptn.files import parse_json, write_text
from ptn.training.records import git_commit, timestamp

from .timing import CALLS_IN_GRAPH, Timing, Work, capture, peak_mib, time_together


class PeerMissing(Exception):  # noqa: N818
    """Raised by a peer that cannot take part, with the reason."""


Peers = Mapping[str, Callable[[], Work]]
"""Functions that return the work of a peer or raise PeerMissing, by title."""


@dataclass(frozen=True)
class Row:
    """Milliseconds per call of ours and of a peer; `ratio` is the peer's time divided by ours. Memory in MiB."""

    name: str
    ours_ms: float
    peer: str | None = None
    peer_ms: float | None = None
    ratio: float | None = None
    device: str = ""
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

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rows: list[Row] = []
        self.skipped: list[dict[str, str]] = []
        self.details: dict[str, Any] = {}
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    def compare(self, name: str, ours: Work, peers: Peers) -> None:
        """Times `ours` beside each peer, in one run."""
        self.add(name, time_together({"": ours} | self.present(name, peers)))

    def compare_kernels(self, name: str, ours: Work, peers: Peers) -> None:
        """As `compare`; on a GPU also the memory, and the time once more as CUDA graphs, which training uses."""
        if self.device.type != "cuda":
            self.compare(name, ours, peers)
            return
        contenders = {"": ours} | self.present(name, peers)
        times = time_together(contenders)
        peaks = {who: peak_mib(work, self.device) for who, work in contenders.items()}
        self.add(f"{name}, eager calls", times, peaks)
        graphs = {}
        for who, work in contenders.items():
            try:
                graphs[who] = capture(work, self.device)
            except RuntimeError as error:
                if not who:
                    raise
                self._skip(f"{name}, CUDA graph", who, f"it cannot be captured: {str(error).splitlines()[0]}")
        self.add(f"{name}, CUDA graph", time_together(graphs, calls=CALLS_IN_GRAPH))

    def present(self, name: str, peers: Peers) -> dict[str, Work]:
        """Returns the peers that can take part, and notes the others as skipped."""
        contenders = {}
        for peer, make in peers.items():
            try:
                contenders[peer] = make()
            except PeerMissing as reason:
                self._skip(name, peer, str(reason))
        return contenders

    def _skip(self, name: str, peer: str, reason: str) -> None:
        note = {"name": name, "peer": peer, "reason": reason}
        if note not in self.skipped:
            self.skipped.append(note)

    def add(self, name: str, times: Mapping[str, Timing], peaks: Mapping[str, float] | None = None) -> None:
        """Adds a row for each peer, or one without a peer, and prints it to standard error; our key is ""."""
        ours, peaks = times[""], peaks or {}
        alone = Row(
            name=name,
            ours_ms=ours.ms,
            device=describe_device(self.device),
            ours_quartiles_ms=ours.quartiles,
            rounds=ours.rounds,
            ours_mib=peaks.get(""),
        )
        beside = [
            replace(
                alone,
                peer=peer,
                peer_ms=theirs.ms,
                ratio=round(theirs.ms / ours.ms, 2),
                peer_quartiles_ms=theirs.quartiles,
                peer_mib=peaks.get(peer),
            )
            for peer, theirs in times.items()
            if peer
        ]
        for row in beside or [alone]:
            self.rows.append(row)
            versus = f", {row.ratio:g}× as fast as {row.peer}" if row.peer else ""
            print(f"{name}: {row.ours_ms:g} ms{versus}", file=sys.stderr)

    def report(self, suite: str) -> Report:
        """Returns all results so far, with hardware, versions and commit."""
        machine = {
            "kind": self.device.type,
            "device": describe_device(self.device),
            "system": platform.system(),
            "python": platform.python_version(),
            "torch": torch.__version__,
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
        values = parse_json(path.read_bytes(), str(path))
        return Report(**{**values, "rows": [Row(**row) for row in values["rows"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is not a benchmark report: {error}") from error
