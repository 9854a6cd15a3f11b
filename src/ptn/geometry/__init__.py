"""Polar sampling, similarity warps and angular padding: pure functions of tensors."""

from .grid import Law, PolarGrid
from .interpolate import (
    MODES,
    PADDING_MODES,
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_size,
    coordinate_dtype,
    interpolate,
    runs_eagerly,
)
from .sample import cylindrical_sample, origin_px, polar_sample, polar_unsample
from .shift import measure_shift
from .similarity import Similarity, similarity_warp
from .slices import fold_slices, unfold_slices
from .wrap import wrap_angle, wrap_pad

__all__ = [
    "MODES",
    "PADDING_MODES",
    "Law",
    "Mode",
    "PaddingMode",
    "PolarGrid",
    "Similarity",
    "check_images",
    "check_options",
    "check_size",
    "coordinate_dtype",
    "cylindrical_sample",
    "fold_slices",
    "interpolate",
    "measure_shift",
    "origin_px",
    "polar_sample",
    "polar_unsample",
    "runs_eagerly",
    "similarity_warp",
    "unfold_slices",
    "wrap_angle",
    "wrap_pad",
]
