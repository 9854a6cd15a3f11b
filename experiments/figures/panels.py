"""Building blocks of the figures: signed images, heatmaps, polar axes, shifts."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ptn.figures import GREEN, HEATMAP_CMAP, SKY, VERMILION, YELLOW, mark_origin, show
from ptn.geometry import origin_px
from ptn.layers import normalize_heatmap

LIGHT_GREEN = "#00c08b"
"""A green that is visible on black and on a heatmap."""


def show_signed(axes: Any, values: Tensor, title: str = "", limit: float | None = None) -> None:
    """Shows values (h, w) in red and blue, white at 0."""
    limit = float(values.abs().max()) if limit is None else limit
    show(axes, values, title, cmap="RdBu_r", limits=(-limit, limit))


def show_heatmap(axes: Any, image: Tensor, heatmap: Tensor) -> None:
    """Shows a heatmap (h, w) over a faint image (C, H, W) in [0, 1]."""
    from matplotlib import colormaps

    height, width = image.shape[-2:]
    fine = F.interpolate(normalize_heatmap(heatmap)[None, None], size=(height, width))[0, 0]
    shade = 0.3 * image.mean(dim=0)[None]
    colors = torch.from_numpy(colormaps[HEATMAP_CMAP](fine.numpy())[..., :3]).permute(2, 0, 1)
    show(axes, shade + (1 - shade) * colors)


def label_rows(axes: Any, labels: Iterable[str]) -> None:
    """Labels the first column of a grid of axes; "log-polar" rows name the direction of the angle, too."""
    for row, label in zip(axes, labels, strict=True):
        polar = label.startswith("log-polar")
        # The label is rotated: the arrow points down.
        row[0].set_ylabel(f"{label}\n← angle" if polar else label, fontsize=9)
        if polar:
            row[0].set_xlabel("radius →", fontsize=9)


def draw_explanations(
    figure: Any,
    images: Tensor,
    explanation: Any,
    labels: Tensor,
    classes: tuple[str, ...],
    centers: Tensor | None = None,
) -> None:
    """Draws images (N, C, H, W) with origins, heatmaps and log-polar images, one column per image.

    `explanation` is the result of `model.explain`. The title is the predicted class, in red with the true one where
    they differ. True centers (N, 2) in [-1, 1] are marked by circles.
    """
    size = (images.shape[-2], images.shape[-1])
    origins, predictions = origin_px(explanation.origins, size).tolist(), explanation.logits.argmax(dim=1).tolist()
    axes = figure.subplots(3, len(images), squeeze=False)
    for column, (image, heat, polar) in enumerate(axes.T):
        label, predicted = int(labels[column]), predictions[column]
        show(image, images[column])
        show_heatmap(heat, images[column], explanation.heatmaps[column])
        show(polar, explanation.polar_images[column])
        if label == predicted:
            image.set_title(classes[label], fontsize=10)
        else:
            image.set_title(f"{classes[predicted]} ✗ ({classes[label]})", fontsize=10, color=VERMILION)
        if centers is not None:
            circle = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.3, "color": SKY}
            image.plot(*origin_px(centers[column], size).tolist(), "o", **circle)
        for each in (image, heat):
            mark_origin(each, *origins[column], color=LIGHT_GREEN, size=9)
    label_rows(axes, ("test image,\n+ origin", "heatmap", "log-polar"))


def mark_shift(draw_line: Any, start: float, end: float, *, color: str = GREEN) -> None:
    """Draws a yellow line at `start` and one in `color` at `end`; `draw_line` is `axhline` or `axvline`."""
    draw_line(start, color=YELLOW, linewidth=2.4)
    draw_line(end, color=color, linewidth=1.2)  # both are visible where they coincide


def polar_landmarks(polar_image: Tensor) -> tuple[int, int]:
    """Returns the row with the largest sum and the outermost bright column of a polar image (angles, radii)."""
    return int(polar_image.sum(dim=1).argmax()), int((polar_image.amax(dim=0) > 0.5).nonzero().max())
