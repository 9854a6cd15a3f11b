"""What a polar transformer does, as a moving picture: a digit moves, turns, grows; its polar image shifts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError
from ...files import atomic_path
from ...geometry import PolarGrid, Similarity, origin_px, polar_sample, similarity_warp
from ...layers import PolarTransformer
from ...models import Model
from ...models.networks import PolarNetwork
from .style import GREEN, YELLOW

SIZE = 42
STEPS = {"move": 11, "turn": 12, "grow": 10}
"""How many frames each part has."""

_SAYS = {
    "move": "It moves: the origin follows, the log-polar image stays",
    "turn": "It turns: the log-polar image shifts along the angle",
    "grow": "It grows: the log-polar image shifts along the radius",
}
_SMALL, _LARGE = 0.85, 1.2
_MILLISECONDS = 150


@dataclass(frozen=True)
class Frames:
    """The film: what each frame shows (`kinds`, `warp`), `images` (K, H, W), `origins` (K, 2) in [-1, 1],
    `polar` (K, angles, radii) on `grid`, and the `answers` of the network, if there is one."""

    kinds: tuple[str, ...]
    warp: Similarity
    images: Tensor
    origins: Tensor
    polar: Tensor
    grid: PolarGrid
    answers: tuple[str, ...] | None


def poses() -> tuple[tuple[str, ...], Similarity]:
    """What happens to the digit in each frame; every part ends where it began."""
    kinds, rotation, scale, shift = [], [], [], []
    for kind, count in STEPS.items():
        for step in range(count):
            phase = 2 * math.pi * step / count
            kinds.append(kind)
            rotation.append(phase if kind == "turn" else 0.0)
            swing = 0.5 - 0.5 * math.cos(phase)
            scale.append(_SMALL * (_LARGE / _SMALL) ** swing if kind == "grow" else _SMALL)
            shift.append((7 * math.sin(phase), 6 * math.sin(2 * phase)) if kind == "move" else (0.0, 0.0))
    return tuple(kinds), Similarity(*(torch.tensor(values, dtype=torch.float64) for values in (rotation, scale, shift)))


def film(digit: Tensor, model: Model | None = None, *, classes: Sequence[str] = ()) -> Frames:
    """`digit` (28, 28) in [0, 1] in every pose, on a canvas of 42×42 or of the size that `model` takes.

    Origins are those that `model` predicts, a network with polar images of one channel; without one they are the
    middle of the digit.
    """
    kinds, warp = poses()
    size = (SIZE, SIZE)
    if model is not None:
        if (
            not isinstance(model, PolarNetwork)
            or not isinstance(model.transformer, PolarTransformer)
            or model.input_shape[0] != 1
        ):
            raise InputError("the moving picture is that of a network of polar images in grey: take ptn_s or ptn_b")
        size = (model.input_shape[1], model.input_shape[2])
    unit = min(size) / SIZE
    warp = Similarity(warp.rotation, warp.scale * unit, warp.shift_px * unit)
    copies = digit.double().expand(len(kinds), 1, *digit.shape)
    images = similarity_warp(copies, warp, size=size, mode="bicubic").clamp(0, 1).float()
    if model is None:
        origins, grid = (2 * warp.shift_px / SIZE).float(), PolarGrid(*size)
        return Frames(kinds, warp, images[:, 0], origins, polar_sample(images, origins, grid)[:, 0], grid, None)
    seen = model.explain(images)
    assert seen.origins is not None
    assert seen.polar_images is not None
    assert isinstance(model.transformer, PolarTransformer)
    shares, best = seen.logits.softmax(dim=1).max(dim=1)
    answers = tuple(
        f"{classes[label]} ({100 * share:.0f}%)"
        for label, share in zip(best.tolist(), shares.tolist(), strict=True)
    )
    grid = model.transformer.grid
    return Frames(kinds, warp, images[:, 0], seen.origins, seen.polar_images[:, 0], grid, answers)


def draw(frames: Frames, path: Path) -> None:
    """Write the film as an animated WebP that goes on for ever."""
    first, *others = list(_render(frames))
    with atomic_path(path) as temporary:
        first.save(
            temporary,
            "WEBP",
            save_all=True,
            append_images=others,
            duration=_MILLISECONDS,
            loop=0,
            quality=45,
            method=6,
            minimize_size=True,
        )


def _render(frames: Frames) -> Iterator[Any]:
    """Each frame as a picture of Pillow's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(5.6, 3.3), layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    size = (frames.images.shape[1], frames.images.shape[2])
    images, polar_images = frames.images.numpy(), frames.polar.numpy()
    image = left.imshow(images[0], cmap="gray", vmin=0, vmax=1, interpolation="bilinear")
    polar = right.imshow(polar_images[0], cmap="gray", vmin=0, vmax=1, interpolation="bilinear")
    for axis in (left, right):
        axis.set(xticks=[], yticks=[])
    (shadow,) = left.plot([0], [0], "+", markersize=17, markeredgewidth=5, color="black")
    (cross,) = left.plot([0], [0], "+", markersize=16, markeredgewidth=2.5, color=YELLOW)
    right.set_xlabel("radius →", fontsize=9)
    right.set_ylabel("← angle", fontsize=9)
    by_row = right.axhline(0, color=GREEN, linewidth=2)
    by_column = right.axvline(0, color=GREEN, linewidth=2)
    title = figure.suptitle(_SAYS["move"], fontsize=12)
    left.set_xlabel("answer", fontsize=9)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # everything is in its place, and stays there
    for index, kind in enumerate(frames.kinds):
        image.set_data(images[index])
        polar.set_data(polar_images[index])
        x, y = origin_px(frames.origins[index], size).tolist()
        for mark in (shadow, cross):
            mark.set_data([x], [y])
        row, column = _landmarks(frames, index)
        by_row.set(ydata=[row, row], visible=kind == "turn")
        by_column.set(xdata=[column, column], visible=kind == "grow")
        title.set_text(_SAYS[kind])
        left.set_xlabel(f"answer: {frames.answers[index]}" if frames.answers else "+ its origin", fontsize=9)
        canvas.draw()
        yield Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")


def _landmarks(frames: Frames, index: int) -> tuple[float, float]:
    """Where theory puts the ray with most ink, and the end of the ink, of the first frame."""
    first, grid = frames.polar[0], frames.grid
    size = (frames.images.shape[1], frames.images.shape[2])
    row = int(first.sum(dim=1).argmax()) + float(frames.warp.rotation[index]) / (2 * math.pi) * grid.angles
    reach = (first.amax(dim=0) > 0.5).nonzero().max()
    grown = grid.radius_at(reach.double(), size) * frames.warp.scale[index] / frames.warp.scale[0]
    return row % grid.angles, float(grid.column_at(grown, size))
