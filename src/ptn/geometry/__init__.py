"""Polar sampling, similarity warps and circular padding: pure functions of tensors."""

from .grid import Law, PolarGrid, origin_px
from .sample import (
    MODES,
    PADDING_MODES,
    Backend,
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_range,
    check_size,
    coordinate_dtype,
    cylindrical_sample,
    fold_slices,
    interpolate,
    polar_sample,
    polar_unsample,
    runs_eagerly,
    unfold_slices,
)
from .similarity import Similarity, measure_shift, similarity_warp
from .wrap import wrap_angle, wrap_pad

__all__ = [
    "MODES",
    "PADDING_MODES",
    "Backend",
    "Law",
    "Mode",
    "PaddingMode",
    "PolarGrid",
    "Similarity",
    "check_images",
    "check_options",
    "check_range",
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
