"""Whole networks, by name."""

from .hub import from_pretrained, push_to_hub, save_pretrained
from .networks import Explanation, Model, Network, PlainNetwork, PolarNetwork, ScoreSum, SpatialNetwork
from .polarize import PolarizedNetwork, polarize
from .zoo import (
    ModelConfig,
    count_parameters,
    create_model,
    list_models,
    list_options,
    list_pretrained,
    load_model,
    save_weights,
)

__all__ = [
    "Explanation",
    "Model",
    "ModelConfig",
    "Network",
    "PlainNetwork",
    "PolarNetwork",
    "PolarizedNetwork",
    "ScoreSum",
    "SpatialNetwork",
    "count_parameters",
    "create_model",
    "from_pretrained",
    "list_models",
    "list_options",
    "list_pretrained",
    "load_model",
    "polarize",
    "push_to_hub",
    "save_pretrained",
    "save_weights",
]
