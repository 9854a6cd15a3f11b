"""The networks and digits that the demo offers: each PTN beside a plain CNN trained on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data.mnist import bundled_digits
from ..errors import InputError
from ..layers import PolarTransformer
from ..models import Network, PlainNetwork, PolarNetwork, for_inference, list_pretrained, load_model

# Title, description and typical scale of a 28×28 digit, by training set; released networks appear in this order.
_DATASETS = {
    "sim2mnist": ("SIM2MNIST", "digits at any angle, 1 to 2.4 times as large, anywhere among clutter", 1.7),
    "quickstart": ("quickstart digits", "digits at any angle, 0.6 to 1.2 times as large, anywhere", 0.9),
    "rotmnist": ("rotated MNIST", "digits at any angle, centered and of one size", 1.0),
    "mnist-r": ("MNIST R", "digits rotated by up to 90°, centered and of one size", 1.0),
    "mnist-rts": ("MNIST RTS", "digits rotated by up to 45°, 0.7 to 1.2 times as large, anywhere", 0.95),
    "rotsvhn": ("rotated SVHN", "photographs of house numbers at any angle", None),
    "svhn": ("SVHN", "photographs of house numbers, upright", None),
    "rotsvhn-minus": ("rotated SVHN−", "photographs of house numbers at any angle, without 6 and 9", None),
    "svhn-minus": ("SVHN−", "photographs of house numbers, upright, without 6 and 9", None),
    "folder": ("your images", "a folder of your own", None),
}
_DIGIT_SIDE = 28


@dataclass(frozen=True, eq=False)
class Pair:
    """A polar network, ready for inference, and optionally a plain network for the same images and classes."""

    key: str  # identifies the pair in requests
    title: str
    about: str  # the training data
    polar: PolarNetwork
    plain: PlainNetwork | None
    digit_scale: float  # pixels of the input per pixel of a 28×28 digit, to match the training data

    @property
    def polar_name(self) -> str:
        return _name(self.polar)

    @property
    def plain_name(self) -> str | None:
        return None if self.plain is None else _name(self.plain)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.polar.classes or tuple(map(str, range(self.polar.config.num_classes)))

    @property
    def channels(self) -> int:
        return self.polar.input_shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """(h, w) of the input images."""
        return self.polar.input_shape[1], self.polar.input_shape[2]

    @property
    def transformer(self) -> PolarTransformer:
        assert isinstance(self.polar.transformer, PolarTransformer)
        return self.polar.transformer


def find_pairs(own: Sequence[str] = ()) -> list[Pair]:
    """Returns every PTN with a plain network for the same data, if possible of its size; those in `own` come first.

    A released PTN is included if it has a partner or takes color images; one in `own` always is. A plain network in
    `own` needs a PTN for the same data.
    """
    networks = {source: _load_own(source) for source in own}
    released = {tag: load_model(tag) for tag in list_pretrained()}
    for tag in sorted(released, key=lambda tag: _rank(tag, released[tag])):
        if len(released[tag].input_shape) == 3:
            networks.setdefault(tag, released[tag])
    plains = {source: model for source, model in networks.items() if not isinstance(model, PolarNetwork)}
    pairs, used = [], set()
    for source, model in networks.items():
        if isinstance(model, PolarNetwork):
            partner = _partner(model, plains)
            if partner is not None or source in own or model.input_shape[0] == 3:
                pairs.append(_pair(source, model, None if partner is None else plains[partner], own))
                used.add(partner)
    for source in own:
        if source in plains and source not in used:
            raise InputError(f"{source}: no PTN for the same images; add one with --weights")
    return pairs


def sample_digits(per_class: int = 2) -> list[tuple[Tensor, int]]:
    """Returns digits of each class with their labels, uint8 (1, 28, 28)."""
    images, labels, _ = bundled_digits()
    members = [(labels == label).nonzero()[:, 0] for label in range(10)]
    chosen = [rows[copy * len(rows) // per_class] for copy in range(per_class) for rows in members]
    return [(images[index].view(1, _DIGIT_SIDE, _DIGIT_SIDE), int(labels[index])) for index in chosen]


def _load_own(source: str) -> Any:
    model = load_model(source)
    if not isinstance(model, PolarNetwork | PlainNetwork) or len(model.input_shape) != 3:
        kind = model.config.name if isinstance(model, Network) else type(model).__name__
        raise InputError(f"{source} is a {kind}; the demo shows PTN, PCNN and CNN of images")
    if model.input_shape[0] not in (1, 3):
        raise InputError(f"{source} takes {model.input_shape[0]} channels; the demo has gray and color images")
    return model


def _rank(tag: str, model: Any) -> tuple[int, bool, str]:
    """Sort key of released networks: by training set, size B first."""
    return [*_DATASETS, _dataset(model)].index(_dataset(model)), not model.config.name.endswith("_b"), tag


def _partner(polar: PolarNetwork, plains: dict[str, Any]) -> str | None:
    """Returns the source of the plain network for the same images and classes, preferably of the same size."""

    def data(model: Any) -> tuple[Any, ...]:
        return _dataset(model), model.input_shape, model.classes

    def other_size(source: str) -> bool:
        return _name(plains[source]).rpartition("-")[2] != _name(polar).rpartition("-")[2]

    fitting = [source for source, plain in plains.items() if data(plain) == data(polar)]
    return min(fitting, key=other_size, default=None)


def _pair(source: str, polar: PolarNetwork, plain: Any, own: Sequence[str]) -> Pair:
    dataset = _dataset(polar)
    title, about, digit_scale = _DATASETS.get(dataset, (dataset or "unknown images", "", None))
    file = f" ({Path(*Path(source).parts[-3:])})" if source in own else ""
    return Pair(
        key=source,
        title=f"{title}: {_name(polar)}{file}",
        about=about,
        polar=_for_inference(polar),
        plain=_for_inference(plain) if plain else None,
        digit_scale=digit_scale or min(polar.input_shape[1:]) / _DIGIT_SIDE,
    )


def _for_inference(model: Any) -> Any:
    return for_inference(model).model


def _dataset(model: Any) -> str:
    return model.metadata.get("dataset") or ""


def _name(model: Any) -> str:
    """Name for display: PTN-B, CCNN-B, PTN-ResNet32."""
    return model.config.name.upper().replace("_", "-").replace("RESNET", "ResNet")
