"""Augmentation: random similarity transforms, flips, dropout of pixels and color changes of a batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import check, check_options
from ..errors import InputError, check_choice
from ..geometry import MODES, PADDING_MODES, Mode, PaddingMode, Similarity, affine_warp, similarity_warp

Range = tuple[float, float]
UNCHANGED: Range = (1.0, 1.0)

_WARP_NOISE = 4
_ASPECT_NOISE = 2
_SHAPE_NOISE = 3
_COLOR_NOISE = 6
_GRAY = 0.5


@dataclass(frozen=True)
class AugmentSpec:
    """Options of `augment`. The defaults change nothing.

    Applied in this order:

    - `jitter`: the probability that a pixel or voxel is set to zero, in all channels at once.
    - `mirror`: flip along x with probability 1/2.
    - `z_scale`, `z_shift_px`: scale volumes along z, log-uniform in this range, and shift them along z, uniform up
      to ± this value.
    - `aspect`: stretch images along a random direction and shrink them across it by the same factor, which keeps
      areas. The ratio of both scales is log-uniform from 1 to this value. One interpolation with the next item.
    - `rotation_deg`, `scale`, `shift_px`: rotate (volumes about z) by up to ± `rotation_deg`, scale log-uniform in
      the range `scale`, shift along x and y by up to ± `shift_px`. `mode` and `padding_mode` are those of
      `similarity_warp`; `crop_px` is the side of the central crop of the result.
    - `invert`: the probability that an image is inverted.
    - `saturation`, `contrast`: scale the distance from gray, and from the image's mean, by 1 ± up to this value.
    - `brightness`: add up to ± this value, then clamp to [0, 1].
    - `cutout_px`: the side of a gray square centered anywhere in the image.
    """

    rotation_deg: float = 0.0
    scale: Range = UNCHANGED
    shift_px: float = 0.0
    aspect: float = 1.0
    mirror: bool = False
    z_scale: Range = UNCHANGED
    z_shift_px: float = 0.0
    jitter: float = 0.0
    mode: Mode = "bilinear"
    crop_px: int | None = None
    padding_mode: PaddingMode = "zeros"
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    invert: float = 0.0
    cutout_px: int = 0

    def __post_init__(self) -> None:
        check_options(AugmentSpec, vars(self), vars(self), "setting of augment")
        check_choice("mode", self.mode, MODES)
        check_choice("padding_mode", self.padding_mode, PADDING_MODES)
        for name in ("scale", "z_scale"):
            low, high = getattr(self, name)
            holds = 0.01 <= low <= high <= 100
            check(f"augment.{name}", (low, high), holds, "two positive numbers in order, from 0.01 to 100")
        for name, largest in {"rotation_deg": 360, "shift_px": 4096, "z_shift_px": 4096}.items():
            check(
                f"augment.{name}", getattr(self, name), 0 <= getattr(self, name) <= largest, f"from 0 to {largest}"
            )
        check("augment.aspect", self.aspect, 1 <= self.aspect <= 100, "from 1 to 100")
        for name in ("brightness", "contrast", "saturation", "invert"):
            check(f"augment.{name}", getattr(self, name), 0 <= getattr(self, name) <= 1, "from 0 to 1")
        check("augment.jitter", self.jitter, 0 <= self.jitter < 1, "at least 0 and less than 1")
        check("augment.crop_px", self.crop_px, self.crop_px is None or self.crop_px > 0, "positive or None")
        check("augment.cutout_px", self.cutout_px, self.cutout_px >= 0, "at least 0")

    @property
    def active(self) -> bool:
        """True if any option changes images."""
        return self != AugmentSpec(mode=self.mode, padding_mode=self.padding_mode)


def noise_per_image(shape: Sequence[int], spec: AugmentSpec) -> int:
    """Number of uniform random numbers that `augment` consumes for one image of `shape` (C, ...)."""
    count = _warp_noise(spec) + _SHAPE_NOISE * _changes_shape(spec) + _COLOR_NOISE * _changes_color(spec)
    return count + (math.prod(shape[1:]) if spec.jitter else 0)


def augment(images: Tensor, noise: Tensor, spec: AugmentSpec) -> Tensor:
    """Augment each image by its own random numbers.

    Args:
        images: (N, C, H, W) in [0, 1], or volumes (N, C, X, Y, Z).
        noise: (N, noise_per_image(images.shape[1:], spec)), uniform in [0, 1); the only source of randomness.
    """
    color_noise = _COLOR_NOISE * _changes_color(spec)
    geometry, color = noise.split((noise.shape[1] - color_noise, color_noise), dim=1)
    warp, shape = geometry[:, : _warp_noise(spec)], geometry[:, _warp_noise(spec) :]
    if _changes_shape(spec):
        images = _change_shape(images, shape, spec)
    images = _warp(images, warp, spec)
    return _change_color(images, color, spec) if color_noise else images


def _warp_noise(spec: AugmentSpec) -> int:
    return _WARP_NOISE + _ASPECT_NOISE * (spec.aspect != 1)


def _changes_shape(spec: AugmentSpec) -> bool:
    return any((spec.mirror, spec.z_scale != UNCHANGED, spec.z_shift_px, spec.jitter))


def _changes_color(spec: AugmentSpec) -> bool:
    return any((spec.brightness, spec.contrast, spec.saturation, spec.invert, spec.cutout_px))


def _change_shape(images: Tensor, noise: Tensor, spec: AugmentSpec) -> Tensor:
    """Apply `jitter`, `mirror`, `z_scale` and `z_shift_px`."""
    flip, scale, shift = noise[:, :_SHAPE_NOISE].unbind(dim=1)
    if spec.jitter:
        kept = noise[:, _SHAPE_NOISE:].view(len(images), 1, *images.shape[2:]) >= spec.jitter
        images = images * kept
    if spec.mirror:
        x_axis = 2 if images.dim() == 5 else 3
        flipped = (flip < 0.5).view(-1, *(1,) * (images.dim() - 1))
        images = torch.where(flipped, images.flip(x_axis), images)
    if spec.z_scale != UNCHANGED or spec.z_shift_px:
        if images.dim() != 5:
            raise InputError(f"augment.z_scale and z_shift_px are for volumes; got shape {tuple(images.shape)}")
        shift_px = (2 * shift - 1) * spec.z_shift_px
        images = _resample_last(images, _log_uniform(spec.z_scale, scale), shift_px)
    return images


def _warp(images: Tensor, noise: Tensor, spec: AugmentSpec) -> Tensor:
    """Apply `aspect`, `rotation_deg`, `scale` and `shift_px` with one interpolation."""
    rotation, scale, x, y = noise[:, :_WARP_NOISE].unbind(dim=1)
    pose = Similarity(
        rotation=(2 * rotation - 1) * math.radians(spec.rotation_deg),
        scale=_log_uniform(spec.scale, scale),
        shift_px=torch.stack((2 * x - 1, 2 * y - 1), dim=1) * spec.shift_px,
    )
    size = None if spec.crop_px is None else (spec.crop_px, spec.crop_px)
    if spec.aspect == 1:
        return similarity_warp(images, pose, size=size, mode=spec.mode, padding_mode=spec.padding_mode)
    if images.dim() != 4:
        raise InputError(f"augment.aspect is for images (N, C, H, W); got shape {tuple(images.shape)}")
    direction, amount = noise[:, _WARP_NOISE:, None].unbind(dim=1)
    cos, sin = torch.cos(math.pi * direction), torch.sin(math.pi * direction)
    # the inverse of the stretch, k·I + (1/k - k)·d·dᵀ with the direction d, after the inverse of the pose
    k = _log_uniform((1.0, math.sqrt(spec.aspect)), amount)
    x, y = pose.inverse().matrix().unbind(dim=1)
    along = (1 / k - k) * (cos * x + sin * y)
    matrix = torch.stack((k * x + along * cos, k * y + along * sin), dim=1)
    return affine_warp(images, matrix, size=size, mode=spec.mode, padding_mode=spec.padding_mode)


def _log_uniform(limits: Range, noise: Tensor) -> Tensor:
    low, high = (math.log(factor) for factor in limits)
    return torch.exp(low + noise * (high - low))


def _resample_last(images: Tensor, scale: Tensor, shift_px: Tensor) -> Tensor:
    """Map position p, measured from the middle of the last axis, linearly to scale·p + shift_px; zeros outside."""
    position = torch.arange(images.shape[-1], dtype=scale.dtype, device=images.device)
    middle = (len(position) - 1) / 2
    source = (position - middle - shift_px[:, None]) / scale[:, None] + middle
    weights = (1 - (source[:, :, None] - position).abs()).clamp(min=0).to(images.dtype)  # (N, out, in)
    return (images.flatten(1, -2) @ weights.mT).view_as(images)


def _change_color(images: Tensor, noise: Tensor, spec: AugmentSpec) -> Tensor:
    """Apply `invert`, `saturation`, `contrast`, `brightness` and `cutout_px`."""
    if images.dim() != 4:
        raise InputError(f"color augmentation is for images (N, C, H, W); got shape {tuple(images.shape)}")
    brightness, contrast, saturation, invert, x, y = noise.unbind(dim=1)
    if spec.invert:
        images = torch.where((invert < spec.invert)[:, None, None, None], 1 - images, images)
    if spec.saturation and images.shape[1] == 3:
        red, green, blue = images.split(1, dim=1)
        gray = 0.299 * red + 0.587 * green + 0.114 * blue  # luma of Rec. 601
        images = gray + (images - gray) * _factor(saturation, spec.saturation)
    if spec.contrast:
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        images = mean + (images - mean) * _factor(contrast, spec.contrast)
    if spec.brightness:
        images = images + (2 * brightness - 1)[:, None, None, None] * spec.brightness
    images = images.clamp(0, 1)
    if spec.cutout_px:
        rows = _interval(y, images.shape[2], spec.cutout_px)
        columns = _interval(x, images.shape[3], spec.cutout_px)
        images = images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], _GRAY)
    return images


def _factor(noise: Tensor, amount: float) -> Tensor:
    return (1 + (2 * noise - 1) * amount)[:, None, None, None]


def _interval(noise: Tensor, size: int, width: int) -> Tensor:
    """Mask (N, size) of an interval of `width` pixels centered at noise·size."""
    first = torch.floor(noise * size)[:, None] - width // 2
    pixels = torch.arange(size, device=noise.device)
    return (pixels >= first) & (pixels < first + width)
