"""What a benchmark found: rows of ours beside a peer, with the hardware and the commit."""

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..device import describe_device
from ..errors import InputError
from ..files import atomic_path
from ..training.records import git_commit, timestamp
from .timing import Effort, OtherWork, Timing, Work, capture, peak_mib, time_captured, time_together


class PeerMissing(Exception):  # noqa: N818
    """A peer that cannot take part here, and why."""


@dataclass(frozen=True)
class Row:
    """One thing measured: milliseconds of ours and of a peer; `ratio` is how many times faster ours is.

    What has no peer has None there. The peaks of memory are in MiB.
    """

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

    def brief(self) -> dict[str, Any]:
        """What `ptn bench --json` prints."""
        keys = ("name", "ours_ms", "peer", "peer_ms", "ratio", "device")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Report:
    """All rows of a suite, the peers that were left out and why, and what else the suite has to say."""

    suite: str
    machine: dict[str, Any]
    rows: list[Row]
    skipped: list[dict[str, str]]
    details: dict[str, Any] = field(default_factory=dict)


class Bench:
    """Measures on one device and collects what it finds."""

    def __init__(self, device: torch.device, effort: Effort | None = None) -> None:
        self.device = device
        self.effort = effort or Effort()
        self.rows: list[Row] = []
        self.skipped: list[dict[str, str]] = []
        self.details: dict[str, Any] = {}
        self.other_work = OtherWork()
        self.on_row: Callable[[Row], None] = lambda row: None

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
        """Time `ours` beside each peer that its maker does not refuse with `PeerMissing`, all in one run.

        With `graph`, on a GPU, twice: as plain calls, and as a CUDA graph, the way training runs its steps.
        """
        contenders = {"": ours}
        for peer, make in peers.items():
            try:
                contenders[peer] = make()
            except PeerMissing as reason:
                self.skip(name, peer, str(reason))
        times = time_together(contenders, self.device, effort or self.effort)
        peaks = {who: peak_mib(work, self.device) if memory else None for who, work in contenders.items()}
        twice = graph and self.device.type == "cuda"
        self._add_all(f"{name}, eager calls" if twice else name, times, peaks)
        if twice:
            name = f"{name}, CUDA graph"
            graphs = self._captured(name, contenders)
            self._add_all(name, time_captured(graphs, self.device, effort or self.effort), {})

    def _captured(self, name: str, contenders: Mapping[str, Work]) -> dict[str, Work]:
        """The contenders as CUDA graphs, without the peers that cannot be one."""
        graphs = {}
        for who, work in contenders.items():
            try:
                graphs[who] = capture(work, self.device)
            except RuntimeError as error:
                if not who:
                    raise
                self.skip(name, who, f"it cannot be captured: {str(error).partition(chr(10))[0]}")
        return graphs

    def _add_all(self, name: str, times: Mapping[str, Timing], peaks: Mapping[str, float | None]) -> None:
        """A row for each peer, or one without."""
        ours, *peers = times
        if not peers:
            self.add(name, times[ours], ours_mib=peaks.get(ours))
        for peer in peers:
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
        """One more row."""
        row = Row(
            name,
            _digits(ours.ms),
            peer,
            None if theirs is None else _digits(theirs.ms),
            None if theirs is None else round(theirs.ms / ours.ms, 2),
            describe_device(self.device),
            _each(ours.quartiles),
            None if theirs is None else _each(theirs.quartiles),
            ours.rounds,
            None if ours_mib is None else round(ours_mib, 1),
            None if peer_mib is None else round(peer_mib, 1),
        )
        self.rows.append(row)
        self.on_row(row)

    def skip(self, name: str, peer: str, reason: str) -> None:
        """Remember that a peer was left out."""
        self.skipped.append({"name": name, "peer": peer, "reason": reason})

    def report(self, suite: str) -> Report:
        """Everything found so far."""
        machine = describe_machine(self.device) | {"cores_busy_elsewhere": self.other_work.cores()}
        return Report(suite, machine, self.rows, self.skipped, self.details)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Hardware, versions and commit, as a benchmark records them."""
    return {
        "kind": device.type,
        "device": describe_device(device),
        "cpu": describe_device(torch.device("cpu")),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "spin_count": os.environ.get("GOMP_SPINCOUNT"),
        "git": git_commit(),
        "date": timestamp(),
    }


def write_report(report: Report, path: Path) -> None:
    """`report` as JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_report(path: Path) -> Report:
    """What `write_report` wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Report(**{**values, "rows": [Row(**row) for row in values["rows"]]})
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is not a report of `ptn bench`: {error}") from error


def _digits(value: float) -> float:
    """`value` to four significant digits."""
    return float(f"{value:.4g}")


def _each(values: tuple[float, float]) -> tuple[float, float]:
    low, high = values
    return _digits(low), _digits(high)
