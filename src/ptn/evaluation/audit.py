"""How a classifier answers when images turn, grow and move: `audit`."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.dataset import Dataset, VoxelDataset
from ..device import placement
from ..errors import InputError, check_choice
from ..geometry import MODES, Mode
from ..models import Model, OnnxModel
from .classifier import Classifier, FunctionModel, as_classifier
from .consistency import Kind, Mask, Point, Probe, as_pictures, measure_consistency
from .layers import LayerError, layer_errors
from .transforms import Similarity, plane_size

MASKS = ("circle", "none")
ANGLES = tuple(float(angle) for angle in range(0, 360, 10))
SCALES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4)
# shares of the shorter side, beside one pixel
_SHIFTS = (1 / 16, 1 / 8)
_DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
_LAYER_TRANSFORMS: tuple[tuple[str, float, Similarity], ...] = (
    ("rotation", 45.0, Similarity(45.0)),
    ("rotation", 90.0, Similarity(90.0)),
    ("scale", 1.25, Similarity(scale=1.25)),
)
_LAYER_IMAGES = 64


@dataclass(frozen=True)
class Audit:
    """What `audit` found. `accuracy` in % is that on the images as they are; None without labels."""

    model: str
    data: str
    images: int
    shape: tuple[int, ...]
    classes: int
    accuracy: float | None
    points: tuple[Point, ...]
    layers: tuple[LayerError, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def curve(self, kind: Kind) -> tuple[Point, ...]:
        """The points of one kind, in the order of their amounts."""
        return tuple(sorted((p for p in self.points if p.kind == kind), key=lambda p: p.amount))

    @property
    def accuracy_in_disc(self) -> float | None:
        """The accuracy in % on images that are seen as turned ones are, through a disc, and not turned.

        None if nothing is masked, or nobody looked.
        """
        if self.settings["mask"] != "circle":
            return None
        return next((p.transformed.accuracy for p in self.curve("rotation") if p.amount == 0), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)


def audit(
    model: Classifier,
    images: Tensor | np.ndarray[Any, Any] | Sequence[Tensor] | Dataset | VoxelDataset,
    labels: Tensor | Sequence[int] | None = None,
    *,
    angles: Sequence[float] = ANGLES,
    scales: Sequence[float] = SCALES,
    shifts_px: Sequence[float] | None = None,
    layers: Sequence[str] | None = None,
    mask: Mask = "circle",
    mode: Mode = "bicubic",
    batch: int | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Accuracy and consistency of any classifier against turns, scales and shifts of its images.

    Images turn about their middle. Seen through a disc, they have no corners that could come or go: turned images
    and what they are compared with all are. Scaled and shifted images are seen whole; what comes into view there
    is black. What interpolation does to images, rather than turning, is measured beside: see `Point`.

    Args:
        model: a torch module, a function, the name of a weights or an ONNX file: images (N, C, H, W) in [0, 1]
            -> scores (N, classes), logits or probabilities.
        images: (N, C, H, W) as floats in [0, 1] or bytes; or volumes (N, C, X, Y, Z), which turn about z and
            keep their heights; or a data set, which has labels too.
        labels: the true class of each image; None asks for consistency only.
        angles: in degrees.
        shifts_px: in pixels, each along x and y, both ways; None is 1, 1/16 and 1/8 of the shorter side.
        layers: inner layers of a torch module to look at, see `LayerError`; None is its blocks, () is none.
        mask: "circle" looks at turned images through the largest disc in them; "none" shows their corners, and
            black where corners have gone.
        batch: how many images at a time.
        device: where to compute; None is where the model is. A model that is elsewhere moves, and stays there.
        progress: called with how many answers there are, and of how many.
    """
    start = time.perf_counter()
    check_choice("mask", mask, MASKS)
    check_choice("mode", mode, MODES)
    if batch is not None and batch < 1:
        raise InputError(f"batch must be at least 1; got {batch}")
    pixels, truth = _check_data(images, labels)
    network = as_classifier(model)
    opaque = isinstance(network, OnnxModel | FunctionModel)
    if opaque and layers:
        raise InputError("inner layers can be looked at in torch modules only: leave layers out")
    if device is not None:
        network.to(device)
    measured = measure_consistency(
        network,
        pixels,
        truth,
        list(_probes(angles, scales, _default_shifts(plane_size(pixels)) if shifts_px is None else shifts_px)),
        mask=mask,
        mode=mode,
        batch=batch,
        progress=progress,
    )
    found: list[LayerError] = []
    if not opaque and (layers is None or layers):
        some = as_pictures(pixels[:_LAYER_IMAGES], network)
        found = layer_errors(network, some, _LAYER_TRANSFORMS, names=layers, mode=mode)
    return Audit(
        model=_name(model),
        data=f"{images.name} {images.split}" if isinstance(images, Dataset | VoxelDataset) else "",
        images=len(pixels),
        shape=tuple(pixels.shape[1:]),
        classes=measured.classes,
        accuracy=measured.accuracy,
        points=measured.points,
        layers=tuple(found),
        settings={
            "mask": mask,
            "mode": mode,
            "scores": "probabilities" if measured.probabilities else "logits",
            "layer_images": min(_LAYER_IMAGES, len(pixels)) if found else 0,
            "torch": torch.__version__,
            "device": str(placement(network)[0]),
        },
        seconds=time.perf_counter() - start,
    )


def _probes(angles: Sequence[float], scales: Sequence[float], shifts: Sequence[float]) -> Iterator[Probe]:
    numbers = [*angles, *scales, *shifts]
    if not all(map(np.isfinite, numbers)) or not all(scale > 0 for scale in scales):
        raise InputError(f"angles, scales and shifts must be finite, scales positive; got {numbers}")
    for angle in dict.fromkeys(map(float, angles)):
        yield Probe("rotation", angle, Similarity(degrees=angle))
    for scale in dict.fromkeys(map(float, scales)):
        yield Probe("scale", scale, Similarity(scale=scale))
    for shift in dict.fromkeys(map(float, shifts)):
        for x, y in _DIRECTIONS if shift else _DIRECTIONS[:1]:
            yield Probe("shift", shift, Similarity(shift_px=(shift * x, shift * y)))


def _default_shifts(size: tuple[int, int]) -> tuple[float, ...]:
    return tuple(sorted({0.0, 1.0, *(float(max(1, round(share * min(size)))) for share in _SHIFTS)}))


def _check_data(images: Any, labels: Any) -> tuple[Tensor, Tensor | None]:
    """The images as a tensor, and their labels if there are any."""
    if isinstance(images, Dataset | VoxelDataset):
        labels = images.labels if labels is None else labels
        images = images.images
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    if isinstance(images, Sequence) and not isinstance(images, str):
        images = _stack(images)
    if not isinstance(images, Tensor):
        raise InputError(f"images are a tensor (N, C, H, W) or a data set; got {type(images).__name__}")
    if images.dim() not in (4, 5) or 0 in images.shape:
        raise InputError(f"images are (N, C, H, W), at least one; got shape {tuple(images.shape)}")
    if images.is_floating_point():
        low, high = float(images.min()), float(images.max())
        if not (low >= 0 and high <= 1):
            raise InputError(f"images are floats in [0, 1] or bytes; these go from {low:g} to {high:g}")
    elif images.dtype != torch.uint8:
        raise InputError(f"images are floats in [0, 1] or bytes; got {images.dtype}")
    if labels is None:
        return images, None
    truth = torch.as_tensor(labels)
    if truth.is_floating_point() or truth.dtype == torch.bool:
        raise InputError(f"labels are the numbers of classes; got {truth.dtype}")
    if truth.shape != (len(images),):
        raise InputError(f"{len(images)} images but labels of shape {tuple(truth.shape)}: give one label per image")
    if int(truth.min()) < 0:
        raise InputError(f"labels count from 0; got {int(truth.min())}")
    return images, truth.cpu().long()


def _stack(images: Sequence[Any]) -> Tensor:
    tensors = [torch.as_tensor(image) for image in images]
    shapes = list(dict.fromkeys(tuple(tensor.shape) for tensor in tensors))
    if len(shapes) > 1:
        raise InputError(f"images differ in shape, {shapes[0]} and {shapes[1]}: bring them to one size and mode")
    return torch.stack(tensors) if tensors else torch.empty(0)


def _name(model: Classifier) -> str:
    """What to call the classifier in a report."""
    if isinstance(model, OnnxModel):
        return str(model.path)
    if isinstance(model, nn.Module):
        return model.config.name if isinstance(model, Model) and hasattr(model, "config") else type(model).__name__
    return getattr(model, "__name__", type(model).__name__) if callable(model) else str(model)
