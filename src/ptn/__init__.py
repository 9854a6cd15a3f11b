"""Polar Transformer Networks: differentiable log-polar geometry, layers and networks for PyTorch."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import list_datasets, load_dataset, load_folder
    from .errors import InputError
    from .evaluation.audit import audit
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
        push_to_hub,
        save_pretrained,
        save_weights,
    )
    from .models.polarize import polarize
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

_PARTS = ("errors", "geometry", "layers", "models", "data", "evaluation", "training", "reporting")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What is asked for, loaded when it is: the command line answers many questions without torch."""
        if name in _PARTS:
            return import_module(f".{name}", __name__)
        if name in __all__:
            for part in _PARTS:
                found = getattr(import_module(f".{part}", __name__), name, None)
                if found is not None:
                    globals()[name] = found
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PARTS})
