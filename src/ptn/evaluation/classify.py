"""How well a model classifies: scores, averaged over rotations, origins and models, and what follows from them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, TypeVar, Unpack

import torch
from torch import Tensor, nn

from ..data.dataset import Dataset, VoxelDataset, unpack_voxels
from ..device import Precision, default_batch, placement, precision_of
from ..errors import InputError
from ..geometry import origin_px
from ..models import Model
from ..models.inference import prepare_for_inference
from ..models.networks import inferring
from .averaging import check_averaging, mean_scores

AnyDataset = TypeVar("AnyDataset", bound=Dataset | VoxelDataset)


class DivergedError(InputError):
    """Scores that are no numbers: of NaN no class is the likeliest."""


class ScoreOptions(TypedDict, total=False):
    """The options of `scores`."""

    batch: int | None
    rotations: int
    origins: int
    device: torch.device | str | None
    precision: Precision
    progress: Callable[[int, int], None] | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the answers to a test set amount to, in percent.

    `per_class` has the accuracy of each class, None for a class that the set has no sample of, and
    `class_accuracy` is their mean over the others. `confusion` int64 (classes, classes) counts the samples of
    class [row] that were taken for class [column]. Of an empty set `n` is 0, and so are error and accuracies.
    """

    error: float
    accuracy: float
    per_class: tuple[float | None, ...]
    class_accuracy: float
    confusion: Tensor
    n: int


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
    """The softmax scores of each image, float32 (N, classes) on the CPU, in evaluation mode.

    Args:
        images: (N, C, H, W) or (N, C, X, Y, Z), floats in [0, 1] or bytes, which are 0 to 255 in images and 0
            or 1 in voxels; or a data set. Packed voxels are unpacked batch by batch.
        batch: how many at a time; None is 1000, or fewer where images are large.
        rotations: the scores are the mean over this many turns by equal angles (8: every 45°), bilinear and
            about the middle; those of voxels are about z. 8 is the paper's test averaging.
        origins: 5 takes the mean over the origin that the network finds and those a pixel to its right, left, below
            and above, in each rotation. For networks with a polar transformer.
        device: where to compute; None is where the model is. A model that is elsewhere moves, and stays there.
        progress: called with how many images are done, and of how many.
    """
    check_averaging(model, rotations=rotations, origins=origins)
    if batch is not None and batch < 1:
        raise InputError(f"batch must be at least 1; got {batch}")
    if device is not None:
        model.to(device)
    place, dtype = placement(model)
    total = len(images)
    size = batch or default_batch(_shape(images))
    parts = []
    ready = prepare_for_inference(model)
    try:
        with inferring(ready), precision_of(precision, place):
            for start, pictures in _batches(images, size, place, dtype):
                parts.append(mean_scores(ready, pictures, rotations=rotations, origins=origins))
                if progress is not None:
                    progress(start + len(pictures), total)
        return torch.cat(parts).cpu()
    except torch.OutOfMemoryError as error:
        raise InputError(f"{place} ran out of memory with {size} images at a time: use a smaller batch") from error


def ensemble_scores(members: Sequence[Tensor]) -> Tensor:
    """The answer of several models to the same images, the mean of their scores: each (N, classes)."""
    if not members:
        raise InputError("an ensemble needs at least one model's scores")
    if len({member.shape for member in members}) > 1:
        shapes = ", ".join(str(tuple(member.shape)) for member in members)
        raise InputError(f"the models of an ensemble must score the same images and classes; got {shapes}")
    return torch.stack(tuple(members)).mean(dim=0)


def evaluate(
    answers: nn.Module | Tensor, dataset: Dataset | VoxelDataset, **options: Unpack[ScoreOptions]
) -> Evaluation:
    """The error of a model, or of scores (N, classes) that it or several gave; `options` are those of `scores`."""
    if isinstance(answers, nn.Module):
        answers = scores(answers, dataset, **options)
    elif options:
        raise InputError(f"scores are evaluated as they are: {', '.join(options)} would do nothing")
    count, classes = len(dataset), len(dataset.classes)
    if answers.shape != (count, classes):
        raise InputError(
            f"{dataset.name} {dataset.split} has {count} samples of {classes} classes; "
            f"the scores are {tuple(answers.shape)}"
        )
    check_finite(answers)
    pairs = dataset.labels * classes + answers.argmax(dim=1).cpu()
    confusion = torch.bincount(pairs, minlength=classes * classes).view(classes, classes)
    right = confusion.diagonal().tolist()
    present = confusion.sum(dim=1).tolist()
    per_class = tuple(100 * r / n if n else None for r, n in zip(right, present, strict=True))
    known = [value for value in per_class if value is not None]
    return Evaluation(
        error=100 * (count - sum(right)) / max(1, count),
        accuracy=100 * sum(right) / max(1, count),
        per_class=per_class,
        class_accuracy=sum(known) / max(1, len(known)),
        confusion=confusion,
        n=count,
    )


def check_finite(answers: Tensor) -> None:
    """Raise `DivergedError` unless the scores of every image are numbers."""
    bad = int((~torch.isfinite(answers).all(dim=1)).sum())
    if bad:
        raise DivergedError(f"the scores of {bad} of {len(answers)} images are not finite: the model has diverged")


def match_classes(dataset: AnyDataset, classes: Sequence[str]) -> AnyDataset:
    """`dataset` with its labels in the order of `classes`, which a model may have more of than it."""
    if tuple(classes) == dataset.classes:
        return dataset
    for name in dataset.classes:
        if name not in classes:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise InputError(
                f"{dataset.name} has a class {name!r} that the model does not know ({known}): "
                "give images of the classes that it was trained on"
            )
    places = torch.tensor([classes.index(name) for name in dataset.classes])
    return replace(dataset, labels=places[dataset.labels], classes=tuple(classes))


def origin_error_px(
    model: Model,
    dataset: Dataset | VoxelDataset,
    *,
    batch: int | None = None,
    device: torch.device | str | None = None,
) -> tuple[float, float]:
    """How far origins are from the true centres, `meta["center"]`, in pixels: the median and the 90th centile."""
    if "center" not in dataset.meta or not isinstance(dataset, Dataset) or not len(dataset):
        raise InputError(f"{dataset.name} {dataset.split} has no true centres to compare origins with")
    height, width = dataset.images.shape[-2:]
    true = origin_px(dataset.meta["center"].double(), (height, width))
    distances = (origins_px(model, dataset, batch=batch, device=device) - true).norm(dim=1)
    median, p90 = distances.quantile(distances.new_tensor([0.5, 0.9])).tolist()
    return median, p90


def origins_px(
    model: Model, dataset: Dataset, *, batch: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Where a network puts the origin in each image, (x, y) in pixels: float64 (N, 2) on the CPU."""
    if device is not None:
        model.to(device)
    place, dtype = placement(model)
    origins = []
    ready = prepare_for_inference(model)
    with precision_of("fp32", place):
        for _, pictures in _batches(dataset, batch or default_batch(_shape(dataset)), place, dtype):
            found = ready.explain(pictures).origins
            if found is None:
                raise InputError(f"{model.config.name} has no origin")
            origins.append(found.cpu().double())
    return origin_px(torch.cat(origins), (dataset.images.shape[-2], dataset.images.shape[-1]))


def origins_from_middle_px(model: Model, dataset: Dataset) -> Tensor:
    """`origins_px` as they lie from the middle of the image: to the right and down."""
    height, width = dataset.images.shape[-2:]
    found = origins_px(model, dataset)
    return found - found.new_tensor([(width - 1) / 2, (height - 1) / 2])


def _shape(images: Tensor | Dataset | VoxelDataset) -> tuple[int, ...]:
    """The shape of one image, channels first."""
    if isinstance(images, VoxelDataset):
        return (images.channels, images.size, images.size, images.size)
    return tuple((images if isinstance(images, Tensor) else images.images).shape[1:])


def _batches(
    images: Tensor | Dataset | VoxelDataset, size: int, device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    """The images as floats in [0, 1] on the device, `size` at a time, after the index of the first of them.

    No images are one empty batch, so that the number of classes can still be seen.
    """
    stored = images.images if isinstance(images, Dataset) else images
    for start in range(0, max(1, len(images)), size):
        chosen = slice(start, start + size)
        if isinstance(stored, VoxelDataset):
            yield start, unpack_voxels(stored.packed[chosen].to(device), stored.size).to(dtype)
        else:
            part = stored[chosen].to(device)
            as_bytes = part.dtype == torch.uint8 and part.dim() == 4
            yield start, part.to(dtype) / 255 if as_bytes else part.to(dtype)
