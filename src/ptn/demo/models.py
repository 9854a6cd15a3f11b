"""Which networks the page shows: a PTN, beside a plain CNN that was trained on the same images if there is one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch

from ..bundled import SIDE
from ..data.digits import SPECS
from ..data.quickstart import PERTURBED
from ..errors import InputError
from ..evaluation import Weights, open_weights
from ..layers import PolarTransformer
from ..models import Network, PlainNetwork, PolarNetwork, for_inference, list_pretrained

# what networks were trained on, for people; the first one that is there is shown first
_DATASETS = {
    "sim2mnist": ("SIM2MNIST", "digits at any angle, 1 to 2.4 times as large, anywhere among clutter"),
    "quickstart": ("quickstart digits", "digits at any angle, 0.6 to 1.2 times as large, anywhere"),
    "rotmnist": ("rotated MNIST", "digits at any angle, all in the middle and of one size"),
    "mnist-r": ("MNIST R", "digits turned by up to 90°, all in the middle and of one size"),
    "mnist-rts": ("MNIST RTS", "digits turned by up to 45°, 0.7 to 1.2 times as large, anywhere"),
    "rotsvhn": ("rotated SVHN", "photographs of house numbers at any angle"),
    "svhn": ("SVHN", "photographs of house numbers, upright"),
    "rotsvhn-minus": ("rotated SVHN−", "photographs of house numbers at any angle, without 6 and 9"),
    "svhn-minus": ("SVHN−", "photographs of house numbers, upright, without 6 and 9"),
    "folder": ("your images", "a folder of your own"),
}
# how wide digits are in images of these sets, in widths of MNIST's
_SCALES = {name: mean(spec.scale) for name, spec in {**SPECS, "quickstart": PERTURBED}.items()} | {"mnist": 1.0}


@dataclass(frozen=True, eq=False)
class Pair:
    """A polar network and, where there is one, a plain network for the same images and classes.

    `key` names the pair to the server, `title` to people, short enough for a phone; `about` says what it learned
    from, and in which file it is. `digit_scale` is how
    many pixels of the networks' image a pixel of a 28×28 digit covers, for the digit to have the size that they
    know. Both only answer (`for_inference`), and can do so in several threads at a time.
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
        """(h, w) of the images that both take."""
        return self.polar.input_shape[1], self.polar.input_shape[2]

    @property
    def channels(self) -> int:
        return self.polar.input_shape[0]

    @property
    def transformer(self) -> PolarTransformer:
        transformer = self.polar.transformer
        assert isinstance(transformer, PolarTransformer)
        return transformer


def find_pairs(own: Sequence[str] = ()) -> list[Pair]:
    """Every PTN beside a plain network, of the same stack if there is one; those of the files `own` come first.

    Shipped networks take part if they have a partner, or look at colours: for those no plain one is shipped. A
    file's PTN does so by itself too, a file's plain network only where there is a PTN of the same training set.
    """
    mine = [_open_own(name) for name in own]
    shipped = [open_weights(tag) for tag in list_pretrained()]
    plains = [network for network in (*mine, *shipped) if isinstance(network.model, PlainNetwork)]
    pairs = []
    for network in (*mine, *sorted(shipped, key=_place)):
        if not _is_polar(network):
            continue
        partner = _nearest(network, plains)
        if partner is not None or network in mine or network.model.input_shape[0] == 3:
            pairs.append(_pair(network, partner, own=network in mine or partner in mine))
    for network in mine:
        if not _is_polar(network) and not any(pair.plain_name == _name(network) for pair in pairs):
            raise InputError(f"{network.name}: no PTN to show beside it; give --weights of one for the same images")
    if not pairs:
        raise InputError(
            "no trained pair of networks to show: run `ptn quickstart`, then give both of its networks with "
            "--weights out/runs/quickstart.ptn_s.modern/seed-0/weights.safetensors, and the same of ccnn_s"
        )
    return _numbered(pairs)


def _numbered(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs, with numbers after titles that several of them have."""
    shared = Counter(pair.title for pair in pairs)
    seen: Counter[str] = Counter()
    named = []
    for pair in pairs:
        seen[pair.title] += 1
        number = f" ({seen[pair.title]})" if shared[pair.title] > 1 else ""
        named.append(replace(pair, title=pair.title + number))
    return named


def _place(network: Weights) -> tuple[int, bool, str]:
    """Where a shipped network stands among the others: by training set, the middle size first."""
    known = [*_DATASETS, network.dataset]
    return known.index(network.dataset), not network.model.config.name.endswith("_b"), network.name


def _open_own(name: str) -> Weights:
    network = open_weights(name)
    shape = network.model.input_shape
    if not (_is_polar(network) or isinstance(network.model, PlainNetwork)) or len(shape) != 3:
        raise InputError(f"{name} holds {network.model.config.name}; the page shows PTN, PCNN and CNN of images")
    if shape[0] not in (1, 3):
        raise InputError(f"{name} takes {shape[0]} channels; the page has grey images and colour ones")
    return network


def _is_polar(network: Weights) -> bool:
    model = network.model
    return isinstance(model, PolarNetwork) and isinstance(model.transformer, PolarTransformer)


def _nearest(polar: Weights, plains: Sequence[Weights]) -> Weights | None:
    """The plain network for the same images and classes that is of the same stack, or else the first."""
    fitting = [
        plain
        for plain in plains
        if plain.dataset == polar.dataset
        and plain.model.input_shape == polar.model.input_shape
        and plain.class_names == polar.class_names
    ]
    stack = polar.model.config.name.rpartition("_")[2]
    return min(fitting, key=lambda plain: plain.model.config.name.rpartition("_")[2] != stack, default=None)


def _pair(polar: Weights, plain: Weights | None, *, own: bool) -> Pair:
    trained_on, about = _DATASETS.get(polar.dataset or "", (polar.dataset or "unknown images", ""))
    file = f"({Path(*Path(polar.name).parts[-3:])})" if own else ""
    network = _ready(polar)
    assert isinstance(network, PolarNetwork)
    rival = None if plain is None else _ready(plain)
    assert rival is None or isinstance(rival, PlainNetwork)
    return Pair(
        key=polar.name,
        title=f"{trained_on}: {_name(polar)}",
        about=f"{about} {file}".strip(),
        polar=network,
        polar_name=_name(polar),
        plain=rival,
        plain_name=None if plain is None else _name(plain),
        classes=polar.class_names,
        digit_scale=_SCALES.get(polar.dataset or "", min(network.input_shape[1:]) / SIDE),
    )


def _name(network: Weights) -> str:
    """What people call a network: PTN-B, CCNN-B, PTN-ResNet32."""
    return network.model.config.name.upper().replace("_", "-").replace("RESNET", "ResNet")


def _ready(network: Weights) -> Network:
    """The network as it answers soonest, known to give numbers."""
    model = network.model
    assert isinstance(model, Network)
    ready = for_inference(model).model
    assert isinstance(ready, Network)
    with torch.inference_mode():
        if not torch.isfinite(ready(torch.zeros(1, *ready.input_shape))).all():
            raise InputError(f"{network.name} answers with numbers that are not finite: train it again")
    return ready
