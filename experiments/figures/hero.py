"""Animation: a digit rotates; the prediction of a PTN stays, that of a plain CNN does not."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptn.demo.inspect import place, predict_ring
from ptn.demo.models import Pair
from ptn.figures import CNN_COLOR, ORIGIN_COLOR, PTN_COLOR, mark_origin, recolor
from ptn.files import atomic_path
from ptn.geometry import Similarity, origin_px

FRAMES, FRAMES_PER_SECOND = 150, 25
TICKS = 72
_RESULT_MS = 2000  # time to read the scores
_ROTATION = math.radians(420)  # as in the opening scene of the page: it ends where the predictions differ
_SIZE = (10.0, 3.9)  # inches
_DOTS_PER_INCH = 140
_RADII = ((1.0, 0.08), (0.9, 0.08))  # outer radius and width of the strip of each network
_RING_COLORS = ("#3d9fdb", "#f08a3c")  # of PTN and CNN on the dark disc, as on the page
_HALF = 0.56  # half the side of the image in the ring


def draw(pair: Pair, digit: Tensor, path: Path) -> None:
    """Writes the animation of `digit` (1, 28, 28) in [0, 1], read by `pair`, as a looping WebP."""
    *others, result = _render(pair, digit)  # the result comes first, for viewers without animations
    durations = [_RESULT_MS] + [1000 // FRAMES_PER_SECOND] * (FRAMES - 1)
    options = {"duration": durations, "loop": 0, "quality": 62, "method": 4, "minimize_size": True}
    with atomic_path(path) as temporary:
        result.save(temporary, "WEBP", save_all=True, append_images=others, **options)


def _render(pair: Pair, digit: Tensor) -> Iterator[Any]:
    """Yields each frame as a PIL image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    assert pair.plain is not None
    label = int(pair.polar(place(digit[None], Similarity(scale=pair.digit_scale), pair.size, 1)).argmax())
    shift = 0.13 * pair.size[1], -0.09 * pair.size[0]  # as in the opening scene of the page
    rotations = torch.linspace(0, _ROTATION, FRAMES)
    images = place(digit.expand(FRAMES, -1, -1, -1), Similarity(rotations, pair.digit_scale, shift), pair.size, 1)
    explanation: Any = pair.polar.explain(images)
    probabilities = [explanation.logits.softmax(dim=1), pair.plain(images).softmax(dim=1)]
    ring = predict_ring(pair, digit, Similarity(0.0, pair.digit_scale, shift), TICKS)

    figure = Figure(figsize=_SIZE, dpi=_DOTS_PER_INCH)
    canvas: Any = FigureCanvasAgg(figure)
    strips, needle, picture, cross = _draw_stage(figure, images[0, 0])
    polar = figure.add_axes((0.415, 0.16, 0.22, 0.64))
    polar.set(xticks=[], yticks=[])
    polar.set_title("log-polar image:\nrotation is a shift", fontsize=11)
    polar.set_xlabel("log radius →", fontsize=9)
    polar.set_ylabel("← angle", fontsize=9)
    unrolled = polar.imshow(
        explanation.polar_images[0, 0].numpy(), cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="bilinear"
    )
    cards = [_draw_card(figure, 0.55, "Polar network", PTN_COLOR), _draw_card(figure, 0.07, "Plain CNN", CNN_COLOR)]
    recolor(figure)
    for frame in range(FRAMES):
        picture.set_data(images[frame, 0].numpy())
        unrolled.set_data(explanation.polar_images[frame, 0].numpy())
        x, y = origin_px(explanation.origins[frame], pair.size).tolist()
        for mark in cross:
            mark.set_data(
                [((x + 0.5) / pair.size[1] - 0.5) * 2 * _HALF], [(0.5 - (y + 0.5) / pair.size[0]) * 2 * _HALF]
            )
        angle = float(rotations[frame])
        needle.set_data([0.8 * math.sin(angle)], [0.8 * math.cos(angle)])
        shown = min(TICKS, 1 + int(angle * TICKS / (2 * math.pi)))
        networks = zip(cards, _RING_COLORS, strips, ring, probabilities, strict=True)
        for card, color, strip, labels, scores in networks:
            assert labels is not None
            right = labels[:shown] == label
            for tick, correct in zip(strip, right.tolist(), strict=False):
                tick.set_facecolor(color if correct else "#303842")
            number, verdict, count = card
            predicted = int(scores[frame].argmax())
            number.set_text(str(predicted))
            verdict.set(
                text="✓" if predicted == label else "✗", color="#00a070" if predicted == label else "#e5484d"
            )
            count.set_text(f"{int(right.sum())} of {shown}")
        canvas.draw()
        yield Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")


def _draw_stage(figure: Any, image: Tensor) -> tuple[list[list[Any]], Any, Any, list[Any]]:
    """Draws the image in the middle of two strips of ticks, and the needle."""
    from matplotlib.patches import Circle, Wedge

    stage = figure.add_axes((0.01, 0.03, 0.94 * _SIZE[1] / _SIZE[0], 0.94))
    stage.set_axis_off()
    stage.set(xlim=(-1.02, 1.02), ylim=(-1.02, 1.02))
    stage.add_patch(Circle((0, 0), 1.01, facecolor="#10141a"))
    strips: list[list[Any]] = []
    for outer, width in _RADII:
        strips.append([])
        for tick in range(TICKS):
            middle, half = 90 - 360 * tick / TICKS, 0.42 * 360 / TICKS
            wedge = Wedge((0, 0), outer, middle - half, middle + half, width=width, facecolor="#1c222a")
            strips[-1].append(stage.add_patch(wedge))
    picture = stage.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1, extent=(-_HALF, _HALF, -_HALF, _HALF))
    picture.set(interpolation="bilinear", zorder=2)  # above the disc
    stage.set(xlim=(-1.02, 1.02), ylim=(-1.02, 1.02))
    (needle,) = stage.plot([0], [0.8], "o", color=ORIGIN_COLOR, markersize=9, markeredgecolor="#111111")
    return strips, needle, picture, mark_origin(stage, 0, 0, size=12)


def _draw_card(figure: Any, bottom: float, name: str, color: str) -> tuple[Any, Any, Any]:
    """Draws the frame of a verdict; returns its digit, mark and count."""
    from matplotlib.patches import FancyBboxPatch

    axes = figure.add_axes((0.665, bottom, 0.325, 0.38))
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    box = FancyBboxPatch(
        (0.01, 0.02), 0.98, 0.96, boxstyle="round,pad=0,rounding_size=0.06", facecolor="none", edgecolor=color
    )
    box.set_linewidth(2.5)
    axes.add_patch(box)
    axes.text(0.06, 0.79, name, fontsize=18, fontweight="bold", color=color, va="center")
    number = axes.text(0.06, 0.36, "", fontsize=46, fontweight="bold", va="center")
    verdict = axes.text(0.25, 0.34, "", fontsize=30, va="center")
    count = axes.text(0.47, 0.45, "", fontsize=22, fontweight="bold", va="center")
    axes.text(0.47, 0.2, "angles right", fontsize=16, va="center")
    return number, verdict, count
