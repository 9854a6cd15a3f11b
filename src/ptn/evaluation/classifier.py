"""Any classifier as a torch module: a network, a function, an ONNX file, weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError
from .classify import check_finite
from .weights import open_weights

Classifier = nn.Module | Callable[..., Any] | str | Path
"""What `as_classifier` takes: images (N, C, H, W) in [0, 1] -> scores (N, classes), or a file that holds such."""


class FunctionModel(nn.Module):
    """A plain function from a batch of images to scores, arrays or tensors, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        scores = self.function(images)
        return torch.from_numpy(scores) if isinstance(scores, np.ndarray) else scores


def as_classifier(model: Classifier) -> nn.Module:
    """`model` as a module; a text or a path is that of a .safetensors or .onnx file, or a pretrained tag."""
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, str | Path):
        return open_weights(str(model)).model
    if callable(model):
        return FunctionModel(model)
    raise InputError(
        "expected a torch module, a function of images, or the name of a .safetensors or .onnx file; "
        f"got {type(model).__name__}"
    )


def raw_scores(model: nn.Module, images: Tensor) -> Tensor:
    """What `model` gives for a batch, finite float32 (N, classes) on the CPU; anything else is an error."""
    scores = model(images)
    if not isinstance(scores, Tensor):
        raise InputError(
            f"a classifier gives a tensor (N, classes); this one gives a {type(scores).__name__}: "
            "wrap it in a function that returns the scores alone"
        )
    if scores.dim() != 2 or len(scores) != len(images) or scores.shape[1] < 2:
        shape = tuple(scores.shape)
        raise InputError(
            f"a classifier gives scores ({len(images)}, classes) for {len(images)} images, two classes or more; "
            f"this one gives {shape}"
        )
    scores = scores.float().cpu()
    check_finite(scores)
    return scores


def are_probabilities(scores: Tensor) -> bool:
    """Whether scores (N, classes) are probabilities already: none is negative, and each row sums to one."""
    sums = scores.sum(dim=1)
    return bool((scores >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all())
