"""Training images turned, scaled and moved at random: batched, on their own device, from given random numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..geometry import Warp, similarity_warp
from ..geometry.interpolate import Mode

Range = tuple[float, float]
UNCHANGED: Range = (1.0, 1.0)


def noise_per_image(
    shape: Sequence[int],
    *,
    mirror: bool = False,
    stretch: Range = UNCHANGED,
    z_scale: Range = UNCHANGED,
    z_shift_px: float = 0.0,
    jitter: float = 0.0,
) -> int:
    """How many random numbers `augment` takes for an image of `shape` (C, …) with these options."""
    more = mirror or (stretch, z_scale) != (UNCHANGED, UNCHANGED) or z_shift_px != 0 or jitter != 0
    return 4 + 3 * more + (math.prod(shape[1:]) if jitter else 0)


def augment(
    images: Tensor,
    noise: Tensor,
    *,
    rotation_deg: float = 0.0,
    scale: Range = UNCHANGED,
    shift_px: float = 0.0,
    mode: Mode = "bilinear",
    **disturbances: Any,
) -> Tensor:
    """`images` (N, C, H, W) or volumes (N, C, X, Y, Z), each changed by random numbers of its own.

    First disturbed (see `disturb`), then turned, scaled and moved (see `draw_warp`). All the randomness there is
    comes from `noise` (N, `noise_per_image`), uniform in [0, 1).
    """
    disturbed = disturb(images, noise, **disturbances)
    warp = draw_warp(noise, rotation_deg=rotation_deg, scale=scale, shift_px=shift_px)
    return similarity_warp(disturbed, **warp._asdict(), mode=mode)


def draw_warp(noise: Tensor, *, rotation_deg: float = 0.0, scale: Range = UNCHANGED, shift_px: float = 0.0) -> Warp:
    """A turn (of volumes about z) by up to `rotation_deg` either way, a scale along x and y between the two of
    `scale`, evenly in the logarithm, and a shift by up to `shift_px` along both."""
    turn, size, right, down = noise[:, :4].unbind(dim=1)
    return Warp(
        rotation=(2 * turn - 1) * math.radians(rotation_deg),
        scale=_between(scale, size),
        shift_px=torch.stack((2 * right - 1, 2 * down - 1), dim=1) * shift_px,
    )


def disturb(
    images: Tensor,
    noise: Tensor,
    *,
    mirror: bool = False,
    stretch: Range = UNCHANGED,
    z_scale: Range = UNCHANGED,
    z_shift_px: float = 0.0,
    jitter: float = 0.0,
) -> Tensor:
    """What comes before the warp.

    Every pixel or voxel is left out with probability `jitter`, in all channels at once; every other image is a
    `mirror` image, -x for x. Images are scaled along x alone between the two of `stretch`, volumes along z between
    the two of `z_scale`, both evenly in the logarithm, and volumes are moved along z by up to `z_shift_px`.
    """
    if noise.shape[1] == 4:
        return images
    flip, depth, up = noise[:, 4:7].unbind(dim=1)
    if jitter:
        kept = noise[:, 7:].view(len(images), 1, *images.shape[2:]) >= jitter
        images = images * kept
    if mirror:
        x_axis = 2 if images.dim() == 5 else 3
        images = torch.where(_per_image(flip < 0.5, images), images.flip(x_axis), images)
    if stretch != UNCHANGED:
        images = _stretch(images, _between(stretch, depth))
    if z_scale != UNCHANGED or z_shift_px:
        images = _warp_z(images, _between(z_scale, depth), (2 * up - 1) * z_shift_px)
    return images


def _between(limits: Range, noise: Tensor) -> Tensor:
    """A factor between the two of `limits`, evenly in the logarithm."""
    smallest, largest = (math.log(factor) for factor in limits)
    return torch.exp(smallest + noise * (largest - smallest))


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.view(-1, *(1,) * (images.dim() - 1))


def _stretch(images: Tensor, scale: Tensor) -> Tensor:
    """Images (N, C, H, W) with what is at x from the middle brought to scale·x, by cubic convolution."""
    if images.dim() != 4:
        raise InputError(f"only images can be stretched along x alone; got shape {tuple(images.shape)}")
    return _along_last(images, scale, torch.zeros_like(scale), _cubic)


def _warp_z(volumes: Tensor, scale: Tensor, shift_px: Tensor) -> Tensor:
    """Volumes (N, C, X, Y, Z) with what is at z from the middle brought to scale·z + shift_px, linearly."""
    if volumes.dim() != 5:
        raise InputError(f"only volumes can be scaled and moved along z; got shape {tuple(volumes.shape)}")
    return _along_last(volumes, scale, shift_px, _tent)


def _along_last(images: Tensor, scale: Tensor, shift_px: Tensor, kernel: Callable[[Tensor], Tensor]) -> Tensor:
    """`images` resampled along their last axis, each by a matrix: nothing lies beyond them."""
    place = torch.arange(images.shape[-1], dtype=scale.dtype, device=images.device)
    middle = (len(place) - 1) / 2
    source = (place - middle - shift_px[:, None]) / scale[:, None] + middle
    # row w of a sample's matrix has the shares of the input's pixels in the output's pixel w
    shares = kernel((source[:, :, None] - place).abs()).to(images.dtype)
    return (images.flatten(1, -2) @ shares.mT).view_as(images)


def _tent(distance: Tensor) -> Tensor:
    return (1 - distance).clamp(min=0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -0.75, that of bicubic interpolation in torch."""
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
