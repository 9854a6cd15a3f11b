"""The page of what was measured: Markdown and a picture, made from the JSON files and nothing else."""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import atomic_path
from ..reporting.figures import cost, style
from .report import Report, Row, read_report
from .suites import SUITES

_INTRODUCTION = """# Performance

Made by `ptn bench --page docs/performance.md` from `benchmarks/*.json`, which `ptn bench SUITE -o benchmarks`
writes. Ours and the others take turns in one process, after warming up; times are medians. *Times faster* is their
time over ours: below 1 they are faster. Memory is the peak of one call beyond what is held before it, MiB. No table
speaks for another machine.

Threads that wait for each other soon go to sleep (`OMP_WAIT_POLICY=PASSIVE` and `GOMP_SPINCOUNT=3000`, which the
`ptn` command sets; where no spin count is given, they slept at once). On a CPU that others use too, set them before
you start Python: threads that spin for long, torch's default, hold each other up.
"""

_TITLES = {
    "sampling": "Polar sampling",
    "inference": "Answering",
    "scaling": "How cost grows",
    "startup": "Starting up",
    "data": "Data",
    "audit": "Auditing",
    "demo": "The page",
    "training": "Training steps",
    "fleet": "Training in fleets",
}

_ABOUT = {
    "sampling": "`polar_sample`, bilinear in float32, a grid of the image's size, another origin for every image. "
    "`F.grid_sample` and kornia have the offsets of the grid kept for them and add the origins; OpenCV and "
    "scikit-image go over the images one by one, `warpPolar` and `warp_polar` by a radial law of their own.",
    "inference": "`ptn.for_inference(model)` beside the model as it is, in evaluation mode and `inference_mode`, "
    "and beside the model in ONNX Runtime with as many threads.",
    "scaling": "Images of one channel, as many radii as pixels.",
    "startup": "A fresh interpreter for each import; models at 96 pixels (32 for voxels).",
    "data": "Each once, from the files on the disk; what lacks files is left out.",
    "audit": "`ptn.audit` of PTN-B at 64 pixels, accuracy included: 36 angles alone, and with scales, shifts and "
    "inner layers as `ptn audit` does by default.",
    "demo": "`ptn demo` on loopback. Users turn a digit and ask again as soon as they are answered, and are on the "
    "same machine. The last row is a real browser, from a key press to the new picture.",
    "training": "A step of `ptn train rotmnist/ptn_b/paper+` in float32: batch, rotation, loss, gradients, "
    "optimizer. The plain loop does the same in eager torch. The escnn network is its tutorial's, equivariant to 8 "
    "rotations.",
    "fleet": "Milliseconds per epoch of 12,000 digits and run, several seeds at once on one device.",
}


def write_page(results: Path, page: Path) -> list[Path]:
    """Write `page` from the reports in the folder `results`, and its pictures beside it in `images`."""
    reports = [read_report(path) for path in sorted(results.glob("*.json"))]
    if not reports:
        raise InputError(f"no results in {results}: run `ptn bench -o {results}` first")
    order = list(SUITES)
    reports.sort(key=lambda report: (order.index(report.suite), report.machine["kind"]))
    sections, written = [_INTRODUCTION], [page]
    for report in reports:
        picture = _draw(report, page.parent / "images")
        sections.append(render(report, f"images/{picture.name}" if picture else None))
        written += [picture] if picture else []
    with atomic_path(page) as temporary:
        temporary.write_text("\n".join(sections), encoding="utf-8")
    return written


def render(report: Report, picture: str | None) -> str:
    """A section of the page, with the address of its picture if there is one."""
    machine = report.machine
    lines = [
        f"## {_TITLES[report.suite]}: {machine['device']}",
        "",
        _ABOUT[report.suite],
        "",
        _describe(machine),
        "",
    ]
    if picture:
        lines += [f"![Milliseconds against batch, image size and angles, on logarithmic axes]({picture})", ""]
    lines += _table(report.rows)
    if calls := report.details.get("calls_in_graph"):
        lines += [
            "*Eager calls* include what Python and torch do to start each kernel, ours and theirs. A *CUDA graph* "
            f"is {calls} such calls recorded once and replayed, as `ptn train` runs its steps: the GPU's own time.",
            "",
        ]
    if bandwidth := report.details.get("bandwidth"):
        lines += [
            f"Forward on {bandwidth['shape']}: {bandwidth['sample_gb_per_second']:g} GB/s read and written, "
            f"{100 * bandwidth['share_of_copy']:.0f}% of what a plain copy moves "
            f"({bandwidth['copy_gb_per_second']:g} GB/s).",
            "",
        ]
    if "answers" in report.details:
        load = report.details
        wrong = sum(load["errors"].values()) or "no"
        lines += [
            f"{load['users']} users for {load['seconds']:g} s on {load['networks']}: {load['answers']:,} answers, "
            f"{load['answers_per_second']:g} a second, {wrong} errors.",
            "",
        ]
    lines += _left_out(report.skipped)
    return "\n".join(lines + ([""] if report.skipped else []))


def _describe(machine: dict[str, Any]) -> str:
    """The circumstances, as far as the report has them."""
    shown = {"system": "{}", "python": "Python {}", "torch": "torch {}", "git": "commit {}", "date": "{:.10}"}
    shown |= {"spin_count": "spin count {}", "cores_busy_elsewhere": "{} cores busy with other work meanwhile"}
    known = [text.format(machine[key]) for key, text in shown.items() if machine.get(key) is not None]
    return ", ".join(known) + "."


def _left_out(skipped: list[dict[str, str]]) -> list[str]:
    """A line for each reason: what was left out for it, and beside what, or beside how many things."""
    reasons: dict[tuple[str, bool], list[dict[str, str]]] = {}
    for entry in skipped:
        reasons.setdefault((entry["reason"], bool(entry["peer"])), []).append(entry)
    lines = []
    for (reason, compared), entries in reasons.items():
        names = list(dict.fromkeys(entry["name"] for entry in entries))
        beside = names[0] if len(names) == 1 else f"{len(names)} things measured"
        what = list(dict.fromkeys(entry["peer"] for entry in entries)) if compared else names
        lines.append(f"- Left out{f' beside {beside}' if compared else ''}: {'; '.join(what)} ({reason}).")
    return lines


def _table(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    compared = any(row.peer for row in rows)
    measured = any(row.ours_mib is not None for row in rows)
    headings = ["", "ours, ms"] + (["beside", "theirs, ms", "times faster"] if compared else [])
    headings += ["memory, ours / theirs"] if measured else []
    aligned = ["---" if heading in ("", "beside") else "---:" for heading in headings]
    lines = [_line(headings), "|" + "|".join(aligned) + "|"]
    previous = None
    for row in rows:
        repeated = row.name == previous
        cells = ["" if repeated else row.name, "" if repeated else _number(row.ours_ms)]
        if compared:
            cells += [
                row.peer or "",
                _number(row.peer_ms),
                "" if row.ratio is None else f"**{_number(row.ratio)}**",
            ]
        if measured:
            cells.append("" if row.ours_mib is None else f"{_number(row.ours_mib)} / {_number(row.peer_mib)}")
        lines.append(_line(cells))
        previous = row.name
    return [*lines, ""]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _draw(report: Report, folder: Path) -> Path | None:
    curves = report.details.get("curves")
    if not curves:
        return None
    path = folder / f"cost.{report.machine['kind']}.png"
    with style.paper():
        cost.draw([_curve(values) for values in curves], path, title=report.machine["device"])
    return path


def _curve(values: dict[str, Any]) -> cost.Curve:
    start, axis = values["start"], values["axis"]
    fixed = {"batch": f"{start['size']}² pixels", "image size": f"batch {start['batch']}"}
    text = fixed.get(axis, f"batch {start['batch']}, {start['size']}² pixels")
    return cost.Curve(values["what"], axis, values["at"], values["ms"], text)
