"""Every suite by name, and running them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import unknown_name
from . import audit, data, demo, fleet, inference, sampling, scaling, startup, training
from .report import Bench, Report, Row
from .timing import Effort


@dataclass(frozen=True)
class Suite:
    """What is measured, and whether it depends on the device and is run unless others are asked for."""

    measure: Callable[..., None]
    about: str
    by_device: bool = True
    by_default: bool = False


# training last: it sets switches of torch for the whole process
SUITES: Mapping[str, Suite] = {
    "sampling": Suite(sampling.measure, "polar sampling beside grid_sample, kornia, OpenCV, …", by_default=True),
    "inference": Suite(inference.measure, "PTN-B answering beside eager and ONNX Runtime", by_default=True),
    "scaling": Suite(scaling.measure, "cost as batch, image and angles grow"),
    "startup": Suite(startup.measure, "imports and construction", by_device=False),
    "data": Suite(data.measure, "making and loading data", by_device=False),
    "audit": Suite(audit.measure, "auditing PTN-B"),
    "demo": Suite(demo.measure, "the page of `ptn demo`: 20 users at once, and a browser", by_device=False),
    "training": Suite(training.measure, "steps of PTN-B beside a plain loop and escnn", by_default=True),
    "fleet": Suite(fleet.measure, "epochs of PTN-B, alone and in fleets"),
}


def run_suites(
    names: Sequence[str],
    device: torch.device,
    effort: Effort | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    on_suite: Callable[[str], None] = lambda name: None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> list[Report]:
    """The reports of the suites called `names`, by default those that compare, in the order of `SUITES`.

    `options` are keyword arguments of a suite's `measure`, by its name. The callbacks say how far it is.
    """
    for name in names:
        if name not in SUITES:
            raise unknown_name("suite", name, SUITES)
    chosen = [name for name, suite in SUITES.items() if (name in names if names else suite.by_default)]
    reports = []
    for name in chosen:
        on_suite(name)
        bench = Bench(device if SUITES[name].by_device else torch.device("cpu"), effort)
        bench.on_row = on_row
        SUITES[name].measure(bench, **(options or {}).get(name, {}))
        reports.append(bench.report(name))
        on_report(reports[-1])
    return reports


def file_name(report: Report) -> str:
    """Where a report is kept: `sampling.cpu.json`, or `startup.json` where the device does not matter."""
    if not SUITES[report.suite].by_device:
        return f"{report.suite}.json"
    return f"{report.suite}.{report.machine['kind']}.json"
