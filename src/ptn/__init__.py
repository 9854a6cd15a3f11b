"""Polar Transformer Networks: differentiable log-polar geometry, layers and networks for PyTorch."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Dataset, list_datasets, load_dataset, load_folder
    from .errors import InputError
    from .evaluation import audit, equivariance_error, evaluate, predict, write_audit
    from .geometry import (
        PolarGrid,
        Similarity,
        cylindrical_sample,
        measure_shift,
        polar_sample,
        polar_unsample,
        similarity_warp,
        wrap_pad,
    )
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
        Ensemble,
        OnnxModel,
        create_model,
        export,
        for_inference,
        list_models,
        list_options,
        list_pretrained,
        load_model,
        polarize,
        push_to_hub,
        save_pretrained,
        save_weights,
    )
    from .training import Recipe, fit

__version__ = "0.2.0"

# Public name -> the subpackage that defines it, imported on first use: `import ptn` does not import torch.
_MODULES = {
    "CylindricalTransformer": "layers",
    "Dataset": "data",
    "Ensemble": "models",
    "InputError": "errors",
    "OnnxModel": "models",
    "OriginPredictor": "layers",
    "PolarGrid": "geometry",
    "PolarTransformer": "layers",
    "Recipe": "training",
    "Similarity": "geometry",
    "SpatialTransformer": "layers",
    "WrapConv2d": "layers",
    "WrapConv3d": "layers",
    "audit": "evaluation",
    "create_model": "models",
    "cylindrical_sample": "geometry",
    "equivariance_error": "evaluation",
    "evaluate": "evaluation",
    "export": "models",
    "fit": "training",
    "for_inference": "models",
    "heatmap_centroid": "layers",
    "list_datasets": "data",
    "list_models": "models",
    "list_options": "models",
    "list_pretrained": "models",
    "load_dataset": "data",
    "load_folder": "data",
    "load_model": "models",
    "measure_shift": "geometry",
    "polar_sample": "geometry",
    "polar_unsample": "geometry",
    "polarize": "models",
    "predict": "evaluation",
    "push_to_hub": "models",
    "save_pretrained": "models",
    "save_weights": "models",
    "similarity_warp": "geometry",
    "wrap_pad": "geometry",
    "write_audit": "evaluation",
}
_SUBPACKAGES = ("config", "data", "device", "errors", "evaluation", "geometry", "layers", "models", "training")

__all__ = [*_MODULES]  # noqa: PLE0604

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
