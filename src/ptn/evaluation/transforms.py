"""What an audit does to images: turns, scales, shifts; the same resampling without them; a disc to look through."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import geometry
from ..geometry import Mode, PaddingMode

# how far the bicubic kernel reaches, in pixels
_KERNEL_REACH = 2
# a disc has at least the middle pixel in it, or the middle four
_MIDDLE = 0.75


@dataclass(frozen=True)
class Similarity:
    """A turn by `degrees` about the middle, then `scale`, then a shift by (x, y) pixels."""

    degrees: float = 0.0
    scale: float = 1.0
    shift_px: tuple[float, float] = (0.0, 0.0)

    def warp(
        self,
        images: Tensor,
        *,
        size: tuple[int, int] | None = None,
        mode: Mode = "bicubic",
        padding_mode: PaddingMode = "zeros",
    ) -> Tensor:
        """Images or volumes transformed, (N, C, H, W) or (N, C, X, Y, Z); `size` is that of the result."""
        return geometry.similarity_warp(
            images,
            geometry.Similarity(math.radians(self.degrees), self.scale, self.shift_px),
            size=size,
            mode=mode,
            padding_mode=padding_mode,
        )

    def inverse(self) -> "Similarity":
        x, y = self.shift_px
        cos, sin = math.cos(math.radians(self.degrees)), math.sin(math.radians(self.degrees))
        back = ((-cos * x - sin * y) / self.scale, (sin * x - cos * y) / self.scale)
        return Similarity(-self.degrees, 1 / self.scale, back)

    def there_and_back(self, images: Tensor, *, mode: Mode = "bicubic") -> Tensor:
        """Images transformed, and the result transformed back: what resampling alone does to them.

        In between they lie on a canvas that holds all of them, so that nothing is cut off.
        """
        height, width = plane_size(images)
        cos, sin = abs(math.cos(math.radians(self.degrees))), abs(math.sin(math.radians(self.degrees)))
        x, y = map(abs, self.shift_px)
        wide = self.scale * (cos * width + sin * height) + 2 * x
        high = self.scale * (sin * width + cos * height) + 2 * y
        # the same margin on both sides keeps pixel centres where they were
        right, below = (
            max(0, math.ceil((needed - side) / 2)) + _KERNEL_REACH
            for needed, side in ((wide, width), (high, height))
        )
        canvas = (height + 2 * below, width + 2 * right)
        there = self.warp(images, size=canvas, mode=mode, padding_mode="border")
        return self.inverse().warp(there, size=(height, width), mode=mode, padding_mode="border")

    def resampling(self, size: tuple[int, int]) -> "Similarity":
        """The transform that resamples images of this size as this one does, with as little else as there is.

        A quarter turn of a square image, a half turn of any and a shift by whole pixels move pixels onto pixels:
        of θ what remains is θ mod 90° (180°). The identity, if nothing is resampled.
        """
        x, y = (0.0 if part.is_integer() and self.scale == 1 else part for part in map(float, self.shift_px))
        return replace(self, degrees=self.degrees % (90 if size[0] == size[1] else 180), shift_px=(x, y))


IDENTITY = Similarity()


def plane_size(images: Tensor) -> tuple[int, int]:
    """(height, width) of what is turned: of images (…, H, W), or of the z slices of volumes (…, X, Y, Z)."""
    if images.dim() == 5:
        return images.shape[3], images.shape[2]
    return images.shape[-2], images.shape[-1]


def disc(images: Tensor, *, share: float = 1.0) -> Tensor:
    """1 inside the largest disc in the image, 0 outside; it multiplies `images`. `share` is of its radius.

    What is in the disc stays in it, whole, when the image turns.
    """
    height, width = plane_size(images)
    y = torch.arange(height, device=images.device) - (height - 1) / 2
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    radius = max(share * (min(height, width) - 1) / 2, _MIDDLE)
    inside = torch.hypot(y[:, None], x[None, :]) <= radius
    return (inside.T[..., None] if images.dim() == 5 else inside).to(images.dtype)
