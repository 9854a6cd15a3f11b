"""Training photographs in another light: brightness, contrast, saturation, inverted, with a square cut out."""

import torch
from torch import Tensor

from ..errors import InputError

NUMBERS = 6
"""How many random numbers `recolour` takes for an image."""

_GREY = 0.5


def recolour(
    images: Tensor,
    noise: Tensor,
    *,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    invert: float = 0.0,
    cutout_px: int = 0,
) -> Tensor:
    """`images` (N, C, H, W) in [0, 1], each changed by random numbers of its own in [0, 1): `noise` (N, 6).

    A share `invert` of them is inverted; then the distance of colours from grey is multiplied by a factor of up to
    1 ± `saturation`, that of all pixels from their mean by up to 1 ± `contrast`, and up to ± `brightness` is added.
    At last a square of `cutout_px` pixels, whose middle is anywhere in the image, becomes grey. Values stay in
    [0, 1].
    """
    if images.dim() != 4 or noise.shape[1:] != (NUMBERS,):
        raise InputError(
            f"expected images (N, C, H, W) and noise (N, {NUMBERS}); got {images.shape}, {noise.shape}"
        )
    light, spread, colour, flip, right, down = noise.unbind(dim=1)
    if invert:
        images = torch.where((flip < invert)[:, None, None, None], 1 - images, images)
    if saturation and images.shape[1] == 3:
        red, green, blue = images.split(1, dim=1)
        grey = 0.299 * red + 0.587 * green + 0.114 * blue  # as bright as we see them, by Rec. 601
        images = grey + (images - grey) * _factor(colour, saturation)
    if contrast:
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        images = mean + (images - mean) * _factor(spread, contrast)
    if brightness:
        images = images + (2 * light - 1)[:, None, None, None] * brightness
    images = images.clamp(0, 1)
    if cutout_px:
        rows, columns = _within(down, images.shape[2], cutout_px), _within(right, images.shape[3], cutout_px)
        images = images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], _GREY)
    return images


def _factor(noise: Tensor, amount: float) -> Tensor:
    return (1 + (2 * noise - 1) * amount)[:, None, None, None]


def _within(noise: Tensor, size: int, width: int) -> Tensor:
    """Which of `size` pixels lie in a strip of `width` around a place anywhere among them: bool (N, size)."""
    first = torch.floor(noise * size)[:, None] - width // 2
    pixels = torch.arange(size, device=noise.device)
    return (pixels >= first) & (pixels < first + width)
