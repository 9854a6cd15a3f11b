"""Where a network looks in photographs with other digits beside the one to be read."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...data import Dataset
from ...data.subset import subset
from ...errors import InputError
from ...evaluation import origin_offsets_px
from ...geometry import origin_px
from ...models import Explanation, Model
from ...models.inference import prepare_for_inference
from .rotsvhn import sharpest
from .style import BLUE, GREEN, VERMILION, YELLOW, save

_COLUMNS = 10
_AT_MOST = 4000


def neighbours(dataset: Dataset) -> Tensor:
    """How many other digits are next to each in its photograph, 0 to 2, int64 (N,)."""
    if "image_id" not in dataset.meta:
        raise InputError(
            f"{dataset.name} from {dataset.meta.get('source')} does not say which digits share a photo"
        )
    same = (dataset.meta["image_id"][1:] == dataset.meta["image_id"][:-1]).long()
    return F.pad(same, (1, 0)) + F.pad(same, (0, 1))


def draw(model: Model, title: str, digits: Dataset, path: Path) -> dict[str, float]:
    """Write the figure as a PNG; return the median distance of origins from the middle, in pixels, by what is
    beside the digits.

    Above, digits with another beside them, the network's heatmap and origin, and the log-polar images it reads.
    Below, how far origins are from the middle of the box that the digit was cut by.
    """
    from matplotlib.figure import Figure

    beside = neighbours(digits)
    chosen = sharpest(digits, beside > 0, _COLUMNS)
    figure = Figure(figsize=(11.5, 6.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    _draw_digits(
        parts[0], prepare_for_inference(model).explain(digits.images[chosen].float() / 255), digits, chosen
    )
    some = torch.linspace(0, len(digits) - 1, min(_AT_MOST, len(digits))).long()
    distance = origin_offsets_px(model, subset(digits, some)).norm(dim=1)
    medians = _draw_distances(parts[1], distance, beside[some])
    figure.suptitle(f"Where {title} looks, with other digits beside the one to be read", fontsize=12)
    save(figure, path)
    return medians


def _size(digits: Dataset) -> tuple[int, int]:
    return digits.images.shape[-2], digits.images.shape[-1]


def _draw_digits(figure: Any, seen: Explanation, digits: Dataset, chosen: Tensor) -> None:
    if seen.origins is None or seen.heatmaps is None or seen.polar_images is None:
        raise InputError("the network has no origin to show: take a PTN")
    height, width = _size(digits)
    axes = figure.subplots(3, len(chosen), squeeze=False)
    origins, answers = origin_px(seen.origins, (height, width)).tolist(), seen.logits.argmax(dim=1).tolist()
    for column, index in enumerate(chosen.tolist()):
        photo, heat, polar = axes[:, column]
        picture = digits.images[index].permute(1, 2, 0).numpy()
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        photo.imshow(picture)
        heat.imshow(picture.mean(axis=2), cmap="gray", vmin=0, vmax=255)
        heat.imshow(
            _positive(seen.heatmaps[column]), cmap="inferno", alpha=0.65, extent=extent, interpolation="bilinear"
        )
        polar.imshow(seen.polar_images[column].permute(1, 2, 0).clamp(0, 1).numpy())
        x, y = origins[column]
        for axis in (photo, heat):
            axis.plot(x, y, "+", markersize=13, markeredgewidth=4, color="black")  # seen on white strokes too
            axis.plot(x, y, "+", markersize=12, markeredgewidth=2, color=YELLOW)
        truth, answer = int(digits.labels[index]), answers[column]
        wrong = "" if answer == truth else f", taken for {digits.classes[answer]}"
        photo.set_title(f"{digits.classes[truth]}{wrong}", fontsize=9, **({"color": VERMILION} if wrong else {}))
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    axes[0, 0].set_ylabel("test digit,\n+ its origin", fontsize=9)
    axes[1, 0].set_ylabel("heatmap", fontsize=9)
    axes[2, 0].set_ylabel("log-polar\n← angle", fontsize=9)
    axes[2, 0].set_xlabel("radius →", fontsize=9)


def _positive(heatmap: Tensor) -> Any:
    """A heatmap from its lowest to its highest; a centroid does not know a map from its negative."""
    weights = heatmap if heatmap.sum() >= 0 else -heatmap
    return weights.numpy()


def _draw_distances(figure: Any, distance: Tensor, beside: Tensor) -> dict[str, float]:
    """The share of digits whose origin is within each distance, by how many digits are beside them."""
    axis = figure.subplots()
    groups = {
        "alone in its photo": beside == 0,
        "one digit beside it": beside == 1,
        "between two digits": beside == 2,
    }
    medians = {}
    farthest = float(distance.quantile(0.995))
    for (name, members), color in zip(groups.items(), (BLUE, GREEN, VERMILION), strict=True):
        sorted_px = distance[members].sort().values
        if not len(sorted_px):
            continue
        medians[name] = float(sorted_px.median())
        share = 100 * torch.arange(1, len(sorted_px) + 1) / len(sorted_px)
        label = f"{name}: {medians[name]:.1f} px in the median ({len(sorted_px):,} digits)"
        axis.plot(sorted_px.numpy(), share.numpy(), color=color, label=label)
    axis.set_xlim(0, max(farthest, 0.1))
    axis.set_ylim(0, 100)
    axis.set_xlabel("distance of the origin from the middle of the digit's box (pixels)")
    axis.set_ylabel("digits within it (%)")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    return medians
