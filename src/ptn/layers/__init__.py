"""Where parameters meet geometry."""

from .blocks import (
    Blocks,
    ChannelDropout,
    ConvBlock,
    ResidualBlock,
    WrapConv2d,
    WrapConv3d,
    fuse_blocks,
    make_conv,
)
from .noise import RandomLayer, StreamDropout, random_layers
from .origin import Location, OriginJitter, OriginPredictor, activate_heatmap, centroid, heatmap_centroid
from .transformers import CylindricalTransformer, PolarTransformer, SpatialTransformer

__all__ = [
    "Blocks",
    "ChannelDropout",
    "ConvBlock",
    "CylindricalTransformer",
    "Location",
    "OriginJitter",
    "OriginPredictor",
    "PolarTransformer",
    "RandomLayer",
    "ResidualBlock",
    "SpatialTransformer",
    "StreamDropout",
    "WrapConv2d",
    "WrapConv3d",
    "activate_heatmap",
    "centroid",
    "fuse_blocks",
    "heatmap_centroid",
    "make_conv",
    "random_layers",
]
