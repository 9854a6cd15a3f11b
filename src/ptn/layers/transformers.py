"""Image in, canonical image out: the polar, cylindrical and spatial transformers.

Each has two halves that a network can call apart: `locate` says where the object is, `sample` resamples the
image accordingly. `forward` does both.
"""

import torch
from torch import Tensor, nn

from ..geometry import (
    PolarGrid,
    Warp,
    cylindrical_sample,
    fold_slices,
    frame_before_warp,
    polar_sample,
    similarity_warp,
)
from ..geometry.grid import Law
from ..geometry.interpolate import Mode, PaddingMode, check_options, coordinate_dtype
from .origin import Location, OriginJitter, OriginPredictor


class PolarTransformer(nn.Module):
    """Images resampled on a polar grid around their origin: (N, C, H, W) -> (N, C, angles, radii).

    The origin is what `predictor` says, the middle of the image without one, or what the caller gives.
    """

    def __init__(
        self,
        grid: PolarGrid,
        predictor: OriginPredictor | None = None,
        *,
        origin_jitter_px: float = 0.0,
        mode: Mode = "bilinear",
        padding_mode: PaddingMode = "zeros",
    ) -> None:
        super().__init__()
        check_options(mode, padding_mode)
        self.grid = grid
        self.predictor = predictor
        self.jitter = OriginJitter(origin_jitter_px)
        self.mode: Mode = mode
        self.padding_mode: PaddingMode = padding_mode

    def locate(self, images: Tensor) -> Location:
        """The origin of each image, without jitter, and its heatmap."""
        if self.predictor is not None:
            location: Location = self.predictor(images)
            return location
        dtype = coordinate_dtype(images)
        return Location(torch.zeros(images.shape[0], 2, dtype=dtype, device=images.device), None)

    def sample(
        self,
        images: Tensor,
        origin: Tensor,
        *,
        phase: Tensor | float = 0.0,
        dilation: Tensor | float = 1.0,
        check_finite: bool = True,
    ) -> Tensor:
        """The polar image around `origin`."""
        return polar_sample(
            images,
            origin,
            self.grid,
            phase=phase,
            dilation=dilation,
            mode=self.mode,
            padding_mode=self.padding_mode,
            check_finite=check_finite,
        )

    def forward(
        self,
        images: Tensor,
        origin: Tensor | None = None,
        *,
        guide: Tensor | None = None,
        warp: Warp | None = None,
    ) -> Tensor:
        """`guide` is what the predictor looks at if not the images themselves: a normalised copy, say.

        With `warp` it is that of the images warped, and the result is that of the images warped, read from the
        images themselves: one interpolation instead of two.
        """
        if origin is not None:
            return self.sample(images, origin)
        size = (images.shape[-2], images.shape[-1])
        predicted = self.locate(images if guide is None else guide).origin
        moved = self.jitter(predicted, size)
        if warp is None:
            return self.sample(images, moved, check_finite=False)
        frame = frame_before_warp(moved, size, **warp._asdict())
        return self.sample(images, **frame._asdict(), check_finite=False)


class CylindricalTransformer(nn.Module):
    """Volumes resampled on a cylinder around a vertical axis: (N, C, X, Y, Z) -> (N, C, angles, radii, Z).

    A polar transformer over the slices as channels (N, C·Z, Y, X), so that all share one origin: the axis. By
    default the radius is linear and reaches half the `width` of the volume.
    """

    def __init__(
        self,
        width: int,
        predictor: OriginPredictor | None = None,
        *,
        angles: int | None = None,
        radii: int | None = None,
        law: Law = "linear",
        r_max_px: float | None = None,
        origin_jitter_px: float = 0.0,
        mode: Mode = "bilinear",
        padding_mode: PaddingMode = "zeros",
    ) -> None:
        super().__init__()
        grid = PolarGrid(
            width if angles is None else angles,
            width if radii is None else radii,
            r_max_px=width / 2 if r_max_px is None else r_max_px,
            law=law,
        )
        self.polar = PolarTransformer(
            grid,
            predictor,
            origin_jitter_px=origin_jitter_px,
            mode=mode,
            padding_mode=padding_mode,
        )

    def locate(self, volumes: Tensor) -> Location:
        """The axis of each volume as (x, y), without jitter, and its heatmap."""
        return self.polar.locate(fold_slices(volumes))

    def sample(self, volumes: Tensor, axis_xy: Tensor, *, check_finite: bool = True) -> Tensor:
        """The cylindrical image around `axis_xy`."""
        return cylindrical_sample(
            volumes,
            axis_xy,
            self.polar.grid,
            mode=self.polar.mode,
            padding_mode=self.polar.padding_mode,
            check_finite=check_finite,
        )

    def forward(self, volumes: Tensor, axis_xy: Tensor | None = None, *, guide: Tensor | None = None) -> Tensor:
        if axis_xy is not None:
            return self.sample(volumes, axis_xy)
        predicted = self.locate(volumes if guide is None else guide).origin
        moved = self.polar.jitter(predicted, (volumes.shape[3], volumes.shape[2]))
        return self.sample(volumes, moved, check_finite=False)


class SpatialTransformer(nn.Module):
    """Images brought upright, to size and to the middle by a regressed SIM(2) transform (Jaderberg et al. 2015).

    (N, C, H, W) -> (N, C, H, W). `localiser` maps images to (N, 4): log-scale, rotation in radians, and the
    point (x, y) in [-1, 1] that is brought to the middle. Zero is the identity; a localiser whose last layer
    starts at zero starts there.
    """

    def __init__(
        self,
        localiser: nn.Module,
        *,
        mode: Mode = "bilinear",
        padding_mode: PaddingMode = "zeros",
    ) -> None:
        super().__init__()
        check_options(mode, padding_mode)
        self.localiser = localiser
        self.mode: Mode = mode
        self.padding_mode: PaddingMode = padding_mode

    def locate(self, images: Tensor) -> Tensor:
        """The pose of each image (N, 4)."""
        return self.localiser(images)

    def sample(self, images: Tensor, pose: Tensor) -> Tensor:
        """`images` with the pose undone."""
        log_scale, rotation, x, y = pose.to(coordinate_dtype(pose)).unbind(dim=1)
        scale = log_scale.exp()
        x, y = x * (images.shape[-1] / 2), y * (images.shape[-2] / 2)
        cos, sin = scale * torch.cos(rotation), scale * torch.sin(rotation)
        shift = torch.stack((sin * y - cos * x, -sin * x - cos * y), dim=1)
        return similarity_warp(
            images,
            rotation=rotation,
            scale=scale,
            shift_px=shift,
            mode=self.mode,
            padding_mode=self.padding_mode,
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.sample(images, self.locate(images))
