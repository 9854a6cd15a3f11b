"""Polar Transformer Networks: differentiable log-polar geometry, layers and networks for PyTorch."""

from .data import list_datasets, load_dataset, load_folder
from .errors import InputError
from .evaluation import audit
from .geometry import PolarGrid, cylindrical_sample, polar_sample, polar_unsample, similarity_warp, wrap_pad
from .layers import (
    CylindricalTransformer,
    OriginPredictor,
    PolarTransformer,
    SpatialTransformer,
    WrapConv2d,
    WrapConv3d,
    heatmap_centroid,
)
from .models import (
    OnnxModel,
    create_model,
    export_onnx,
    export_torch,
    for_inference,
    from_pretrained,
    list_models,
    list_pretrained,
    load_model,
    polarize,
    push_to_hub,
    save_pretrained,
    save_weights,
)
from .reporting import write_audit

__version__ = "0.1.0"

__all__ = [
    "CylindricalTransformer",
    "InputError",
    "OnnxModel",
    "OriginPredictor",
    "PolarGrid",
    "PolarTransformer",
    "SpatialTransformer",
    "WrapConv2d",
    "WrapConv3d",
    "audit",
    "create_model",
    "cylindrical_sample",
    "export_onnx",
    "export_torch",
    "for_inference",
    "from_pretrained",
    "heatmap_centroid",
    "list_datasets",
    "list_models",
    "list_pretrained",
    "load_dataset",
    "load_folder",
    "load_model",
    "polar_sample",
    "polar_unsample",
    "polarize",
    "push_to_hub",
    "save_pretrained",
    "save_weights",
    "similarity_warp",
    "wrap_pad",
    "write_audit",
]
