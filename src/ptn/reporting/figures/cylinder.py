"""The paper's picture of shapes: voxel grids turned about z, and their cylindrical images, which shift instead."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...geometry import PolarGrid, Similarity, cylindrical_sample, measure_shift, similarity_warp
from .style import GREEN, YELLOW, explain_shift_lines, save

ROTATIONS = (0.0, 45.0, 90.0, 160.0, 250.0)

# how the voxels are looked at: from the side and from above, at so many pixels a voxel
_SIDE, _ABOVE = math.radians(30), math.radians(25)
_PIXELS = 3.0
_LIGHT = (-0.4, -0.7, 0.6)


@dataclass(frozen=True)
class Turned:
    """A shape turned about z by each of `degrees`.

    `volumes` (K, X, Y, Z), and `cylinders`, their cylindrical images (K, angles, radii, Z). `columns` is how far
    each of these is shifted along the angle against the first, and `theory` how far it should be.
    """

    degrees: tuple[float, ...]
    volumes: Tensor
    cylinders: Tensor
    columns: tuple[float, ...]
    theory: tuple[float, ...]


def turn(volume: Tensor, degrees: Sequence[float] = ROTATIONS) -> Turned:
    """`volume` (size, size, size), in [0, 1], turned about its vertical axis by each angle, the first of them 0."""
    size = volume.shape[0]
    rotation = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    copies = volume.double().expand(len(degrees), 1, size, size, size)
    volumes = similarity_warp(copies, Similarity(rotation))
    grid = PolarGrid(2 * size, size, law="linear", r_max_px=size / 2)
    cylinders = cylindrical_sample(volumes, torch.zeros(len(degrees), 2, dtype=torch.float64), grid)[:, 0]
    slices = cylinders.permute(0, 3, 1, 2)
    found = measure_shift(slices[:1].expand_as(slices), slices)[:, 0].tolist()
    theory = [angle / 360 * grid.angles for angle in degrees]
    # known modulo the whole turn: take the copy nearest to theory
    columns = [c + grid.angles * round((t - c) / grid.angles) for c, t in zip(found, theory, strict=True)]
    return Turned(tuple(degrees), volumes[:, 0], cylinders, tuple(columns), tuple(theory))


def unroll(cylinder: Tensor) -> Tensor:
    """A cylindrical image (angles, radii, Z) as seen from outside: the outermost radius that is full, as a share of
    all: (Z, angles), the highest z first."""
    radii = cylinder.shape[1]
    full = cylinder > 0.5
    outermost = (full * torch.arange(1, radii + 1)[None, :, None]).amax(dim=1)
    return (outermost / radii).T.flip(0)


def render(volume: Tensor) -> NDArray[np.float64]:
    """A picture of the voxels of (X, Y, Z) that are more than half full: brightness (h, w), NaN for none.

    Seen from the side and a little from above, without perspective, lit from the upper left.
    """
    size = volume.shape[0]
    full = (volume > 0.5).numpy()
    soft = torch.nn.functional.avg_pool3d(volume[None, None], 3, stride=1, padding=1)[0, 0].numpy()
    normals = -np.stack(np.gradient(soft), axis=-1)[full]
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
    light = np.array(_LIGHT) / np.linalg.norm(_LIGHT)
    brightness = 0.35 + 0.65 * np.clip(normals @ light, 0, 1)
    # every voxel as 4³ points, so that no pixel between them stays empty
    steps = (np.arange(4) + 0.5) / 4 - 0.5
    offsets = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    centres = np.argwhere(full) - (size - 1) / 2
    x, y, z = (centres[:, None] + offsets).reshape(-1, 3).T
    right = math.cos(_SIDE) * x - math.sin(_SIDE) * y
    away = math.sin(_SIDE) * x + math.cos(_SIDE) * y
    up = math.cos(_ABOVE) * z + math.sin(_ABOVE) * away
    depth = math.cos(_ABOVE) * away - math.sin(_ABOVE) * z
    side = math.ceil(1.5 * size * _PIXELS)
    column = np.floor(right * _PIXELS + side / 2).astype(np.int64)
    row = np.floor(side / 2 - up * _PIXELS).astype(np.int64)
    picture = np.full((side, side), np.nan)
    order = np.argsort(-depth, kind="stable")  # the nearest is drawn last
    picture[row[order], column[order]] = brightness.repeat(len(offsets))[order]
    return picture


def draw(shapes: Sequence[tuple[str, Tensor]], path: Path) -> list[Turned]:
    """Write the figure for `shapes`, names with solid volumes (size, size, size); return their turns."""
    from matplotlib.figure import Figure

    columns = len(ROTATIONS)
    figure = Figure(figsize=(2.1 * columns, 3.5 * len(shapes) + 1.4), layout="constrained")
    rows = {"height_ratios": (2, 1) * len(shapes), "hspace": 0.06}
    axes = figure.subplots(2 * len(shapes), columns, squeeze=False, gridspec_kw=rows)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    drawn = []
    for index, (name, volume) in enumerate(shapes):
        turned = turn(volume)
        drawn.append(turned)
        upper, lower = axes[2 * index], axes[2 * index + 1]
        landmark = int(turned.cylinders[0].sum(dim=(1, 2)).argmax())
        for column, degrees in enumerate(turned.degrees):
            picture = render(turned.volumes[column].float())
            upper[column].imshow(_cropped(picture, volume.shape[0]), cmap="gray", vmin=0, vmax=1)
            upper[column].set_title(f"turned {degrees:g}°", fontsize=9)
            upper[column].spines[:].set_visible(False)
            unrolled = unroll(turned.cylinders[column]).numpy()
            surface = lower[column].imshow(unrolled, cmap="magma", vmin=0, vmax=1)
            angles = turned.cylinders.shape[1]
            lower[column].axvline(landmark, color=YELLOW, linewidth=1.8)
            lower[column].axvline((landmark + turned.columns[column]) % angles, color=GREEN, linewidth=1.8)
            shift = f"{turned.columns[column]:.1f} columns, theory {turned.theory[column]:.1f}"
            lower[column].set_title(shift, fontsize=8)
        upper[0].set_ylabel(name.replace("_", " "), fontsize=10)
        lower[0].set_ylabel("z →", fontsize=9)
        lower[0].set_xlabel("angle →", fontsize=9)
    scale = figure.colorbar(surface, ax=axes[-1], location="bottom", shrink=0.4, aspect=40, ticks=[0, 0.5, 1])
    scale.ax.set_xticklabels(["at the axis, or nothing", "half way", "at the rim"], fontsize=8)
    scale.set_label("where the outermost voxel is, seen from outside", fontsize=9)
    explain_shift_lines(figure)
    figure.suptitle("Turning about a vertical axis shifts the cylindrical image along the angle", fontsize=11)
    save(figure, path)
    return drawn


def _cropped(picture: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The middle, where a shape in the inscribed cylinder can be."""
    margin = round(0.2 * size * _PIXELS)
    return picture[margin:-margin, margin:-margin]
