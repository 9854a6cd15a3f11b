"""Whole networks, by name."""

from .export import Exported, export_onnx, export_torch
from .inference import InferenceModel, for_inference
from .networks import Explanation, Model, Network, PlainNetwork, PolarNetwork, ScoreSum, SpatialNetwork
from .onnx_model import OnnxModel
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
    "ScoreSum",
    "SpatialNetwork",
    "count_parameters",
    "create_model",
    "export_onnx",
    "export_torch",
    "for_inference",
    "list_models",
    "list_options",
    "list_pretrained",
    "load_model",
    "save_weights",
]
