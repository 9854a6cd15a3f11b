"""Networks by name: building, loading, saving, exporting and polarizing."""

from .export import OnnxModel, export, push_to_hub, save_pretrained
from .inference import InferenceModel, for_inference, prepare_for_inference
from .networks import (
    Ensemble,
    Explanation,
    Model,
    ModelConfig,
    Network,
    PlainNetwork,
    PolarNetwork,
    SpatialNetwork,
    inferring,
)
from .polarize import PolarizedNetwork, polarize
from .segmenter import PolarSegmenter
from .zoo import (
    count_parameters,
    create_model,
    list_models,
    list_options,
    list_pretrained,
    load_model,
    save_weights,
)

__all__ = [
    "Ensemble",
    "Explanation",
    "InferenceModel",
    "Model",
    "ModelConfig",
    "Network",
    "OnnxModel",
    "PlainNetwork",
    "PolarNetwork",
    "PolarSegmenter",
    "PolarizedNetwork",
    "SpatialNetwork",
    "count_parameters",
    "create_model",
    "export",
    "for_inference",
    "inferring",
    "list_models",
    "list_options",
    "list_pretrained",
    "load_model",
    "polarize",
    "prepare_for_inference",
    "push_to_hub",
    "save_pretrained",
    "save_weights",
]
