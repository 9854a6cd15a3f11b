"""Whole networks, by name."""

from .inference import InferenceModel, for_inference
from .networks import Explanation, Model, Network, PlainNetwork, PolarNetwork, ScoreSum, SpatialNetwork
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
    "InferenceModel",
    "Model",
    "ModelConfig",
    "Network",
    "PlainNetwork",
    "PolarNetwork",
    "ScoreSum",
    "SpatialNetwork",
    "count_parameters",
    "create_model",
    "for_inference",
    "list_models",
    "list_options",
    "list_pretrained",
    "load_model",
    "save_weights",
]
