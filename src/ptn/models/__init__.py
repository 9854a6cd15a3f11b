"""Whole networks, by name."""

from .export import Exported, export_onnx, export_torch
from .hub import from_pretrained, push_to_hub, save_pretrained
from .inference import InferenceModel, for_inference
from .networks import Explanation, Model, Network, PlainNetwork, PolarNetwork, ScoreSum, SpatialNetwork
from .onnx_model import OnnxModel
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
    "Exported",
    "InferenceModel",
    "Model",
    "ModelConfig",
    "Network",
    "OnnxModel",
    "PlainNetwork",
    "PolarNetwork",
    "PolarizedNetwork",
    "ScoreSum",
    "SpatialNetwork",
    "count_parameters",
    "create_model",
    "export_onnx",
    "export_torch",
    "for_inference",
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
