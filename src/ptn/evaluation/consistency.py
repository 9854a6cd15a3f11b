"""The answers of a classifier to transformed images, beside its answers to the same images as they were."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..data.threads import in_threads, slices
from ..device import default_batch, placement, precision_of
from ..errors import InputError
from ..geometry import Mode
from ..models.inference import prepare_for_inference
from ..models.networks import Ensemble, Network, inferring
from .classifier import are_probabilities, raw_scores
from .transforms import IDENTITY, Similarity, disc, plane_size

Kind = Literal["rotation", "scale", "shift"]
Mask = Literal["circle", "none"]

# on a CPU, batches that stay in its caches
_CPU_BATCH = 32


@dataclass(frozen=True)
class Answers:
    """What a classifier makes of transformed images, beside its own answers to them as they were.

    `consistency` is the share in % whose answer is the same; `change` is how far class probabilities moved, the
    mean over images of ½Σ|p − q|, from 0 to 1; `accuracy` in % is None without labels.
    """

    consistency: float
    change: float
    accuracy: float | None


@dataclass(frozen=True)
class Point:
    """The answers to images transformed by `amount`: degrees, a factor, or pixels in each of four directions.

    `resampling` are those to images that were transformed there and back: nothing is turned, scaled or moved in
    them, but they have been resampled, twice where the transformed ones were once.
    """

    kind: Kind
    amount: float
    transformed: Answers
    resampling: Answers


@dataclass(frozen=True)
class Probe:
    """One transform of all images; those of the same kind and amount make a point together."""

    kind: Kind
    amount: float
    transform: Similarity


@dataclass(frozen=True)
class Measured:
    """The points in the order of the probes, and the accuracy in % on the images as they are, if there are labels.

    `probabilities` says that the classifier's scores are such already, not logits.
    """

    points: tuple[Point, ...]
    accuracy: float | None
    classes: int
    probabilities: bool


@dataclass
class _Tally:
    """Counts of answers."""

    count: int = 0
    same: int = 0
    right: int = 0
    moved: float = 0.0

    def add(self, before: Tensor, after: Tensor, truth: Tensor | None) -> None:
        """Probabilities (N, classes) of images before and after something was done to them."""
        answer = after.argmax(dim=1)
        self.count += len(answer)
        self.same += int((answer == before.argmax(dim=1)).sum())
        self.moved += float((after - before).abs().sum(dim=1).double().sum()) / 2
        if truth is not None:
            self.right += int((answer == truth).sum())

    def join(self, other: "_Tally") -> None:
        self.count += other.count
        self.same += other.same
        self.right += other.right
        self.moved += other.moved

    def answers(self, *, labelled: bool) -> Answers:
        accuracy = 100 * self.right / self.count if labelled else None
        return Answers(100 * self.same / self.count, self.moved / self.count, accuracy)


@dataclass
class _Tallies:
    """The counts of some images: as they are, transformed, and there and back, by kind and amount."""

    plain: _Tally = field(default_factory=_Tally)
    moved: dict[tuple[Kind, float], _Tally] = field(default_factory=dict)
    still: dict[tuple[Kind, float], _Tally] = field(default_factory=dict)

    def join(self, other: "_Tallies") -> None:
        self.plain.join(other.plain)
        for ours, theirs in ((self.moved, other.moved), (self.still, other.still)):
            for key, tally in theirs.items():
                ours.setdefault(key, _Tally()).join(tally)


def measure_consistency(
    model: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    probes: Sequence[Probe],
    *,
    mask: Mask,
    mode: Mode,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """What `model` answers to images (N, C, H, W), floats in [0, 1] or bytes, under each probe; see `audit`."""
    device, _ = placement(model)
    # on a CPU each core has a batch to itself, which only our own networks are known to bear
    own = device.type == "cpu" and isinstance(model, Network | Ensemble)
    model = prepare_for_inference(model)
    size = batch or (_CPU_BATCH if device.type == "cpu" else default_batch(images.shape[1:]))
    try:
        with inferring(model), precision_of("fp32", device):
            trial = _Trial(model, images, labels, probes, mask, mode, progress)
            if own:
                parts = in_threads(trial.run, len(images), size)
            else:
                parts = [trial.run(chosen) for chosen in slices(len(images), size)]
    except torch.OutOfMemoryError as error:
        raise InputError(f"{device} ran out of memory with {size} images at a time: use a smaller batch") from error
    all_of_them = _Tallies()
    for part in parts:
        all_of_them.join(part)
    labelled = labels is not None
    points = tuple(
        Point(*key, tally.answers(labelled=labelled), all_of_them.still[key].answers(labelled=labelled))
        for key, tally in all_of_them.moved.items()
    )
    accuracy = all_of_them.plain.answers(labelled=labelled).accuracy
    return Measured(points, accuracy, trial.classes, trial.probabilities)


def as_pictures(images: Tensor, model: nn.Module) -> Tensor:
    """Images or voxels, bytes or floats, as floats in [0, 1] where the model is."""
    device, dtype = placement(model)
    scale = 255 if images.dtype == torch.uint8 and images.dim() == 4 else 1
    return images.to(device).to(dtype) / scale


class _Trial:
    """One classifier, one set of images, and all that is asked about some of them at a time."""

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor | None,
        probes: Sequence[Probe],
        mask: Mask,
        mode: Mode,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.masked, self.mode, self.progress = mask == "circle", mode, progress
        self.jobs = [(probe, probe.transform.resampling(plane_size(images))) for probe in probes]
        # an answer to each image as it is, through the disc, transformed, and there and back
        answers = 1 + self.masked + sum(probe.transform != IDENTITY for probe in probes)
        answers += len({(probe.kind == "rotation", back) for probe, back in self.jobs if back != IDENTITY})
        self.total, self.done, self.lock = answers * len(images), 0, Lock()

        scores = raw_scores(model, as_pictures(images[:2], model))
        self.classes, self.probabilities = scores.shape[1], are_probabilities(scores)
        if labels is not None and int(labels.max()) >= self.classes:
            raise InputError(f"label {int(labels.max())} is outside the {self.classes} classes of the model")

    def ask(self, pictures: Tensor) -> Tensor:
        """The probabilities of each class."""
        scores = raw_scores(self.model, pictures)
        with self.lock:
            self.done += len(pictures)
            if self.progress is not None:
                self.progress(self.done, self.total)
        return scores if self.probabilities else scores.softmax(dim=1)

    @torch.no_grad()  # which threads do not take from each other
    def run(self, chosen: slice) -> _Tallies:
        """All that is asked about the chosen images."""
        pictures = as_pictures(self.images[chosen], self.model)
        labels = None if self.labels is None else self.labels[chosen]
        whole = pictures.new_ones(())
        window = disc(pictures) if self.masked else whole
        # answers that probes share, by whether images are seen through the disc, and what was done to them
        known = {(False, IDENTITY): self.ask(pictures)}
        known[True, IDENTITY] = self.ask(pictures * window) if self.masked else known[False, IDENTITY]
        tallies = _Tallies()
        tallies.plain.add(known[False, IDENTITY], known[False, IDENTITY], labels)
        for probe, back in self.jobs:
            turned = probe.kind == "rotation"
            through = window if turned else whole
            if (turned, back) not in known:
                returned = back.there_and_back(pictures, mode=self.mode)
                known[turned, back] = self.ask(returned.clamp(0, 1) * through)
            before = after = known[turned, IDENTITY]
            if probe.transform != IDENTITY:
                # the disc reaches the border: read there, black would bleed into it
                padding_mode: Any = "border" if turned and self.masked else "zeros"
                warped = probe.transform.warp(pictures, mode=self.mode, padding_mode=padding_mode)
                after = self.ask(warped.clamp(0, 1) * through)
            key = (probe.kind, probe.amount)
            tallies.moved.setdefault(key, _Tally()).add(before, after, labels)
            tallies.still.setdefault(key, _Tally()).add(before, known[turned, back], labels)
        return tallies
