"""Volumes as images: z slices among the channels, so that one transform serves them all."""

from torch import Tensor


def fold_slices(volumes: Tensor) -> Tensor:
    """Volumes as images with z among the channels: (N, C, X, Y, Z) -> (N, C·Z, Y, X)."""
    count, channels, width, height, depth = volumes.shape
    return volumes.permute(0, 1, 4, 3, 2).reshape(count, channels * depth, height, width)


def unfold_slices(polar: Tensor, channels: int) -> Tensor:
    """Polar images of folded slices as cylindrical images: (N, C·Z, angles, radii) -> (N, C, angles, radii, Z)."""
    return polar.unflatten(1, (channels, -1)).permute(0, 1, 3, 4, 2)
