"""An audit as files: JSON for programs, Markdown for people, a picture."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..evaluation import Audit, LayerError, Point
from ..evaluation.consistency import Kind
from ..files import atomic_path
from .align import align
from .figures import audit as figure

KINDS: tuple[Kind, ...] = ("rotation", "scale", "shift")
_UNITS = {"rotation": "{:g}°", "scale": "×{:g}", "shift": "{:g} px"}
_MAPS = {"image": "turned, scaled", "polar": "rolled, shifted", "same": "as it was"}


@dataclass(frozen=True)
class Summary:
    """One kind of transform over all its amounts but the one that changes nothing, and the worst of them."""

    kind: Kind
    consistency: float
    worst: Point
    change: float
    accuracy: float | None
    resampling_consistency: float
    resampling_change: float


def summarise(audit: Audit) -> list[Summary]:
    """A row for each kind of transform that was tried."""
    rows = []
    for kind in KINDS:
        points = [p for p in audit.curve(kind) if p.amount != (1.0 if kind == "scale" else 0.0)]
        if not points:
            continue
        accuracies = [p.transformed.accuracy for p in points if p.transformed.accuracy is not None]
        rows.append(
            Summary(
                kind,
                _mean([p.transformed.consistency for p in points]),
                min(points, key=lambda p: p.transformed.consistency),
                _mean([p.transformed.change for p in points]),
                _mean(accuracies) if accuracies else None,
                _mean([p.resampling.consistency for p in points]),
                _mean([p.resampling.change for p in points]),
            )
        )
    return rows


def written_amount(kind: str, amount: float) -> str:
    """An amount with its unit: 90°, ×1.25, 4 px."""
    return _UNITS[kind].format(amount)


def summary_columns(audit: Audit) -> dict[str, list[str]]:
    """The cells of the summary by heading."""
    rows = summarise(audit)
    columns: dict[str, list[str]] = {
        "against": [row.kind for row in rows],
        "same answer": [f"{row.consistency:.1f}%" for row in rows],
        "worst": [
            f"{row.worst.transformed.consistency:.1f}% at {written_amount(row.kind, row.worst.amount)}"
            for row in rows
        ],
        "probabilities move": [f"{row.change:.3f}" for row in rows],
        "accuracy": [f"{row.accuracy:.1f}%" for row in rows if row.accuracy is not None],
        "resampled only: same answer": [f"{row.resampling_consistency:.1f}%" for row in rows],
        "resampled only: move": [f"{row.resampling_change:.3f}" for row in rows],
    }
    return {heading: cells for heading, cells in columns.items() if cells}


def describe(audit: Audit) -> str:
    """One line on what was audited."""
    of = f" of {audit.data}" if audit.data else ""
    known = "no labels" if audit.accuracy is None else f"accuracy as they are {audit.accuracy:.1f}%"
    if audit.accuracy_in_disc is not None:
        known += f", through the disc {audit.accuracy_in_disc:.1f}%"
    shape = " × ".join(map(str, audit.shape))
    return f"{audit.images:,} images{of}, {shape}, {audit.classes} classes; {known}"


def render_audit(audit: Audit) -> str:
    """The report as Markdown."""
    parts = [
        f"# Audit of {audit.model}",
        "",
        f"{describe(audit)}.",
        "",
        *align(summary_columns(audit), names=("against",)),
    ]
    parts += ["", *(f"- {note}" for note in _notes(audit)), ""]
    for kind in KINDS:
        if points := audit.curve(kind):
            parts += [f"## Against {kind}", "", *align(_curve_columns(points)), ""]
    if audit.layers:
        parts += [
            "## Inner layers",
            "",
            *align(_layer_columns(audit.layers), names=("layer", "map", "expected")),
            "",
        ]
        parts += [*(f"- {note}" for note in _layer_notes(audit)), ""]
    return "\n".join(parts)


def write_audit(audit: Audit, folder: str | Path) -> list[Path]:
    """Write audit.json, audit.md and audit.png into `folder`, and return where they are."""
    place = Path(folder)
    texts = {"audit.json": json.dumps(audit.to_dict(), indent=2) + "\n", "audit.md": render_audit(audit)}
    for name, text in texts.items():
        with atomic_path(place / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    figure.draw(audit, place / "audit.png")
    return [place / "audit.json", place / "audit.md", place / "audit.png"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _curve_columns(points: Sequence[Point]) -> dict[str, list[str]]:
    columns = {
        "by": [written_amount(p.kind, p.amount) for p in points],
        "same answer": [f"{p.transformed.consistency:.1f}%" for p in points],
        "probabilities move": [f"{p.transformed.change:.3f}" for p in points],
        "accuracy": [_percent(p.transformed.accuracy) for p in points],
        "resampled only: same answer": [f"{p.resampling.consistency:.1f}%" for p in points],
        "resampled only: move": [f"{p.resampling.change:.3f}" for p in points],
        "resampled only: accuracy": [_percent(p.resampling.accuracy) for p in points],
    }
    return {heading: cells for heading, cells in columns.items() if any(cells)}


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}%"


def _layer_columns(layers: Sequence[LayerError]) -> dict[str, list[str]]:
    """A row for each layer, and a pair of columns for each transform."""
    names = list(dict.fromkeys(error.layer for error in layers))
    firsts = [next(error for error in layers if error.layer == name) for name in names]
    columns = {
        "layer": names,
        "map": ["×".join(map(str, error.shape)) for error in firsts],
        "expected": [_MAPS[error.relation] for error in firsts],
    }
    for kind, amount in dict.fromkeys((error.kind, error.amount) for error in layers):
        found = [error for error in layers if (error.kind, error.amount) == (kind, amount)]
        heading = written_amount(kind, amount)
        columns[heading] = [_ratio(error.error) for error in found]
        columns[f"{heading} resampled only"] = [_ratio(error.resampling) for error in found]
    return columns


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _notes(audit: Audit) -> Iterator[str]:
    yield (
        "*Same answer*: the likeliest class is that of the image before it was transformed. *Probabilities move*: "
        "half the summed differences of class probabilities, the mean over images; 0 is no change, 1 another class "
        "for certain."
    )
    yield (
        f"*Resampled only*: images transformed and then transformed back ({audit.settings['interpolation']} "
        "interpolation): nothing has turned, grown or moved, yet they have been interpolated, twice where "
        "transformed images are once. What changes there is interpolation; what changes beyond it is the "
        "classifier. Quarter turns of square images and whole pixels need no interpolation."
    )
    if audit.settings["mask"] == "circle":
        yield (
            "Turned images, and those they are compared with, are seen through the largest disc in them: no "
            "corner comes or goes. Scaled and shifted images are seen whole: what leaves is lost, and what comes "
            "into view is black."
        )
        if audit.accuracy_in_disc is not None and audit.accuracy is not None:
            yield (
                f"So the accuracy at 0°, {audit.accuracy_in_disc:.1f}%, is that through the disc, not that of the "
                f"images as they are, {audit.accuracy:.1f}%: the difference is what their corners say."
            )
    else:
        yield "Nothing is masked: corners that turn out of an image are lost, and what comes into view is black."
    yield "A shift is the mean over four directions. Means in the first table leave out what changes nothing."
    if audit.settings["scores"] == "probabilities":
        yield "The classifier's scores are probabilities, and are taken as such."


def _layer_notes(audit: Audit) -> Iterator[str]:
    yield (
        "‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ over "
        f"{audit.settings['layer_images']} images: 0 is exact equivariance, 1 as far off as nothing at all."
    )
    yield (
        "*Turned, scaled*: a map that lies over the image, about its own middle and inside a disc; strides that "
        "centre their cells elsewhere show. *Rolled, shifted*: a polar map, along its angles and along its radii; "
        "an origin that does not follow the image shows. *As it was*: scores, and what follows a spatial "
        "transformer."
    )
    yield "*Resampled only*: image and map transformed there and back; coarse maps bear interpolation badly."
