"""Training images turned, scaled and moved at random: batched, on their own device, from given random numbers."""

import math

import torch
from torch import Tensor

from ..geometry import similarity_warp
from ..geometry.interpolate import Interpolation

NOISE_PER_IMAGE = 4


def augment(
    images: Tensor,
    noise: Tensor,
    *,
    rotation_deg: float = 0.0,
    scale: tuple[float, float] = (1.0, 1.0),
    shift_px: float = 0.0,
    interpolation: Interpolation = "bilinear",
) -> Tensor:
    """`images` (N, C, H, W) or volumes (N, C, X, Y, Z), each warped by a random similarity of its own.

    Turned by up to `rotation_deg` either way, scaled between the two of `scale` evenly in the logarithm, moved by
    up to `shift_px` along x and y. `noise` (N, 4), uniform in [0, 1), is all the randomness there is.
    """
    turn, size, right, down = noise.unbind(dim=1)
    smallest, largest = (math.log(factor) for factor in scale)
    return similarity_warp(
        images,
        rotation=(2 * turn - 1) * math.radians(rotation_deg),
        scale=torch.exp(smallest + size * (largest - smallest)),
        shift_px=torch.stack((2 * right - 1, 2 * down - 1), dim=1) * shift_px,
        interpolation=interpolation,
    )
