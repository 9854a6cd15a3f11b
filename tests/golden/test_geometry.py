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


def add(name: str, function: Callable[..., Tensor], *inputs: Tensor, gradients: bool = False) -> None:
    """Add a case: the output of a function, and the gradients of a weighted sum of it with respect to `inputs`."""

    def case() -> list[Any]:
        leaves = [tensor.clone().requires_grad_(gradients) for tensor in inputs]
        tensors = [function(*leaves)]
        if gradients:
            weights = torch.cos(torch.arange(tensors[0].numel(), dtype=tensors[0].dtype))
            tensors += torch.autograd.grad(tensors[0], leaves, weights.reshape(tensors[0].shape))
        return [golden.measure(tensor) for tensor in tensors]

    GEOMETRY[name] = case


def sample_moved(images: Tensor, origin: Tensor, rotation: Tensor, scale: Tensor) -> Tensor:
    return ptn.polar_sample(images, origin, LOG, phase=rotation, dilation=scale)


def warp(images: Tensor, rotation: Tensor, scale: Tensor, shift_px: Tensor) -> Tensor:
    return ptn.similarity_warp(images, ptn.Similarity(rotation, scale, shift_px))


MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border")
for grid, mode, padding in itertools.product((LOG, LINEAR), MODES, PADDINGS):
    sample = partial(ptn.polar_sample, grid=grid, mode=mode, padding_mode=padding)
    add(f"polar_sample {grid.law} {mode} {padding}", sample, IMAGE, ORIGIN, gradients=True)
add("polar_sample phase and dilation", sample_moved, IMAGE, ORIGIN, ROTATION, SCALE, gradients=True)
add("polar_sample phase number", partial(ptn.polar_sample, grid=LOG, phase=math.pi / 3), IMAGE, ORIGIN)
add("polar_sample colour bounded", partial(ptn.polar_sample, grid=BOUNDED), COLOUR, ORIGIN)
add("polar_sample float64", partial(ptn.polar_sample, grid=LOG), IMAGE.double(), ORIGIN.double())
for grid in (LOG, LINEAR):
    unsample = partial(ptn.polar_unsample, grid=grid, size=(7, 9))
    add(f"polar_unsample {grid.law}", unsample, POLAR, ORIGIN, gradients=True)
unsample = partial(ptn.polar_unsample, grid=LOG, size=(9, 9), mode="bicubic", fill=0.5)
add("polar_unsample bicubic fill", unsample, POLAR, ORIGIN)
add("cylindrical_sample", partial(ptn.cylindrical_sample, grid=LINEAR), VOLUME, ORIGIN, gradients=True)
cylinder = partial(ptn.cylindrical_sample, grid=LOG, phase=ROTATION, mode="bicubic", padding_mode="border")
add("cylindrical_sample log phase", cylinder, VOLUME, ORIGIN)
add("similarity_warp", warp, IMAGE, ROTATION, SCALE, SHIFT, gradients=True)
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
    add(f"heatmap_centroid {activation}", centroid, 4 * IMAGE[:, 0] - 1.5, gradients=True)


@pytest.mark.parametrize("key", GEOMETRY)
def test_values_and_gradients_are_those_recorded(key: str) -> None:
    golden.check("geometry", key, GEOMETRY[key]())
