"""Values and gradients of the geometric functions on small fixed inputs."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import golden
import ptn

IMAGE = golden.fixed_images((1, 9, 13), count=2)
COLOUR = golden.fixed_images((3, 8, 8), count=2, seed=1)
VOLUME = golden.fixed_images((1, 7, 6, 3), count=2, seed=2)
POLAR = golden.fixed_images((1, 8, 5), count=2, seed=3)
ORIGIN = torch.tensor([[0.0, 0.0], [0.3, -0.45]])
ROTATION, SCALE = torch.tensor([0.4, -2.0]), torch.tensor([0.7, 1.3])
SHIFT = torch.tensor([[1.5, -0.5], [0.0, 2.0]])
LOG, LINEAR = ptn.PolarGrid(8, 5), ptn.PolarGrid(8, 5, law="linear")
BOUNDED = ptn.PolarGrid(6, 4, r_min_px=0.5, r_max_px=3.5)

GEOMETRY: dict[str, Callable[[], list[Any]]] = {}
CASES: golden.Cases = {"geometry": GEOMETRY}


def add(name: str, function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Add a case: the output of a function for `inputs`."""
    GEOMETRY[name] = lambda: [golden.measure(function(*inputs))]


def add_with_gradients(name: str, function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Add a case: the output of a function, and the gradients of a weighted sum of it with respect to `inputs`."""

    def measure() -> list[Any]:
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = function(*leaves)
        weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).reshape(out.shape)
        return [golden.measure(tensor) for tensor in (out, *torch.autograd.grad(out, leaves, weights))]

    GEOMETRY[name] = measure


def sample_moved(images: Tensor, origin: Tensor, rotation: Tensor, scale: Tensor) -> Tensor:
    return ptn.polar_sample(images, origin, LOG, phase=rotation, dilation=scale)


def warp(images: Tensor, rotation: Tensor, scale: Tensor, shift_px: Tensor) -> Tensor:
    return ptn.similarity_warp(images, ptn.Similarity(rotation, scale, shift_px))


for grid, mode, padding in itertools.product(
    (LOG, LINEAR), ("bilinear", "nearest", "bicubic"), ("zeros", "border")
):
    sample = partial(ptn.polar_sample, grid=grid, mode=mode, padding_mode=padding)
    add_with_gradients(f"polar_sample {grid.law} {mode} {padding}", sample, IMAGE, ORIGIN)
add_with_gradients("polar_sample phase and dilation", sample_moved, IMAGE, ORIGIN, ROTATION, SCALE)
add("polar_sample phase number", partial(ptn.polar_sample, grid=LOG, phase=math.pi / 3), IMAGE, ORIGIN)
add("polar_sample colour bounded", partial(ptn.polar_sample, grid=BOUNDED), COLOUR, ORIGIN)
add("polar_sample float64", partial(ptn.polar_sample, grid=LOG), IMAGE.double(), ORIGIN.double())
for grid in (LOG, LINEAR):
    unsample = partial(ptn.polar_unsample, grid=grid, size=(7, 9))
    add_with_gradients(f"polar_unsample {grid.law}", unsample, POLAR, ORIGIN)
unsample = partial(ptn.polar_unsample, grid=LOG, size=(9, 9), mode="bicubic", fill=0.5)
add("polar_unsample bicubic fill", unsample, POLAR, ORIGIN)
add_with_gradients("cylindrical_sample", partial(ptn.cylindrical_sample, grid=LINEAR), VOLUME, ORIGIN)
cylinder = partial(ptn.cylindrical_sample, grid=LOG, phase=ROTATION, mode="bicubic", padding_mode="border")
add("cylindrical_sample log phase", cylinder, VOLUME, ORIGIN)
add_with_gradients("similarity_warp", warp, IMAGE, ROTATION, SCALE, SHIFT)
enlarge = partial(ptn.similarity_warp, pose=ptn.Similarity(rotation=0.5, scale=1.5), size=(6, 7))
add("similarity_warp size bicubic border", partial(enlarge, mode="bicubic", padding_mode="border"), COLOUR)
rotate = partial(ptn.similarity_warp, pose=ptn.Similarity(rotation=ROTATION), mode="nearest")
add("similarity_warp nearest", rotate, IMAGE)
move = partial(ptn.similarity_warp, pose=ptn.Similarity(rotation=ROTATION, shift_px=SHIFT))
add("similarity_warp volume", move, VOLUME)
add("wrap_pad", partial(ptn.wrap_pad, pad=2), POLAR)
add("wrap_pad uneven", partial(ptn.wrap_pad, pad=((9, 1), (0, 2))), POLAR)
add("wrap_pad volume", partial(ptn.wrap_pad, pad=(1, 2, (0, 1))), VOLUME)
for activation in ("softplus", "linear"):
    centroid = partial(ptn.heatmap_centroid, activation=activation)
    add_with_gradients(f"heatmap_centroid {activation}", centroid, 4 * IMAGE[:, 0] - 1.5)


@pytest.mark.parametrize("key", GEOMETRY)
def test_values_and_gradients_are_those_recorded(key: str) -> None:
    golden.check("geometry", key, GEOMETRY[key]())
