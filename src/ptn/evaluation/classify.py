"""Class probabilities and test errors of models, with test-time augmentation."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..config import check, checked
from ..data.dataset import AnyDataset, Dataset, SameDataset, VoxelDataset, unpack_voxels
from ..device import Precision, choose_device, default_batch, placement, precision_of
from ..errors import InputError
from ..geometry import Similarity, similarity_warp
from ..layers import PolarTransformer
from ..models import InferenceModel, Model, PolarNetwork, inferring, prepare_for_inference

ANGLES = tuple(range(0, 360, 15))
"""Default rotations of `accuracy_by_angle`, in degrees."""

_NEIGHBOR_PX = 1.0  # distance between the predicted origin and its four neighbors with `origins=5`


class DivergedError(InputError):
    """Raised when logits or probabilities are NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Test results, in percent.

    Attributes:
        per_class: accuracy of each class; None for a class without samples.
        class_accuracy: mean of `per_class` over the classes that have samples.
        confusion: int64 (classes, classes); row: true class, column: predicted class.
        n: number of samples. Without samples the error and the accuracies are 0.
    """

    error: float
    accuracy: float
    per_class: tuple[float | None, ...]
    class_accuracy: float
    confusion: Tensor
    n: int


@checked
def scores(
    model: nn.Module,
    images: Tensor | Dataset | VoxelDataset,
    *,
    batch: int | None = None,
    rotations: int = 1,
    origins: int = 1,
    device: torch.device | str | None = None,
    precision: Precision = "fp32",
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Returns the class probabilities of each image in evaluation mode: float32 (N, classes) on the CPU.

    Args:
        images: (N, C, H, W) or (N, C, X, Y, Z), floats in [0, 1] or uint8 (0 to 255 in images, 0 or 1 in voxels),
            or a data set.
        batch: images per forward pass; by default 1000, fewer for large images.
        rotations: test-time augmentation: average the probabilities over this many rotations by equal angles,
            bilinear, about the center (of voxels about z). The paper uses 8.
        origins: with 5, also average over the predicted origin and its four neighbors at a distance of one pixel.
            Only for polar networks.
        device: where to compute; by default the device of the model. The model is moved there.
        progress: called with the number of images done and the total.
    """
    check_tta(model, rotations=rotations, origins=origins)
    check("batch", batch, batch is None or batch >= 1, "at least 1")
    if device is not None:
        model.to(choose_device(str(device)))
    prepared = prepare_for_inference(model)
    parts: list[Tensor] = []
    with inferring(prepared), precision_of(precision, placement(model)[0]):
        for inputs in _batches(model, images, batch):
            parts.append(_tta_scores(prepared, inputs, rotations, origins))
            if progress is not None:
                progress(sum(map(len, parts)), len(images))
    return torch.cat(parts).cpu()


def check_tta(model: nn.Module, *, rotations: int = 1, origins: int = 1) -> None:
    """Raises InputError if `model` does not support this test-time augmentation."""
    check("rotations", rotations, 1 <= rotations <= 360, "from 1 to 360")
    check("origins", origins, origins in (1, 5), "1 or 5")
    network = model.model if isinstance(model, InferenceModel) else model
    if origins > 1 and not isinstance(network, PolarNetwork):
        config = getattr(network, "_config", None) or getattr(network, "config", None)
        name = getattr(config, "name", "this network")
        raise InputError(f"origins=5 needs a network with a polar transformer that is not exported; got {name}")


def describe_tta(rotations: int, origins: int) -> str:
    """Returns ", averaged over 8 rotations and 5 origins", or "" without test-time augmentation."""
    parts = [f"{n} {name}" for n, name in ((rotations, "rotations"), (origins, "origins")) if n > 1]
    return f", averaged over {' and '.join(parts)}" if parts else ""


def _tta_scores(model: Any, images: Tensor, rotations: int, origins: int) -> Tensor:
    total: Any = 0
    for k in range(rotations):
        rotated = similarity_warp(images, Similarity(2 * math.pi * k / rotations)) if k else images
        for logits in _logits_by_origin(model, rotated, origins):
            total = total + check_logits(logits, len(images)).float().softmax(dim=1)
    return total / (rotations * origins)


def check_logits(outputs: Any, count: int) -> Tensor:
    """Returns the outputs of a model for `count` images; raises InputError unless they are (N, classes)."""
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != count:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(f"a classifier must return a tensor ({count}, classes) here; got {shape}")
    return outputs


def _logits_by_origin(model: Any, images: Tensor, origins: int) -> Iterator[Tensor]:
    if origins == 1:
        yield model(images)
        return
    explanation = model.explain(images)
    yield explanation.logits
    height, width = plane_size(images)
    x, y = 2 * _NEIGHBOR_PX / width, 2 * _NEIGHBOR_PX / height
    for step in explanation.origins.new_tensor([[x, 0], [-x, 0], [0, y], [0, -y]]):
        yield model(images, origin=explanation.origins + step)


def evaluate(model_or_scores: nn.Module | Tensor, dataset: Dataset | VoxelDataset, **options: Any) -> Evaluation:
    """Returns the test error of a model, or of logits or probabilities (N, classes).

    Args:
        model_or_scores: a model, or its logits or probabilities (N, classes) for the data set.
        dataset: images and labels.
        options: for a model, those of `ptn.evaluation.scores`: batch, rotations and origins (test-time
            augmentation), device, precision, progress.
    """
    if not isinstance(dataset, AnyDataset):
        raise InputError(
            f"evaluate takes a data set, as of load_dataset or load_folder; got {type(dataset).__name__}"
        )
    if isinstance(model_or_scores, nn.Module):
        results = scores(model_or_scores, dataset, **options)
    elif not isinstance(model_or_scores, Tensor):
        raise InputError(f"evaluate takes a network or a tensor of scores; got {model_or_scores!r}: use load_model")
    elif options:
        raise InputError(f"{', '.join(options)}: only used with a model, not with probabilities")
    else:
        results = model_or_scores
    count, classes = len(dataset), len(dataset.classes)
    if results.shape != (count, classes):
        raise InputError(
            f"{dataset.name} {dataset.split} has {count} samples and {classes} classes; "
            f"the probabilities have shape {tuple(results.shape)}"
        )
    check_finite(results)
    pairs = dataset.labels * classes + results.argmax(dim=1).cpu()
    confusion = torch.bincount(pairs, minlength=classes * classes).view(classes, classes)
    correct, totals = confusion.diagonal().tolist(), confusion.sum(dim=1).tolist()
    per_class = tuple(100 * right / n if n else None for right, n in zip(correct, totals, strict=True))
    known = [value for value in per_class if value is not None]
    return Evaluation(
        error=100 * (count - sum(correct)) / max(1, count),
        accuracy=100 * sum(correct) / max(1, count),
        per_class=per_class,
        class_accuracy=sum(known) / max(1, len(known)),
        confusion=confusion,
        n=count,
    )


def check_finite(scores: Tensor) -> None:
    """Raises DivergedError unless all logits or probabilities (N, classes) are finite."""
    bad = int((~torch.isfinite(scores).all(dim=1)).sum())
    if bad:
        raise DivergedError(f"the outputs for {bad} of {len(scores)} images are not finite: the model has diverged")


def accuracy_by_angle(
    model: nn.Module,
    dataset: AnyDataset,
    degrees: Sequence[float] = ANGLES,
    *,
    size: tuple[int, int] | None = None,
    **options: Any,
) -> list[float]:
    """Returns the accuracy in % on images rotated about their center (voxels about z) by each angle, bicubic.

    Args:
        size: (height, width) of the central crop that the model takes, where the images are larger.
        options: those of `scores`.
    """
    poses = [Similarity(math.radians(angle)) for angle in degrees]
    return [evaluate(Posed(model, pose, size), dataset, **options).accuracy for pose in poses]


class Posed(nn.Module):
    """A model applied to images transformed by a pose (bicubic) and cropped to the central `size`."""

    def __init__(self, model: nn.Module, pose: Similarity, size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.model, self.pose, self.size = model, pose, size

    def forward(self, images: Tensor) -> Tensor:
        return self.model(similarity_warp(images, self.pose, size=self.size, mode="bicubic").clamp(0, 1))


def match_classes(dataset: SameDataset, classes: Sequence[str]) -> SameDataset:
    """Returns `dataset` with labels that index `classes`, of which the data set may have a subset."""
    if tuple(classes) == dataset.classes:
        return dataset
    for name in dataset.classes:
        if name not in classes:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise InputError(f"{dataset.name} has a class {name!r} that the model does not have ({known})")
    indices = torch.tensor([classes.index(name) for name in dataset.classes])
    return replace(dataset, labels=indices[dataset.labels], classes=tuple(classes))


def origin_error_px(model: Model, dataset: AnyDataset) -> tuple[float, float]:
    """Returns median and 90th percentile of the distances of origins from `meta["center"]`, in pixels."""
    true = _offsets_px(dataset.meta["center"].double(), dataset)
    distances = (origin_offsets_px(model, dataset) - true).norm(dim=1)
    median, p90 = distances.quantile(distances.new_tensor([0.5, 0.9])).tolist()
    return median, p90


def origin_offsets_px(model: Model, dataset: AnyDataset) -> Tensor:
    """Returns predicted origins as offsets (x, y) from the image center in pixels: float64 (N, 2) on the CPU."""
    prepared = prepare_for_inference(model)
    with precision_of("fp32", placement(model)[0]):
        origins = [prepared.explain(inputs).origins.cpu().double() for inputs in _batches(model, dataset)]
    return _offsets_px(torch.cat(origins), dataset)


def origin_changes_px(model: nn.Module, images: Tensor) -> Tensor | None:
    """Returns how far the origin of each image is from the rotated origin of its rotated copy, (N,) in pixels.

    Square images are rotated by 90°, others by 180°. None for a model without a learned origin.
    """
    transformer = getattr(model, "transformer", None)
    if not isinstance(transformer, PolarTransformer) or transformer.predictor is None or not len(images):
        return None
    quarters = 1 if images.shape[-2] == images.shape[-1] else 2
    origins, rotated = (
        _predicted_origins(model, batch) for batch in (images, images.rot90(quarters, (2, 3)).contiguous())
    )
    for _ in range(quarters):
        origins = torch.stack((origins[:, 1], -origins[:, 0]), dim=1)
    size = origins.new_tensor([images.shape[-1] / 2, images.shape[-2] / 2])
    return ((origins - rotated) * size).norm(dim=1)


def _predicted_origins(model: Any, images: Tensor) -> Tensor:
    with inferring(model):
        origins = [model.locate(inputs).origin for inputs in _batches(model, images)]
    return torch.cat(origins).cpu().double()


def _offsets_px(origins: Tensor, dataset: AnyDataset) -> Tensor:
    height, width = plane_size(dataset.images)
    return origins * origins.new_tensor([width / 2, height / 2])


def plane_size(images: Tensor) -> tuple[int, int]:
    """Returns (height, width) of images (…, H, W) or of the z slices of volumes (N, C, X, Y, Z)."""
    if images.dim() == 5:
        return images.shape[3], images.shape[2]
    return images.shape[-2], images.shape[-1]


def to_float(images: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Returns images or voxels, uint8 or float, as floats in [0, 1] on `device`."""
    scale = 255 if images.dtype == torch.uint8 and images.dim() == 4 else 1
    return images.to(device).to(dtype) / scale


def _batches(model: nn.Module, images: Tensor | AnyDataset, batch: int | None = None) -> Iterator[Tensor]:
    """Yields floats on the device of the model; one empty batch without images, which still has classes."""
    device, dtype = placement(model)
    if isinstance(images, Dataset):
        images = images.images
    shape = images.image_shape if isinstance(images, VoxelDataset) else images.shape[1:]
    stored = images.packed if isinstance(images, VoxelDataset) else images
    for part in stored.split(batch or default_batch(shape)) if len(stored) else [stored]:
        inputs = unpack_voxels(part.to(device), images.size) if isinstance(images, VoxelDataset) else part
        yield to_float(inputs, device, dtype)
