"""Where pixels come from: pure functions of tensors, no parameters."""

from .frame import PolarFrame, frame_before_warp
from .grid import PolarGrid
from .sample import cylindrical_sample, origin_px, polar_sample, polar_unsample
from .shift import measure_shift
from .similarity import similarity_warp
from .slices import fold_slices, unfold_slices
from .wrap import wrap_angle, wrap_pad

__all__ = [
    "PolarFrame",
    "PolarGrid",
    "cylindrical_sample",
    "fold_slices",
    "frame_before_warp",
    "measure_shift",
    "origin_px",
    "polar_sample",
    "polar_unsample",
    "similarity_warp",
    "unfold_slices",
    "wrap_angle",
    "wrap_pad",
]
