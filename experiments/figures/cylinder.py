"""Voxel shapes rotated about z, and their cylindrical images, which shift along the angle."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptn.figures import HEATMAP_CMAP, explain_shift_lines, save, shifts_from_first, show
from ptn.geometry import PolarGrid, Similarity, cylindrical_sample, similarity_warp

from .panels import mark_shift

ROTATIONS = (0.0, 45.0, 90.0, 160.0, 250.0)

# The view of rendered voxels: rotation about z, then elevation, in radians; and pixels per voxel.
_AZIMUTH, _ELEVATION, _PIXELS = math.radians(30), math.radians(25), 3.0
_LIGHT = np.array((-0.4, -0.7, 0.6))


class Rotated(NamedTuple):
    """A shape rotated about z by several angles, and the shifts of its cylindrical images."""

    volumes: Tensor  # (K, X, Y, Z)
    cylinders: Tensor  # (K, angles, radii, Z)
    measured: list[float]  # shift along the angle against the first, in columns
    theory: list[float]


def rotate(volume: Tensor, degrees: Sequence[float] = ROTATIONS) -> Rotated:
    """Rotates `volume` (size, size, size) in [0, 1] about its vertical axis by each angle, the first of them 0."""
    size, count = volume.shape[0], len(degrees)
    rotation = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    volumes = similarity_warp(volume.double().expand(count, 1, size, size, size), Similarity(rotation))
    grid = PolarGrid(2 * size, size, law="linear", r_max_px=size / 2)
    cylinders = cylindrical_sample(volumes, torch.zeros(count, 2, dtype=torch.float64), grid)[:, 0]
    theory = torch.tensor([(angle / 360 * grid.angles, 0.0) for angle in degrees], dtype=torch.float64)
    measured = shifts_from_first(cylinders.permute(0, 3, 1, 2), theory)
    return Rotated(volumes[:, 0], cylinders, measured[:, 0].tolist(), theory[:, 0].tolist())


def unroll(cylinder: Tensor) -> Tensor:
    """Returns the outermost occupied radius as a fraction: (angles, radii, Z) -> (Z, angles), largest z first."""
    radii = cylinder.shape[1]
    outermost = ((cylinder > 0.5) * torch.arange(1, radii + 1)[None, :, None]).amax(dim=1)
    return (outermost / radii).T.flip(0)


def render(volume: Tensor) -> NDArray[np.float64]:
    """Renders the occupied voxels of (X, Y, Z) without perspective: brightness (h, w), NaN for the background."""
    size = volume.shape[0]
    full = (volume > 0.5).numpy()
    soft = torch.nn.functional.avg_pool3d(volume[None, None], 3, stride=1, padding=1)[0, 0].numpy()
    normals = -np.stack(np.gradient(soft), axis=-1)[full]
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
    brightness = 0.35 + 0.65 * np.clip(normals @ (_LIGHT / np.linalg.norm(_LIGHT)), 0, 1)
    # Each voxel becomes 4³ points, so that no pixel between them stays empty.
    steps = (np.arange(4) + 0.5) / 4 - 0.5
    offsets = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    x, y, z = (np.argwhere(full)[:, None] - (size - 1) / 2 + offsets).reshape(-1, 3).T
    right = math.cos(_AZIMUTH) * x - math.sin(_AZIMUTH) * y
    away = math.sin(_AZIMUTH) * x + math.cos(_AZIMUTH) * y
    up = math.cos(_ELEVATION) * z + math.sin(_ELEVATION) * away
    depth = math.cos(_ELEVATION) * away - math.sin(_ELEVATION) * z
    side = math.ceil(1.5 * size * _PIXELS)
    column = np.floor(right * _PIXELS + side / 2).astype(np.int64)
    row = np.floor(side / 2 - up * _PIXELS).astype(np.int64)
    picture = np.full((side, side), np.nan)
    order = np.argsort(-depth, kind="stable")  # the nearest points are written last
    picture[row[order], column[order]] = brightness.repeat(len(offsets))[order]
    return picture


def draw(shapes: Sequence[tuple[str, Tensor]], path: Path) -> None:
    """Draws `shapes`, names with solid volumes (size, size, size)."""
    from matplotlib.figure import Figure

    columns = len(ROTATIONS)
    figure = Figure(figsize=(2.1 * columns, 3.5 * len(shapes) + 1.4), layout="constrained")
    ratios = {"height_ratios": (2, 1) * len(shapes), "hspace": 0.06}
    axes = figure.subplots(2 * len(shapes), columns, squeeze=False, gridspec_kw=ratios)
    for index, (name, volume) in enumerate(shapes):
        rotated = rotate(volume)
        upper, lower = axes[2 * index], axes[2 * index + 1]
        landmark = int(rotated.cylinders[0].sum(dim=(1, 2)).argmax())
        margin = round(0.2 * len(volume) * _PIXELS)
        for column, degrees in enumerate(ROTATIONS):
            picture = render(rotated.volumes[column].float())[margin:-margin, margin:-margin]
            show(upper[column], torch.from_numpy(picture), f"rotated {degrees:g}°")
            upper[column].spines[:].set_visible(False)
            shift, theory = rotated.measured[column], rotated.theory[column]
            title = f"{shift:.1f} columns, theory {theory:.1f}"
            show(lower[column], unroll(rotated.cylinders[column]), title, cmap=HEATMAP_CMAP)
            mark_shift(lower[column].axvline, landmark, (landmark + shift) % rotated.cylinders.shape[1])
        upper[0].set_ylabel(name.replace("_", " "), fontsize=10)
        lower[0].set_ylabel("z →", fontsize=9)
        lower[0].set_xlabel("angle →", fontsize=9)
    surface = axes[-1, -1].images[0]
    scale = figure.colorbar(surface, ax=axes[-1], location="bottom", shrink=0.4, aspect=40, ticks=[0, 0.5, 1])
    scale.ax.set_xticklabels(["empty, or at the axis", "half of the radius", "at the rim"], fontsize=8)
    scale.set_label("radius of the outermost voxel", fontsize=9)
    explain_shift_lines(figure)
    figure.suptitle("A rotation about the vertical axis shifts the cylindrical image along the angle", fontsize=11)
    save(figure, path)
