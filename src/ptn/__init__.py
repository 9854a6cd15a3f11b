"""Polar Transformer Networks: differentiable log-polar geometry, layers and networks for PyTorch."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Dataset, list_datasets, load_dataset, load_folder
    from .errors import InputError
    from .evaluation import equivariance_error, evaluate
    from .evaluation.audit import audit, write_audit
    from .evaluation.predict import predict
    from .geometry import (
        PolarGrid,
        Registration,
        Similarity,
        cylindrical_sample,
        measure_shift,
        polar_sample,
        polar_unsample,
        register,
        similarity_warp,
        wrap_pad,
    )
    from .layers import (
        CylindricalTransformer,
        EvidencePredictor,
        OriginPredictor,
        PolarTransformer,
        SpatialTransformer,
        WrapConv2d,
        WrapConv3d,
        heatmap_centroid,
    )
    from .models import (
        Ensemble,
        OnnxModel,
        create_model,
        for_inference,
        list_models,
        list_options,
        list_pretrained,
        load_model,
        push_to_hub,
        save_pretrained,
        save_weights,
    )
    from .models.export import export
    from .models.polarize import polarize
    from .models.segmenter import PolarSegmenter
    from .training import Recipe, fit

__version__ = "0.2.0"

__all__ = [
    "CylindricalTransformer",
    "Dataset",
    "Ensemble",
    "EvidencePredictor",
    "InputError",
    "OnnxModel",
    "OriginPredictor",
    "PolarGrid",
    "PolarSegmenter",
    "PolarTransformer",
    "Recipe",
    "Registration",
    "Similarity",
    "SpatialTransformer",
    "WrapConv2d",
    "WrapConv3d",
    "audit",
    "create_model",
    "cylindrical_sample",
    "equivariance_error",
    "evaluate",
    "export",
    "fit",
    "for_inference",
    "heatmap_centroid",
    "list_datasets",
    "list_models",
    "list_options",
    "list_pretrained",
    "load_dataset",
    "load_folder",
    "load_model",
    "measure_shift",
    "polar_sample",
    "polar_unsample",
    "polarize",
    "predict",
    "push_to_hub",
    "register",
    "save_pretrained",
    "save_weights",
    "similarity_warp",
    "wrap_pad",
    "write_audit",
]

# The subpackage of each public name, imported on first use: `import ptn` does not import torch.
_EXPORTS = {
    "errors": ("InputError",),
    "geometry": (
        "PolarGrid",
        "Registration",
        "Similarity",
        "cylindrical_sample",
        "measure_shift",
        "polar_sample",
        "polar_unsample",
        "register",
        "similarity_warp",
        "wrap_pad",
    ),
    "layers": (
        "CylindricalTransformer",
        "EvidencePredictor",
        "OriginPredictor",
        "PolarTransformer",
        "SpatialTransformer",
        "WrapConv2d",
        "WrapConv3d",
        "heatmap_centroid",
    ),
    "models": (
        "Ensemble",
        "OnnxModel",
        "PolarSegmenter",
        "create_model",
        "export",
        "for_inference",
        "list_models",
        "list_options",
        "list_pretrained",
        "load_model",
        "polarize",
        "push_to_hub",
        "save_pretrained",
        "save_weights",
    ),
    "data": ("Dataset", "list_datasets", "load_dataset", "load_folder"),
    "training": ("Recipe", "fit"),
    "evaluation": ("audit", "equivariance_error", "evaluate", "predict", "write_audit"),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}
_SUBPACKAGES = ("config", "data", "device", "errors", "evaluation", "geometry", "layers", "models", "training")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports the subpackage that defines `name` (PEP 562)."""
        if name in _SUBPACKAGES:
            return import_module(f".{name}", __name__)
        if name in _MODULES:
            value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_SUBPACKAGES})
