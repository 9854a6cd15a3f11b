"""Transformers: layers that resample images on a polar or cylindrical grid, or in a canonical pose.

Each has two steps that can be called separately: `locate` predicts the pose of each image, `sample` resamples the
image. `forward` does both.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..config import checked
from ..errors import InputError, check_choice
from ..geometry import (
    Mode,
    PaddingMode,
    PolarGrid,
    Similarity,
    check_options,
    coordinate_dtype,
    cylindrical_sample,
    disc_frame,
    fold_slices,
    polar_sample,
    similarity_warp,
)
from .origin import EvidencePredictor, Location, OriginJitter, OriginPredictor, default_predictor

Origin = Literal["center", "learned"]
Frame = Literal["disc"]


class PolarTransformer(nn.Module):
    """Resamples images on a polar grid around an origin: (N, C, H, W) -> (N, C, angles, radii).

    `PolarTransformer(grid)` samples around the centre of the image, `PolarTransformer(grid, predictor)` around the
    origin that `predictor` predicts, and `PolarTransformer(grid, origin="learned", in_chans=3)` around the origin
    that the paper's predictor predicts after training; see `default_predictor`.

    If the predicted origin of an image is not finite, its samples are NaN.

    Args:
        grid: the angles and radii to sample.
        predictor: predicts the origin of each image.
        origin: "center", the default without a predictor, or "learned".
        in_chans: channels of the images, for the default predictor.
        origin_jitter_px: in training, moves each origin by up to this many pixels along x and y.
        mode: interpolation, as in `polar_sample`.
        padding_mode: values outside the image, as in `polar_sample`.
        frame: "disc" adds a channel that is 1 inside the largest disc in the image and 0 outside (see
            `disc_frame`). A network can then use the place and size of centred, size-normalised objects. It is
            no longer invariant to shift and scale.
        antialias: average over the areas of the polar pixels, as in `polar_sample`.
    """

    @checked
    def __init__(
        self,
        grid: PolarGrid,
        predictor: OriginPredictor | EvidencePredictor | None = None,
        *,
        origin: Origin | None = None,
        in_chans: int | None = None,
        origin_jitter_px: float = 0.0,
        mode: Mode = "bilinear",
        padding_mode: PaddingMode = "zeros",
        frame: Frame | None = None,
        antialias: bool = False,
    ) -> None:
        super().__init__()
        check_options(mode, padding_mode)
        if frame is not None:
            check_choice("frame", frame, ("disc",))
        if origin is not None:
            check_choice("origin", origin, ("center", "learned"))
        if predictor is not None and (origin == "center" or in_chans is not None):
            raise InputError("the predictor determines the origin: leave out origin and in_chans, or the predictor")
        if predictor is None and (origin == "learned") != (in_chans is not None):
            raise InputError('the default predictor needs both origin="learned" and in_chans=...')
        if in_chans is not None:
            predictor = default_predictor(in_chans)
        self.grid = grid
        self.predictor = predictor
        self.jitter = OriginJitter(origin_jitter_px)
        self.mode: Mode = mode
        self.padding_mode: PaddingMode = padding_mode
        self.frame: Frame | None = frame
        self.antialias = antialias

    def locate(self, images: Tensor) -> Location:
        """Returns the origin of each image, without jitter, and its heatmap."""
        if self.predictor is not None:
            location: Location = self.predictor(images)
            return location
        dtype = coordinate_dtype(images)
        return Location(torch.zeros(images.shape[0], 2, dtype=dtype, device=images.device), None)

    def sample(self, images: Tensor, origin: Tensor) -> Tensor:
        """Returns the polar image around `origin`."""
        polar = _sample(polar_sample, self, images, origin, antialias=self.antialias)
        if self.frame is None:
            return polar
        frame = disc_frame(origin.to(coordinate_dtype(images)), self.grid, (images.shape[-2], images.shape[-1]))
        return torch.cat((polar, frame.to(polar.dtype)), dim=1)

    def forward(self, images: Tensor, origin: Tensor | None = None, *, guide: Tensor | None = None) -> Tensor:
        """Returns the polar image around `origin`, by default the predicted one or the centre.

        Args:
            guide: input of the predictor instead of `images`, such as normalized images.
        """
        if origin is None:
            predicted = self.locate(images if guide is None else guide).origin
            origin = self.jitter(predicted, (images.shape[-2], images.shape[-1]))
        return self.sample(images, origin)

    def extra_repr(self) -> str:
        origin = "center" if self.predictor is None else "learned"
        frame = f", frame={self.frame!r}" if self.frame else ""
        return f"{self.grid}, origin={origin!r}, mode={self.mode!r}, padding_mode={self.padding_mode!r}{frame}"


def _sample(
    function: Callable[..., Tensor], layer: PolarTransformer, images: Tensor, origin: Tensor, **options: Any
) -> Tensor:
    samples = function(images, origin, layer.grid, mode=layer.mode, padding_mode=layer.padding_mode, **options)
    if origin.is_cuda:  # where eager sampling may read an origin that is not finite as outside the image
        zero_or_nan = (origin - origin).detach().sum(dim=1).to(samples.dtype)
        samples = samples + zero_or_nan.view(-1, *(1,) * (samples.dim() - 1))
    return samples


class CylindricalTransformer(nn.Module):
    """Resamples volumes on a cylinder around a vertical axis: (N, C, X, Y, Z) -> (N, C, angles, radii, Z).

    A polar transformer over the z slices as channels, (N, C·Z, Y, X): all slices share one origin, the axis.
    Without a predictor the axis is at the centre. The options are those of `PolarTransformer`.

    Args:
        grid: angles and radii of the cylinder.
        predictor: predicts the axis; None for the centre.
        origin_jitter_px: in training, moves each axis by up to this many pixels along x and y.
        mode: as in `polar_sample`.
        padding_mode: as in `polar_sample`.
    """

    @checked
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
        self.polar = PolarTransformer(
            grid, predictor, origin_jitter_px=origin_jitter_px, mode=mode, padding_mode=padding_mode
        )

    def locate(self, volumes: Tensor) -> Location:
        """Returns the axis of each volume as (x, y), without jitter, and its heatmap."""
        return self.polar.locate(fold_slices(volumes))

    def sample(self, volumes: Tensor, axis_xy: Tensor) -> Tensor:
        """Returns the cylindrical image around `axis_xy`."""
        return _sample(cylindrical_sample, self.polar, volumes, axis_xy)

    def forward(self, volumes: Tensor, axis_xy: Tensor | None = None, *, guide: Tensor | None = None) -> Tensor:
        """Returns the cylindrical image around `axis_xy`, by default the predicted axis or the centre."""
        if axis_xy is None:
            predicted = self.locate(volumes if guide is None else guide).origin
            axis_xy = self.polar.jitter(predicted, (volumes.shape[3], volumes.shape[2]))
        return self.sample(volumes, axis_xy)


class SpatialTransformer(nn.Module):
    """Spatial transformer over SIM(2) (Jaderberg et al. 2015): (N, C, H, W) -> (N, C, H, W).

    Args:
        localiser: maps images to poses (N, 4): log-scale, rotation in radians, and the point (x, y) in [-1, 1] that
            is moved to the centre. Zero is the identity: initialise the last layer with zeros.
        mode: interpolation, as in `similarity_warp`.
        padding_mode: values outside the image, as in `similarity_warp`.
    """

    def __init__(
        self, localiser: nn.Module, *, mode: Mode = "bilinear", padding_mode: PaddingMode = "zeros"
    ) -> None:
        super().__init__()
        check_options(mode, padding_mode)
        self.localiser = localiser
        self.mode: Mode = mode
        self.padding_mode: PaddingMode = padding_mode

    def locate(self, images: Tensor) -> Tensor:
        """Returns the pose of each image, (N, 4)."""
        return self.localiser(images)

    def sample(self, images: Tensor, pose: Tensor) -> Tensor:
        """Returns `images` with (x, y) moved to the centre, then rotated and scaled."""
        log_scale, rotation, x, y = pose.to(coordinate_dtype(pose)).unbind(dim=1)
        shift = torch.stack((-x * (images.shape[-1] / 2), -y * (images.shape[-2] / 2)), dim=1)
        warp = Similarity(rotation, log_scale.exp()).compose(Similarity(shift_px=shift))
        return similarity_warp(images, warp, mode=self.mode, padding_mode=self.padding_mode)

    def forward(self, images: Tensor) -> Tensor:
        return self.sample(images, self.locate(images))
