"""Audit of a classifier: accuracy and consistency of its predictions under rotations, scales and shifts."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import check, checked
from ..data.dataset import AnyDataset, Dataset, VoxelDataset
from ..device import choose_device, placement
from ..errors import InputError
from ..files import markdown_text, write_text
from ..geometry import PaddingMode, Similarity, similarity_warp
from ..models import OnnxModel, load_model, prepare_for_inference
from .classify import check_finite, check_logits, plane_size, scores, to_float
from .equivariance import KERNEL_REACH, MODE, Kind, LayerError, Transform, disc, layer_errors

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

    def curve(self, kind: Kind) -> tuple[Point, ...]:
        """Returns the points of one kind, sorted by amount."""
        return tuple(sorted((p for p in self.points if p.kind == kind), key=lambda p: p.amount))

    @property
    def accuracy_in_disc(self) -> float | None:
        """Accuracy in % on unrotated images inside the disc; None without labels or the angle 0."""
        return next((p.transformed.accuracy for p in self.curve("rotation") if p.amount == 0), None)


@checked
def audit(
    model: nn.Module | Callable[..., Any] | str | Path,
    images: Tensor | np.ndarray[Any, Any] | Dataset | VoxelDataset,
    labels: Tensor | Sequence[int] | None = None,
    *,
    angles: Sequence[float] = ANGLES,
    scales: Sequence[float] = SCALES,
    shifts_px: Sequence[float] | None = None,
    batch: int | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Returns accuracy and consistency of any classifier under rotations, scales and shifts of its images.

    Images rotate about their center. Rotated images, and those they are compared with, are masked by a disc, so
    that no corners appear or disappear. Scaled and shifted images are not masked, and padded with black.
    Interpolation is bicubic; its effect is measured separately, see `Point`. The equivariance of the blocks of a
    torch module is measured, too, see `LayerError`.

    Args:
        model: images (N, C, H, W) in [0, 1] -> logits or probabilities (N, classes): a torch module, a function, or
            a source of `load_model`.
        images: (N, C, H, W) as floats in [0, 1] or uint8; volumes (N, C, X, Y, Z), which rotate about z; or a data
            set, which includes labels.
        labels: class indices; without them only the consistency is measured.
        angles: in degrees.
        scales: factors.
        shifts_px: in pixels, each along ±x and ±y; by default 0, 1, 1/16 and 1/8 of the shorter side.
        batch: images per forward pass.
        device: where to compute; by default the device of the model. The model is moved there.
        progress: called with the number of transforms done and the total.
    """
    pixels, truth = _check_data(images, labels)
    size = plane_size(pixels)
    if shifts_px is None:
        shifts_px = sorted({0, 1, *(max(1, round(share * min(size))) for share in _SHIFT_SHARES)})
    requested: dict[Kind, Sequence[float]] = {"rotation": angles, "scale": scales, "shift": shifts_px}
    amounts = [(kind, float(amount)) for kind, values in requested.items() for amount in dict.fromkeys(values)]
    if not all(math.isfinite(amount) and (amount > 0 or kind != "scale") for kind, amount in amounts):
        raise InputError(f"angles, scales and shifts must be finite, scales positive; got {amounts}")
    network: Any = load_model(model) if isinstance(model, str | Path) else model
    if device is not None and isinstance(network, nn.Module):
        network.to(choose_device(str(device)))
    prepared = prepare_for_inference(network)

    def predict(warp: Callable[[Tensor, Transform], Tensor], transform: Transform) -> Tensor:
        probabilities = scores(_Warped(prepared, lambda images: warp(images, transform)), pixels, batch=batch)
        check_finite(probabilities)
        return probabilities

    original = {kind: predict(_transform, Transform.of(kind, amount)) for kind, amount in _IDENTITY.items()}
    classes = original["scale"].shape[1]
    if truth is not None and int(truth.max()) >= classes:
        raise InputError(f"label {int(truth.max())} is outside the {classes} classes of the model")
    predict_resampled = cache(partial(predict, _resample))
    points = []
    for kind, amount in amounts:
        directions = _DIRECTIONS if kind == "shift" and amount else _DIRECTIONS[:1]
        alike = _smallest_alike(kind, amount, size)
        moved = [predict(_transform, Transform.of(kind, amount, way)) for way in directions]
        resampled = [predict_resampled(Transform.of(kind, alike, way)) for way in directions]
        agreements = [_agreement(original[kind], after, truth) for after in (moved, resampled)]
        points.append(Point(kind, amount, *agreements))
        if progress is not None:
            progress(len(points), len(amounts))
    errors: list[LayerError] = []
    if isinstance(network, nn.Module) and not isinstance(network, OnnxModel):
        some = to_float(pixels[:_LAYER_IMAGES], *placement(network))
        errors = layer_errors(network, some, _LAYER_TRANSFORMS)
    return Audit(
        model=_name(model),
        data=f"{images.name} {images.split}" if isinstance(images, AnyDataset) else "",
        images=len(pixels),
        shape=tuple(pixels.shape[1:]),
        classes=classes,
        accuracy=_agreement(original["scale"], [original["scale"]], truth).accuracy,
        points=tuple(points),
        layers=tuple(errors),
    )


def _check_data(images: Any, labels: Any) -> tuple[Tensor, Tensor | None]:
    """Returns images as a tensor, and int64 labels if there are any."""
    if isinstance(images, AnyDataset):
        images, labels = images.images, images.labels if labels is None else labels
    images = torch.as_tensor(images)
    valid_shape = images.dim() in (4, 5) and 0 not in images.shape
    check("the shape of images", tuple(images.shape), valid_shape, "(N, C, H, W), with at least one image")
    in_range = images.is_floating_point() and bool(images.min() >= 0 and images.max() <= 1)
    values = f"{images.dtype} up to {float(images.max()):g}"
    check("images", values, images.dtype == torch.uint8 or in_range, "floats in [0, 1] or uint8")
    if labels is None:
        return images, None
    truth = torch.as_tensor(labels).cpu()
    valid = not truth.is_floating_point() and truth.shape == (len(images),) and bool(truth.min() >= 0)
    values = f"{truth.dtype} of shape {tuple(truth.shape)}"
    check("labels", values, valid, f"one class index per image ({len(images)}), from 0")
    return images, truth.long()


def _name(model: Any) -> str:
    if isinstance(model, str | Path):
        return str(model)
    if isinstance(model, OnnxModel):
        return str(model.path)
    return model.config.name if hasattr(model, "config") else getattr(model, "__name__", type(model).__name__)


class _Warped(nn.Module):
    """Logits (N, classes) of warped images, from a classifier that returns logits or probabilities."""

    def __init__(self, classifier: Callable[[Tensor], Any], warp: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.classifier, self.warp = classifier, warp

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.classifier(self.warp(images))
        if isinstance(outputs, np.ndarray):
            outputs = torch.from_numpy(outputs)
        check_logits(outputs, len(images))
        are_probabilities = (outputs >= 0).all() and ((outputs.sum(dim=1) - 1).abs() < 1e-3).all()
        return outputs.log() if are_probabilities else outputs


def _transform(images: Tensor, transform: Transform) -> Tensor:
    # The disc touches the border, where zero padding would be interpolated into it.
    padding_mode: PaddingMode = "border" if transform.kind == "rotation" else "zeros"
    return _limit(similarity_warp(images, transform.pose, mode=MODE, padding_mode=padding_mode), transform.kind)


def _resample(images: Tensor, transform: Transform) -> Tensor:
    return _limit(round_trip(images, transform.pose), transform.kind)


def _limit(images: Tensor, kind: Kind) -> Tensor:
    """Returns warped images in [0, 1]; rotated ones inside a disc."""
    return images.clamp(0, 1) * disc(images) if kind == "rotation" else images.clamp(0, 1)


def _smallest_alike(kind: Kind, amount: float, size: tuple[int, int]) -> float:
    """Returns the smallest amount that interpolates images of this size like `amount`.

    Rotations of square images by 90°, of other images by 180°, and shifts by whole pixels map pixels onto pixels.
    """
    if kind == "rotation":
        return amount % (90 if size[0] == size[1] else 180)
    return 0.0 if kind == "shift" and amount.is_integer() else amount


def round_trip(images: Tensor, pose: Similarity) -> Tensor:
    """Returns images transformed by `pose` and back: the effect of interpolation alone.

    The intermediate canvas is large enough that nothing is cut off.
    """
    height, width = plane_size(images)
    cos, sin = abs(math.cos(pose.rotation)), abs(math.sin(pose.rotation))
    x, y = (abs(float(part)) for part in pose.shift_px)

    def padded(side: int, needed: float) -> int:
        # Equal margins on both sides keep the pixel centers in place.
        return side + 2 * (max(0, math.ceil((needed - side) / 2)) + KERNEL_REACH)

    canvas = (
        padded(height, float(pose.scale) * (sin * width + cos * height) + 2 * y),
        padded(width, float(pose.scale) * (cos * width + sin * height) + 2 * x),
    )
    moved = similarity_warp(images, pose, size=canvas, mode=MODE, padding_mode="border")
    return similarity_warp(moved, pose.inverse(), size=(height, width), mode=MODE, padding_mode="border")


def _agreement(before: Tensor, after: Sequence[Tensor], labels: Tensor | None) -> Agreement:
    """Compares probabilities (N, classes) with those after each of several transforms."""
    changed = torch.stack(tuple(after))
    predictions = changed.argmax(dim=2)
    same = (predictions == before.argmax(dim=1)).double().mean()
    change = (changed - before).abs().sum(dim=2).double().mean() / 2
    accuracy = None if labels is None else 100 * float((predictions == labels).double().mean())
    return Agreement(100 * float(same), float(change), accuracy)


_UNITS = {"rotation": "{:g}°", "scale": "×{:g}", "shift": "{:g} px"}
_EXPECTED = {"image": "transformed", "polar": "rolled, shifted", "invariant": "unchanged"}
_NOTES = """
*Consistency*: share of images with the same prediction as before the transform. *Change*: mean total variation
distance of the class probabilities, from 0 to 1. *Resampled*: images transformed and transformed back, the effect
of interpolation alone (bicubic). The first table leaves out the identity; shifts are means over four directions.
Rotated images, and those they are compared with, are masked by the inscribed disc, also at 0°.
"""
_LAYER_NOTES = f"""
Relative error ‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ over at most {_LAYER_IMAGES} images; 0 is exact equivariance. Expected
T′f(x): *transformed* like the image, compared inside a disc; *rolled, shifted*: a polar map around an origin that
follows the image; *unchanged*: logits, and maps after a spatial transformer.
"""


@checked
def write_audit(audit: Audit, folder: str | Path) -> list[Path]:
    """Writes audit.json, audit.md and audit.png into `folder` and returns their paths.

    Args:
        audit: the result of `ptn.audit`.
        folder: created if it does not exist.
    """
    from ..figures import draw_audit

    paths = [Path(folder) / f"audit.{suffix}" for suffix in ("json", "md", "png")]
    write_text(paths[0], json.dumps(asdict(audit), indent=2) + "\n")
    write_text(paths[1], _render(audit))
    draw_audit(audit, paths[2], f"{audit.model}\n{describe_audit(audit)}")
    return paths


def _render(audit: Audit) -> str:
    """Returns the report as Markdown."""
    title, facts = markdown_text(audit.model), markdown_text(describe_audit(audit))
    parts = [f"# Audit of {title}\n\n{facts}.\n", _table(audit_summary(audit)), _NOTES]
    points = [point for kind in _IDENTITY for point in audit.curve(kind)]
    rows = [{"against": f"{p.kind} {_UNITS[p.kind].format(p.amount)}"} | _means([p]) for p in points]
    parts.append(f"## Every transform\n\n{_table(rows)}\n")
    by_layer: dict[str, dict[str, str]] = {}
    for error in audit.layers:
        size, value = "×".join(map(str, error.shape)), "–" if error.error is None else f"{error.error:.3f}"
        cells = {"layer": error.layer, "map": size, "expected": _EXPECTED[error.relation]}
        by_layer.setdefault(error.layer, cells)[_UNITS[error.kind].format(error.amount)] = value
    if by_layer:
        parts += [f"## Inner layers\n\n{_table(list(by_layer.values()))}", _LAYER_NOTES]
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
