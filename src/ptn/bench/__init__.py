"""What `ptn bench` runs: ours beside the peers', in one run, with the hardware."""

from .report import Bench, PeerMissing, Report, Row, read_report, write_report
from .suites import SUITES, file_name, run_suites
from .timing import Effort

__all__ = [
    "SUITES",
    "Bench",
    "Effort",
    "PeerMissing",
    "Report",
    "Row",
    "file_name",
    "read_report",
    "run_suites",
    "write_report",
]
