"""Audit of a classifier: accuracy and consistency of its predictions under rotations, scales and shifts."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import check
from ..data.dataset import Dataset, VoxelDataset
from ..device import default_batch, placement
from ..errors import InputError
from ..files import write_text
from ..geometry import similarity_warp
from ..models import OnnxModel, load_model, prepare_for_inference
from .classify import check_finite, inference, plane_size, to_float
from .equivariance import MODE, Kind, LayerError, Transform, disc, layer_errors, round_trip

ANGLES = tuple(float(angle) for angle in range(0, 360, 10))
SCALES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4)
_IDENTITY: dict[Kind, float] = {"rotation": 0.0, "scale": 1.0, "shift": 0.0}
_SHIFT_SHARES = (1 / 16, 1 / 8)  # of the shorter side, in addition to one pixel
_DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
_LAYER_TRANSFORMS = (Transform.of("rotation", 45.0), Transform.of("rotation", 90.0), Transform.of("scale", 1.25))
_LAYER_IMAGES = 64


@dataclass(frozen=True)
class Agreement:
    """Predictions for transformed images compared with those for the original images.

    Attributes:
        consistency: share of equal predictions, in %.
        change: mean total variation distance ½Σ|p − q| of the class probabilities, from 0 to 1.
        accuracy: in %; None without labels.
    """

    consistency: float
    change: float
    accuracy: float | None


@dataclass(frozen=True)
class Point:
    """Results for one amount of a transform: degrees, a factor, or pixels (mean over four directions).

    `resampling` compares with images that were transformed and transformed back: they are interpolated twice but
    neither rotated, scaled nor shifted.
    """

    kind: Kind
    amount: float
    transformed: Agreement
    resampling: Agreement


@dataclass(frozen=True)
class Audit:
    """Result of `audit`. `accuracy` is that on the original images in %, None without labels."""

    model: str
    data: str
    images: int
    shape: tuple[int, ...]
    classes: int
    accuracy: float | None
    points: tuple[Point, ...]
    layers: tuple[LayerError, ...]
    settings: dict[str, Any]
    seconds: float

    def curve(self, kind: Kind) -> tuple[Point, ...]:
        """Returns the points of one kind, sorted by amount."""
        return tuple(sorted((p for p in self.points if p.kind == kind), key=lambda p: p.amount))

    @property
    def accuracy_in_disc(self) -> float | None:
        """Accuracy in % on unrotated images inside the disc; None without labels or the angle 0."""
        return next((p.transformed.accuracy for p in self.curve("rotation") if p.amount == 0), None)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON-like values."""
        return asdict(self)


def audit(
    model: nn.Module | Callable[..., Any] | str | Path,
    images: Tensor | np.ndarray[Any, Any] | Dataset | VoxelDataset,
    labels: Tensor | Sequence[int] | None = None,
    *,
    angles: Sequence[float] = ANGLES,
    scales: Sequence[float] = SCALES,
    shifts_px: Sequence[float] | None = None,
    layers: Sequence[str] | None = None,
    batch: int | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Returns accuracy and consistency of any classifier under rotations, scales and shifts of its images.

    Images rotate about their center. Rotated images, and those they are compared with, are masked by a disc, so
    that no corners appear or disappear. Scaled and shifted images are not masked, and padded with black.
    Interpolation is bicubic; its effect is measured separately, see `Point`.

    Args:
        model: images (N, C, H, W) in [0, 1] -> logits or probabilities (N, classes): a torch module, a function, or
            a source of `load_model`.
        images: (N, C, H, W) as floats in [0, 1] or uint8; volumes (N, C, X, Y, Z), which rotate about z; or a data
            set, which includes labels.
        labels: class indices; without them only the consistency is measured.
        angles: in degrees.
        shifts_px: in pixels, each along ±x and ±y; by default 0, 1, 1/16 and 1/8 of the shorter side.
        layers: inner layers whose equivariance is measured, see `LayerError`; by default the blocks of a torch
            module, () for none.
        batch: images per forward pass.
        device: where to compute; by default the device of the model. The model is moved there.
        progress: called with the number of transformed images done and the total.
    """
    start = time.perf_counter()
    check("batch", batch, batch is None or batch >= 1, "at least 1")
    pixels, truth = _check_data(images, labels)
    network = _as_module(model)
    opaque = isinstance(network, OnnxModel | _Function)
    if opaque and layers:
        raise InputError("layers needs a torch module: inner layers of other classifiers cannot be measured")
    if device is not None:
        network.to(device)
    place, dtype = placement(network)
    transforms = _transforms(angles, scales, shifts_px, plane_size(pixels))
    prepared = prepare_for_inference(network)
    size = batch or default_batch(pixels.shape[1:])
    total, done = len(pixels) * len(transforms), 0

    def predict(inputs: Tensor) -> Tensor:
        scores = _scores(prepared, inputs)
        return scores if probabilities else scores.softmax(dim=1)

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    with inference(prepared, place, size):
        first = _scores(prepared, to_float(pixels[:2], place, dtype))
        classes, probabilities = first.shape[1], _are_probabilities(first)
        if truth is not None and int(truth.max()) >= classes:
            raise InputError(f"label {int(truth.max())} is outside the {classes} classes of the model")
        sums = torch.zeros(2 * len(transforms) + 1, 3, dtype=torch.float64)
        for index in range(0, len(pixels), size):
            chosen = slice(index, index + size)
            inputs = to_float(pixels[chosen], place, dtype)
            sums += _compare(predict, inputs, None if truth is None else truth[chosen], transforms, report)
    means = sums / len(pixels)

    def agreement(row: Tensor) -> Agreement:
        same, change, correct = row.tolist()
        return Agreement(100 * same, change, None if truth is None else 100 * correct)

    rows: dict[tuple[Kind, float], list[Tensor]] = {}  # several directions of a shift
    for transform, row in zip(transforms, means[:-1].unflatten(0, (len(transforms), 2)), strict=True):
        rows.setdefault((transform.kind, transform.amount), []).append(row)
    points = tuple(Point(*key, *map(agreement, torch.stack(parts).mean(dim=0))) for key, parts in rows.items())
    errors: list[LayerError] = []
    if not opaque and (layers is None or layers):
        some = to_float(pixels[:_LAYER_IMAGES], place, dtype)
        errors = layer_errors(network, some, _LAYER_TRANSFORMS, names=layers)
    return Audit(
        model=_name(model),
        data=f"{images.name} {images.split}" if isinstance(images, Dataset | VoxelDataset) else "",
        images=len(pixels),
        shape=tuple(pixels.shape[1:]),
        classes=classes,
        accuracy=agreement(means[-1]).accuracy,
        points=points,
        layers=tuple(errors),
        settings={
            "scores": "probabilities" if probabilities else "logits",
            "layer_images": min(_LAYER_IMAGES, len(pixels)) if errors else 0,
            "torch": torch.__version__,
            "device": str(place),
        },
        seconds=time.perf_counter() - start,
    )


def _compare(
    predict: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor | None,
    transforms: Sequence[Transform],
    report: Callable[[int], None],
) -> Tensor:
    """Returns `_sums` (2 * transforms + 1, 3): transformed and resampled images; last the original images."""
    window, size = disc(images), plane_size(images)
    whole, in_disc = predict(images), predict(images * window)
    resampled: dict[Transform, Tensor] = {}  # predictions that several transforms share
    sums = []
    for transform in transforms:
        rotated = transform.kind == "rotation"
        mask = window if rotated else images.new_ones(())
        before = after = back = in_disc if rotated else whole
        if transform.amount != _IDENTITY[transform.kind]:
            # The disc touches the border, where zero padding would be interpolated into it.
            padding_mode: Any = "border" if rotated else "zeros"
            warped = similarity_warp(images, transform.pose, mode=MODE, padding_mode=padding_mode)
            after = predict(warped.clamp(0, 1) * mask)
        alike = _interpolation(transform, size)
        if alike is not None:
            if alike not in resampled:
                resampled[alike] = predict(round_trip(images, alike.pose).clamp(0, 1) * mask)
            back = resampled[alike]
        sums += [_sums(before, after, labels), _sums(before, back, labels)]
        report(len(images))
    return torch.stack([*sums, _sums(whole, whole, labels)])


def _sums(before: Tensor, after: Tensor, labels: Tensor | None) -> Tensor:
    """Returns sums over probabilities (N, classes): equal predictions, ½Σ|p − q|, correct predictions."""
    predictions = after.argmax(dim=1)
    same = (predictions == before.argmax(dim=1)).double().sum()
    change = (after - before).abs().sum(dim=1).double().sum() / 2
    correct = torch.zeros_like(same) if labels is None else (predictions == labels).double().sum()
    return torch.stack((same, change, correct))


def _scores(model: nn.Module, images: Tensor) -> Tensor:
    """Returns logits or probabilities (N, classes) on the CPU, after checking them."""
    scores = model(images)
    if not isinstance(scores, Tensor):
        raise InputError(f"a classifier must return a tensor (N, classes); got {type(scores).__name__}")
    if scores.dim() != 2 or len(scores) != len(images) or scores.shape[1] < 2:
        expected = f"({len(images)}, classes) for {len(images)} images, at least 2 classes"
        raise InputError(f"a classifier must return logits {expected}; got {tuple(scores.shape)}")
    scores = scores.float().cpu()
    check_finite(scores)
    return scores


def _are_probabilities(scores: Tensor) -> bool:
    return bool((scores >= 0).all()) and bool(((scores.sum(dim=1) - 1).abs() < 1e-3).all())


def _interpolation(transform: Transform, size: tuple[int, int]) -> Transform | None:
    """Returns the smallest transform that interpolates images of this size like `transform`, or None.

    Rotations of square images by 90°, of other images by 180°, and shifts by whole pixels map pixels onto pixels.
    """
    if transform.kind == "rotation":
        transform = Transform.of("rotation", transform.amount % (90 if size[0] == size[1] else 180))
    exact = transform.kind == "shift" and transform.amount.is_integer()
    return None if exact or transform.amount == _IDENTITY[transform.kind] else transform


def _transforms(
    angles: Sequence[float], scales: Sequence[float], shifts: Sequence[float] | None, size: tuple[int, int]
) -> list[Transform]:
    if shifts is None:
        shifts = sorted({0, 1, *(max(1, round(share * min(size))) for share in _SHIFT_SHARES)})
    amounts = [*angles, *scales, *shifts]
    if not all(map(np.isfinite, amounts)) or not all(scale > 0 for scale in scales):
        raise InputError(f"angles, scales and shifts must be finite, scales positive; got {amounts}")
    transforms = [Transform.of("rotation", angle) for angle in dict.fromkeys(map(float, angles))]
    transforms += [Transform.of("scale", scale) for scale in dict.fromkeys(map(float, scales))]
    for shift in dict.fromkeys(map(float, shifts)):
        transforms += [Transform.of("shift", shift, way) for way in (_DIRECTIONS if shift else _DIRECTIONS[:1])]
    return transforms


def _check_data(images: Any, labels: Any) -> tuple[Tensor, Tensor | None]:
    """Returns images as a tensor, and int64 labels if there are any."""
    if isinstance(images, Dataset | VoxelDataset):
        images, labels = images.images, images.labels if labels is None else labels
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    if not isinstance(images, Tensor):
        raise InputError(f"images must be a tensor (N, C, H, W) or a data set; got {type(images).__name__}")
    valid_shape = images.dim() in (4, 5) and 0 not in images.shape
    check("the shape of images", tuple(images.shape), valid_shape, "(N, C, H, W), with at least one image")
    in_range = images.is_floating_point() and bool(images.min() >= 0) and bool(images.max() <= 1)
    values = f"{images.dtype} up to {float(images.max()):g}"
    check("images", values, images.dtype == torch.uint8 or in_range, "floats in [0, 1] or uint8")
    if labels is None:
        return images, None
    truth = torch.as_tensor(labels).cpu()
    whole = not truth.is_floating_point() and truth.dtype != torch.bool
    valid = whole and truth.shape == (len(images),) and int(truth.min()) >= 0
    values = f"{truth.dtype} of shape {tuple(truth.shape)}, minimum {min(truth.flatten().tolist(), default=None)}"
    check("labels", values, valid, f"one class index per image ({len(images)}), from 0")
    return images, truth.long()


class _Function(nn.Module):
    """A function from images to logits or probabilities, tensors or arrays, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        scores = self.function(images)
        return torch.from_numpy(scores) if isinstance(scores, np.ndarray) else scores


def _as_module(model: Any) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, str | Path):
        return load_model(model)
    if callable(model):
        return _Function(model)
    raise InputError(f"expected a torch module, a function, or a file or tag to load; got {type(model).__name__}")


def _name(model: Any) -> str:
    if isinstance(model, str | Path | OnnxModel):
        return str(model.path if isinstance(model, OnnxModel) else model)
    if hasattr(model, "config"):
        return str(model.config.name)
    return getattr(model, "__name__", type(model).__name__)


_UNITS = {"rotation": "{:g}°", "scale": "×{:g}", "shift": "{:g} px"}
_EXPECTED = {"image": "transformed", "polar": "rolled, shifted", "invariant": "unchanged"}
_NOTES = """
*Consistency*: share of images with the same prediction as before the transform. *Change*: mean total variation
distance of the class probabilities, from 0 to 1. *Resampled*: images transformed and transformed back, the effect
of interpolation alone (bicubic). The first table leaves out the identity; shifts are means over four directions.
Rotated images, and those they are compared with, are masked by the inscribed disc, also at 0°.
"""
_LAYER_NOTES = """
Relative error ‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ over {layer_images} images; 0 is exact equivariance. Expected T′f(x):
*transformed* like the image, compared inside a disc; *rolled, shifted*: a polar map around an origin that follows
the image; *unchanged*: logits, and maps after a spatial transformer.
"""


def write_audit(audit: Audit, folder: str | Path) -> list[Path]:
    """Writes audit.json, audit.md and audit.png into `folder` and returns their paths."""
    from ..figures import draw_audit

    paths = [Path(folder) / f"audit.{suffix}" for suffix in ("json", "md", "png")]
    write_text(paths[0], json.dumps(audit.to_dict(), indent=2) + "\n")
    write_text(paths[1], render_audit(audit))
    draw_audit(audit, paths[2])
    return paths


def render_audit(audit: Audit) -> str:
    """Returns the report as Markdown."""
    parts = [f"# Audit of {audit.model}\n\n{describe_audit(audit)}.\n", _table(audit_summary(audit)), _NOTES]
    for kind in _IDENTITY:
        if points := audit.curve(kind):
            rows = [{"by": _UNITS[kind].format(point.amount)} | _means([point]) for point in points]
            parts.append(f"## Against {kind}\n\n{_table(rows)}\n")
    by_layer: dict[str, dict[str, str]] = {}
    for error in audit.layers:
        size, unit = "×".join(map(str, error.shape)), _UNITS[error.kind].format(error.amount)
        facts = {"layer": error.layer, "map": size, "expected": _EXPECTED[error.relation]}
        for heading, value in ((unit, error.error), (f"{unit} resampled", error.resampling)):
            facts[heading] = "–" if value is None else f"{value:.3f}"
        by_layer.setdefault(error.layer, {}).update(facts)
    if by_layer:
        parts.append(f"## Inner layers\n\n{_table(list(by_layer.values()))}")
        parts.append(_LAYER_NOTES.format(**audit.settings))
    return "\n".join(parts)


def describe_audit(audit: Audit) -> str:
    """Returns one line about images, classes and accuracy."""
    source = f" of {audit.data}" if audit.data else ""
    accuracy = "no labels" if audit.accuracy is None else f"accuracy {audit.accuracy:.1f}%"
    if audit.accuracy_in_disc is not None:
        accuracy += f", inside the disc {audit.accuracy_in_disc:.1f}%"
    shape = " × ".join(map(str, audit.shape))
    return f"{audit.images:,} images{source}, {shape}, {audit.classes} classes; {accuracy}"


def audit_summary(audit: Audit) -> list[dict[str, str]]:
    """Returns table rows, cells by heading: means over each kind of transform without the identity."""
    rows = []
    for kind, identity in _IDENTITY.items():
        points = [point for point in audit.curve(kind) if point.amount != identity]
        if points:
            worst = min(points, key=lambda point: point.transformed.consistency)
            lowest = f"{worst.transformed.consistency:.1f}% at {_UNITS[kind].format(worst.amount)}"
            rows.append({"against": kind, "lowest consistency": lowest} | _means(points))
    return rows


def _means(points: Sequence[Point]) -> dict[str, str]:
    """Returns table cells by heading: means over points, without unknown accuracies."""
    cells = {}
    for prefix, name in (("", "transformed"), ("resampled: ", "resampling")):
        for key, form in (("consistency", "{:.1f}%"), ("change", "{:.3f}"), ("accuracy", "{:.1f}%")):
            values = [getattr(getattr(point, name), key) for point in points]
            if None not in values:
                cells[prefix + key] = form.format(sum(values) / len(values))
    return cells


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a Markdown table."""
    if not rows:
        return ""
    rules = ["---" if heading in ("against", "layer", "map", "expected") else "---:" for heading in rows[0]]
    lines = (rows[0], rules, *(row.values() for row in rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
