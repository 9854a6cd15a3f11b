"""A trained network with what its file says about its training; replaced by `load_model`."""

from dataclasses import dataclass, field
from typing import Any, cast

from ..data.folder import FITS, Fit
from ..errors import check_choice
from ..models import Model, OnnxModel, load_model


@dataclass(frozen=True, eq=False)
class Weights:
    """A trained network and its metadata."""

    name: str
    model: Model | OnnxModel
    classes: tuple[str, ...] | None = None
    dataset: str | None = None
    dataset_options: dict[str, Any] = field(default_factory=dict)
    fit: Fit = "resize"
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, or their numbers."""
        return self.classes or tuple(map(str, range(self.model.config.num_classes)))


def open_weights(name: str) -> Weights:
    """Returns `load_model(name)` with its metadata."""
    model = load_model(name)
    metadata = model.metadata
    fit = metadata.get("fit", "resize")
    check_choice(f"fit in {name}", fit, FITS)
    options = metadata.get("dataset_options") or {}
    return Weights(name, model, model.classes, metadata.get("dataset"), options, cast("Fit", fit), metadata)
