"""Polar sampling, similarity warps and circular padding: pure functions of tensors."""

from .grid import MAX_PIXELS, GridPose, Law, PolarGrid, disc_frame, origin_px
from .registration import Registration, register
from .sample import (
    MODES,
    PADDING_MODES,
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_range,
    coordinate_dtype,
    cylindrical_sample,
    fold_slices,
    interpolate,
    polar_sample,
    polar_unsample,
)
from .similarity import Similarity, affine_warp, measure_shift, similarity_warp
from .wrap import wrap_angle, wrap_pad

__all__ = [
    "MAX_PIXELS",
    "MODES",
    "PADDING_MODES",
    "GridPose",
    "Law",
    "Mode",
    "PaddingMode",
    "PolarGrid",
    "Registration",
    "Similarity",
    "affine_warp",
    "check_images",
    "check_options",
    "check_range",
    "coordinate_dtype",
    "cylindrical_sample",
    "disc_frame",
    "fold_slices",
    "interpolate",
    "measure_shift",
    "origin_px",
    "polar_sample",
    "polar_unsample",
    "register",
    "similarity_warp",
    "wrap_angle",
    "wrap_pad",
]
