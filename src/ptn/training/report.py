"""The report of a training on a folder of images: one page with curves, confusion, mistakes and robustness."""

import base64
import html
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..data.dataset import subset
from ..evaluation import ANGLES, accuracy_by_angle, evaluate, scores
from ..figures import PTN_COLOR, angle_axis, faint_grid, mark_origin, paper, save, show
from ..files import write_text
from ..geometry import Similarity, origin_px, similarity_warp
from ..models import Model, PolarNetwork, count_parameters
from .trainer import Run

SCALES = tuple(2 ** (step / 4) for step in range(-4, 5))
_ROBUSTNESS_IMAGES = 200
_MISTAKES = 6
_MAX_CLASSES = 20  # in the confusion matrix

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%}}table{{border-collapse:collapse}}td,th{{padding:.2rem .8rem;text-align:left}}</style>
<h1>{title}</h1>
<table>{rows}</table>
<img alt="Errors during training, confusion matrix, accuracy against angle and scale, worst mistakes"
src="data:image/png;base64,{picture}">
</html>
"""


def write_report(run: Run, model: Model, test: Any, folder: Path) -> str:
    """Writes report.png and report.html to the folder of a run; returns a line that says where.

    Accuracy against angle and scale is measured on up to 200 test images.
    """
    if find_spec("matplotlib") is None:
        return "no report: it needs matplotlib (pip install 'ptn[figures]')"
    result = evaluate(model, test)
    picture = folder / "report.png"
    _draw(run, model, test, result.confusion, picture)
    names = _printable(test.classes)
    rows = {
        "test error": f"{result.error:.2f}% of {result.n} images",
        "validation error": "none" if run.best_error is None else f"{run.best_error:.2f}%",
        "model": f"{run.recipe.model.name}, {count_parameters(model):,} parameters",
        "training": f"{len(run.data.train)} images, {run.epoch} epochs, {run.seconds:.0f} s on {run.device}",
        "classes": ", ".join(names[:_MAX_CLASSES]) + (" …" if len(names) > _MAX_CLASSES else ""),
    }
    cells = "".join(f"<tr><th>{key}<td>{html.escape(value)}" for key, value in rows.items())
    encoded = base64.b64encode(picture.read_bytes()).decode()
    write_text(folder / "report.html", _PAGE.format(title=html.escape(run.title), rows=cells, picture=encoded))
    return f"report: {folder / 'report.html'}"


def _draw(run: Run, model: Model, test: Dataset, confusion: Tensor, path: Path) -> None:
    import matplotlib.pyplot as plt

    with paper(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names in any script
        figure = plt.figure(figsize=(12, 11), layout="constrained")
        grid = figure.add_gridspec(2, height_ratios=(2, 1.25))
        top, bottom = (figure.add_subfigure(grid[row]) for row in range(2))
        (curves, matrix), (angles, sizes) = top.subplots(2, 2)
        _draw_curves(curves, run)
        _draw_confusion(matrix, confusion, _printable(test.classes))
        _draw_robustness(angles, sizes, model, test)
        _draw_mistakes(bottom, model, test)
        save(figure, path)
        plt.close(figure)


def _draw_curves(axes: Any, run: Run) -> None:
    epochs = [epoch["epoch"] for epoch in run.history]
    axes.plot(epochs, [epoch["train_error"] for epoch in run.history], color="0.6", label="training, augmented")
    if run.best_error is not None:
        axes.plot(epochs, [epoch["valid_error"] for epoch in run.history], color=PTN_COLOR, label="validation")
    axes.set(xlabel="epoch", ylabel="error in %", ylim=(0, None), title="Training")
    axes.legend(frameon=False)
    faint_grid(axes)


def _draw_confusion(axes: Any, confusion: Tensor, classes: list[str]) -> None:
    shown = classes[:_MAX_CLASSES]
    counts = confusion[: len(shown), : len(shown)]
    shares = counts / confusion.sum(dim=1, keepdim=True).clamp(min=1)[: len(shown)]
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    for row, column in counts.nonzero().tolist():
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, int(counts[row, column]), ha="center", va="center", size=7, color=color)
    names = [name if len(name) <= 12 else f"{name[:11]}…" for name in shown]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted", ylabel="true", title="Test images")


def _draw_robustness(angles: Any, sizes: Any, model: Model, test: Dataset) -> None:
    chosen = torch.linspace(0, len(test) - 1, min(len(test), _ROBUSTNESS_IMAGES)).long()
    sample = subset(test, chosen)
    accuracies = accuracy_by_angle(model, sample)
    angles.plot([*ANGLES, 360], [*accuracies, accuracies[0]], color=PTN_COLOR)
    angle_axis(angles)
    images = sample.images.float() / 255
    by_scale = []
    for scale in SCALES:
        warped = similarity_warp(images, Similarity(scale=scale), mode="bicubic", padding_mode="border")
        correct = scores(model, warped.clamp(0, 1)).argmax(dim=1) == sample.labels
        by_scale.append(100 * correct.double().mean().item())
    sizes.plot([math.log2(scale) for scale in SCALES], by_scale, color=PTN_COLOR)
    sizes.set_xticks([-1, -0.5, 0, 0.5, 1], ["½", "0.7", "1", "1.4", "2"])
    sizes.set(xlabel="images scaled by", title=f"Accuracy against scale ({len(sample)} test images)")
    angles.set(title=f"Accuracy against angle ({len(sample)} test images)")
    for axes in (angles, sizes):
        axes.set(ylabel="accuracy in %", ylim=(0, 101))
        faint_grid(axes)


def _draw_mistakes(figure: Any, model: Model, test: Dataset) -> None:
    """Draws the mistakes with the highest probability: the image with its origin, and its polar image below."""
    images = test.images.float() / 255
    confidence, predicted = scores(model, images).max(dim=1)
    wrong = (predicted != test.labels).nonzero()[:, 0]
    worst = wrong[confidence[wrong].argsort(descending=True)][:_MISTAKES]
    figure.suptitle("Worst mistakes" if len(worst) else "No mistakes on the test images")
    if not len(worst):
        return
    grid = figure.subplots(2, _MISTAKES, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    names = _printable(test.classes)
    explanation = model.explain(images[worst]) if isinstance(model, PolarNetwork) else None
    for column, index in enumerate(worst.tolist()):
        upper, lower = grid[:, column]
        show(upper, images[index])
        true, prediction = names[int(test.labels[index])], names[int(predicted[index])]
        upper.set_title(f"{true[:12]}\npredicted {prediction[:12]} ({confidence[index]:.0%})", size=8)
        if explanation is None:
            continue
        if explanation.origins is not None:
            size = (images.shape[-2], images.shape[-1])
            mark_origin(upper, *origin_px(explanation.origins[column], size).tolist())
        if explanation.polar_images is not None:
            show(lower, explanation.polar_images[column])
            lower.set_title("polar image", size=8)


def _printable(names: Sequence[str]) -> list[str]:
    """Returns names of classes without control characters, and without $, which starts mathematics."""
    return ["".join(letter if letter.isprintable() and letter != "$" else "_" for letter in name) for name in names]
