"""Layers: convolutions that wrap around the angle, origin predictors and transformers."""

from .conv import (
    Blocks,
    ChannelDropout,
    ConvBlock,
    RandomLayer,
    ResidualBlock,
    WrapConv2d,
    WrapConv3d,
    fuse_blocks,
    make_conv,
    mean_response,
    random_layers,
)
from .origin import (
    EvidencePredictor,
    Heatmap,
    HeatmapActivation,
    Location,
    OriginJitter,
    OriginPredictor,
    default_predictor,
    heatmap_centroid,
    normalize_heatmap,
)
from .transformers import CylindricalTransformer, Frame, PolarTransformer, SpatialTransformer

__all__ = [
    "Blocks",
    "ChannelDropout",
    "ConvBlock",
    "CylindricalTransformer",
    "EvidencePredictor",
    "Frame",
    "Heatmap",
    "HeatmapActivation",
    "Location",
    "OriginJitter",
    "OriginPredictor",
    "PolarTransformer",
    "RandomLayer",
    "ResidualBlock",
    "SpatialTransformer",
    "WrapConv2d",
    "WrapConv3d",
    "default_predictor",
    "fuse_blocks",
    "heatmap_centroid",
    "make_conv",
    "mean_response",
    "normalize_heatmap",
    "random_layers",
]
