"""What a Polar Transformer Network sees and gains: origins, log-polar images, accuracy at every angle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...data import Dataset
from ...evaluation import scores
from ...geometry import Similarity, origin_px, similarity_warp
from ...models import Model
from .style import BLUE, VERMILION, YELLOW, faint_grid, save

ANGLES = tuple(range(0, 360, 15))
"""The turns in degrees at which accuracy is measured."""

_DIGITS_AT_MOST = 300


@dataclass(frozen=True)
class Contender:
    """A trained network, its title in the picture, and its error in % on the test digits."""

    title: str
    model: Model
    error: float


def accuracy_by_angle(
    model: Model, images: Tensor, labels: Tensor, degrees: Sequence[float] = ANGLES
) -> list[float]:
    """The accuracy in % on images (N, C, H, W) in [0, 1] turned about their middle by each angle."""
    accuracies = []
    for angle in degrees:
        turned = similarity_warp(images, Similarity(math.radians(angle)), mode="bicubic").clamp(0, 1)
        right = scores(model, turned).argmax(dim=1) == labels
        accuracies.append(100 * float(right.double().mean()))
    return accuracies


def stays_in_view(images: Tensor) -> Tensor:
    """Which of images (N, C, H, W) no turn about the middle carries over the border: bool (N,)."""
    height, width = images.shape[-2:]
    y = torch.arange(height, device=images.device) - (height - 1) / 2
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    outside = torch.hypot(y[:, None], x[None, :]) > (min(height, width) - 1) / 2
    return ~((images > 0) & outside).flatten(1).any(dim=1)


def draw(polar: Contender, plain: Contender, test: Dataset, path: Path) -> None:
    """Write the figure: `polar` predicts origins, `plain` is what it is compared with.

    Above, a digit of each class with its origin, and its log-polar image; below, the accuracy of both on test
    digits that stay in view at every angle.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1))
    _draw_digits(parts[0], polar, plain, test)
    _draw_curves(parts[1], (polar, plain), test)
    save(figure, path)


def _draw_digits(figure: Any, polar: Contender, plain: Contender, test: Dataset) -> None:
    chosen = [int((test.labels == label).nonzero()[0]) for label in test.labels.unique()]
    images, labels = test.images[chosen].float() / 255, test.labels[chosen]
    seen = polar.model.explain(images)
    assert seen.origins is not None
    assert seen.polar_images is not None
    origins = origin_px(seen.origins, (images.shape[-2], images.shape[-1])).tolist()
    answers = [seen.logits.argmax(dim=1), scores(plain.model, images).argmax(dim=1)]
    axes = figure.subplots(2, len(chosen), squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for column, (x, y) in enumerate(origins):
        image, log_polar = axes[:, column]
        image.imshow(images[column, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        image.plot(x, y, "+", markersize=15, markeredgewidth=4, color="black")  # seen on white strokes too
        image.plot(x, y, "+", markersize=14, markeredgewidth=2, color=YELLOW)
        log_polar.imshow(seen.polar_images[column, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        for line, (contender, color) in enumerate(((polar, BLUE), (plain, VERMILION))):
            answer = int(answers[line][column])
            mark = "" if answer == labels[column] else " ✗"
            # offsets in points from the upper edge of the image
            image.annotate(
                f"{contender.title}: {test.classes[answer]}{mark}",
                (0.5, 1),
                (0, 16 - 12 * line),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=color,
            )
    axes[0, 0].set_ylabel("test digit,\n+ its origin", fontsize=9)
    axes[1, 0].set_ylabel("log-polar\n← angle", fontsize=9)  # the arrow turns with the label, and points down
    axes[1, 0].set_xlabel("radius →", fontsize=9)
    figure.suptitle(f"What {polar.title} sees, and what both answer (✗ wrong)\n", fontsize=11)


def _draw_curves(figure: Any, contenders: Sequence[Contender], test: Dataset) -> None:
    chosen = stays_in_view(test.images).nonzero()[:_DIGITS_AT_MOST, 0]
    images, labels = test.images[chosen].float() / 255, test.labels[chosen]
    axis = figure.subplots()
    around = (*ANGLES, 360)
    lowest = 100.0
    for contender, color, marker in zip(contenders, (BLUE, VERMILION), "os", strict=True):
        accuracies = accuracy_by_angle(contender.model, images, labels)
        label = f"{contender.title}: {contender.error:.1f}% error on all {len(test):,} test digits"
        axis.plot(around, (*accuracies, accuracies[0]), color=color, marker=marker, markersize=4, label=label)
        lowest = min(lowest, *accuracies)
    axis.set_xlim(-4, 364)
    axis.set_xticks(range(0, 361, 45), [f"{angle}°" for angle in range(0, 361, 45)])
    axis.set_ylim(10 * math.floor((lowest - 3) / 10), 100.5)
    axis.set_xlabel("turned about the middle of the image by")
    axis.set_ylabel("accuracy (%)")
    faint_grid(axis)
    axis.legend(frameon=False, fontsize=10, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.suptitle(f"Accuracy at every angle, on {len(chosen)} test digits that stay in view", fontsize=11)
