"""Where parameters meet geometry."""

from .blocks import ChannelDropout, ConvBlock, ResidualBlock, WrapConv2d, WrapConv3d, make_conv
from .noise import RandomLayer, random_layers
from .origin import Location, OriginJitter, OriginPredictor, activate_heatmap, centroid, heatmap_centroid
from .transformers import CylindricalTransformer, PolarTransformer, SpatialTransformer

__all__ = [
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
    "WrapConv2d",
    "WrapConv3d",
    "activate_heatmap",
    "centroid",
    "heatmap_centroid",
    "make_conv",
    "random_layers",
]
