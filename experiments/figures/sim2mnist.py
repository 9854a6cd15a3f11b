"""Origins and feature maps of a network trained on SIM2MNIST.

Above, test images with heatmap and origin, and their log-polar images. Below, a digit that is rotated, shifted and
scaled, and the shifts of its log-polar image and of the last feature maps beside those of theory.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ptn.data import Dataset
from ptn.demo.inspect import distinct_channels
from ptn.figures import HEATMAP_CMAP, YELLOW, mark_origin, save, shifts_from_first, show
from ptn.geometry import Similarity, origin_px, similarity_warp
from ptn.models import PolarNetwork

from .panels import LIGHT_GREEN, draw_explanations, mark_shift, polar_landmarks

CHANNELS = 5
"""Number of feature maps shown."""

# Position of the reference in pixels from the center of a 96×96 image: all transformed digits stay in view.
_START = Similarity(shift_px=(-12.0, 8.0))
TRANSFORMS = {
    "reference": Similarity(),
    "rotated 180°": Similarity(rotation=math.pi),
    "shifted": Similarity(shift_px=(28.0, -22.0)),
    "scaled 2.4×": Similarity(scale=2.4),
}


class Maps(NamedTuple):
    """Polar maps of N digits under M transforms, with their shifts (rows, columns) against the reference."""

    maps: Tensor  # (N, M, C, h, w)
    measured: Tensor  # (N, M, 2)
    theory: Tensor  # (M, 2)

    def agreement(self, cells: tuple[int, int]) -> Tensor:
        """Returns the fraction of digits whose shift is within half a cell of theory, of a map of `cells`: (M,)."""
        limit = torch.tensor(self.maps.shape[-2:], dtype=torch.float64) / torch.tensor(cells) / 2
        return ((self.measured - self.theory).abs() <= limit).all(dim=2).double().mean(dim=0)


class Transformed(NamedTuple):
    """N digits under each of the M `TRANSFORMS`."""

    images: Tensor  # (N, M, H, W)
    origins_px: Tensor  # (N, M, 2)
    polar: Maps
    features: Maps


def transform(model: PolarNetwork, digits: Tensor) -> Transformed:
    """Applies `TRANSFORMS` to digits (N, 28, 28) in [0, 1] on an empty canvas, and runs `model` on them."""
    height, width = model.input_shape[1:]
    count, ways = len(digits), len(TRANSFORMS)
    # Transforms are about the center of the digit, then it is placed.
    placed = [_START.compose(pose) for pose in TRANSFORMS.values()]
    pose = Similarity(
        torch.tensor([each.rotation for each in placed]).repeat(count),
        torch.tensor([each.scale for each in placed]).repeat(count),
        torch.tensor([each.shift_px for each in placed]).repeat(count, 1),
    )
    images = similarity_warp(digits.repeat_interleave(ways, dim=0)[:, None], pose, size=(height, width))
    explanation: Any = model.explain(images)
    grid: Any = model.transformer.grid
    log_range = math.log(grid.outer_radius((height, width)) / grid.inner_radius)
    fractions = torch.tensor(
        [(each.rotation / (2 * math.pi), math.log(each.scale) / log_range) for each in TRANSFORMS.values()],
        dtype=torch.float64,
    )

    def compare(maps: Tensor, shown: Tensor) -> Maps:
        theory = fractions * torch.tensor(maps.shape[-2:])
        measured = [shifts_from_first(each, theory) for each in maps.unflatten(0, (count, ways))]
        return Maps(shown.unflatten(0, (count, ways)), torch.stack(measured), theory)

    return Transformed(
        images.unflatten(0, (count, ways))[:, :, 0],
        origin_px(explanation.origins, (height, width)).unflatten(0, (count, ways)),
        compare(_edges(explanation.polar_images), explanation.polar_images),
        compare(explanation.feature_maps, explanation.feature_maps),
    )


def _edges(polar: Tensor) -> Tensor:
    """Returns differences along angle and radius: (N, C, H, W) -> (N, 2C, H, W).

    Near the origin a stroke fills many pixels of a polar image; only its edges determine a shift.
    """
    return torch.cat((polar.roll(-1, dims=-2) - polar, F.pad(polar.diff(dim=-1), (0, 1))), dim=1)


def draw(model: PolarNetwork, test: Dataset, digits: Tensor, path: Path, *, title: str) -> None:
    """Draws the first of each class of `test`; of `digits` (N, 28, 28), the first is shown, all are measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.9, 5.5))
    chosen = torch.stack([(test.labels == label).nonzero()[0, 0] for label in test.labels.unique()])
    images = test.images[chosen].float() / 255
    centers = test.meta["center"][chosen]
    draw_explanations(parts[0], images, model.explain(images), test.labels[chosen], test.classes, centers)
    heading = f"{title} on SIM2MNIST: predictions, origins (green +) and true centers (blue ○)"
    parts[0].suptitle(heading, fontsize=11)
    _draw_transforms(parts[1], transform(model, digits))
    save(figure, path)


def _draw_transforms(figure: Any, transformed: Transformed) -> None:
    grid = figure.subplots(len(TRANSFORMS), 3 + CHANNELS, width_ratios=(1,) * (2 + CHANNELS) + (2.4,))
    polar, features = transformed.polar, transformed.features
    maps = features.maps[0][:, distinct_channels(features.maps[0, 0], CHANNELS)]
    brightest = maps.amax(dim=(0, 2, 3)).clamp(min=1e-12)
    for row, title in enumerate(TRANSFORMS):
        image, log_polar, *others, text = grid[row]
        show(image, transformed.images[0, row])
        mark_origin(image, *transformed.origins_px[0, row].tolist(), color=LIGHT_GREEN, size=9)
        image.set_ylabel(title, fontsize=10)
        show(log_polar, polar.maps[0, row])
        ray, edge = polar_landmarks(polar.maps[0, 0, 0])
        rows, columns = polar.theory[row].tolist()
        mark_shift(log_polar.axhline, ray, (ray + rows) % polar.maps.shape[-2], color=LIGHT_GREEN)
        mark_shift(log_polar.axvline, edge, edge + columns, color=LIGHT_GREEN)
        for index, axes in enumerate(others):
            show(axes, maps[row, index], cmap=HEATMAP_CMAP, limits=(0, float(brightest[index])))
            _mark_cell(axes, maps[0, index], features.theory[row])
        text.set_axis_off()
        legend = f"yellow: maximum of the reference\ngreen: the same by theory\nmedians of {len(polar.maps)} digits"
        text.text(0, 0.5, _describe_shifts(transformed, row) if row else legend, fontsize=9, va="center")
    height, width = maps.shape[-2:]
    shown = f"{CHANNELS} of the {features.maps.shape[2]} feature maps of the last layer, {height} × {width}"
    for column, heading in ((0, "image, origin"), (1, "log-polar image"), (2 + CHANNELS // 2, shown)):
        grid[0, column].set_title(heading, fontsize=9)
    grid[-1, 1].set_ylabel("← angle", fontsize=9)
    grid[-1, 1].set_xlabel("radius →", fontsize=9)
    title = "A half turn shifts the last feature maps by half their height, scaling to the right, a move not at all"
    figure.suptitle(title, fontsize=11)


def _describe_shifts(transformed: Transformed, row: int) -> str:
    """Returns the median shifts over all digits beside theory, and the fraction of digits that agrees."""
    cells = (transformed.features.maps.shape[-2], transformed.features.maps.shape[-1])
    lines = ["median rows, columns (theory)"]
    for name, maps, digits in (("last layer", transformed.features, 2), ("log-polar", transformed.polar, 1)):
        median, theory = (
            ", ".join(f"{value:z.{digits}f}" for value in values.tolist())
            for values in (maps.measured[:, row].median(dim=0).values, maps.theory[row])
        )
        lines.append(f"{name}: {median} ({theory})\n    {maps.agreement(cells)[row]:.0%} of digits within ½ cell")
    return "\n".join(lines)


def _mark_cell(axes: Any, reference: Tensor, shift: Tensor) -> None:
    """Marks the maximum of the reference, and its position after `shift` (rows, columns)."""
    from matplotlib.patches import Rectangle

    height, width = reference.shape
    row, column = divmod(int(reference.argmax()), width)
    rows, columns = shift.tolist()
    for color, line, y, x in (
        (YELLOW, 3.0, row, column),
        (LIGHT_GREEN, 1.4, (row + rows) % height, column + columns),
    ):
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=line))
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
