"""Backbones of timm as networks of the zoo: `timm:resnet18` is polarized, `timm-plain:resnet18` is not."""

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, optional_module
from .networks import Explanation, Network
from .polarize import Layout, PolarizedNetwork, normalize_as_trained, polarize

PREFIX = "timm:"
PLAIN_PREFIX = "timm-plain:"


def is_timm(name: str) -> bool:
    """Whether a model's name is that of a backbone of timm."""
    return name.startswith((PREFIX, PLAIN_PREFIX))


def check_timm(name: str) -> None:
    """Raise unless timm is here and has the backbone in such a name, "timm:resnet18" or "timm:resnet18.a1_in1k"."""
    _find(name.partition(":")[2].partition(".")[0])


def timm_options(name: str) -> list[str]:
    """The options of such a network: those of `polarize`, or of `plain_timm_network`."""
    builder: Callable[..., Network] = plain_timm_network
    if name.startswith(PREFIX):
        builder = polarize
    given = ("backbone", "architecture", "num_classes", "image_size", "in_chans", "tag")
    return [option for option in inspect.signature(builder).parameters if option not in given]


def timm_builder(name: str) -> Callable[..., Network]:
    """What makes the network called `name`."""
    prefix, _, architecture = name.partition(":")
    return partial(timm_network if f"{prefix}:" == PREFIX else plain_timm_network, architecture)


def timm_network(
    architecture: str,
    *,
    num_classes: int,
    image_size: tuple[int, int],
    in_chans: int,
    tag: str | None = None,
    layout: dict[str, Any] | None = None,
    **options: Any,
) -> PolarizedNetwork:
    """timm's `architecture`, polarized: with fresh weights, or with those that timm has under `tag`.

    `layout` is what an earlier network of the same name and size has found: its `Layout` as a dictionary.
    """
    backbone = _timm_backbone(architecture, num_classes, in_chans, tag)
    try:
        known = None if layout is None else Layout(**layout)
    except TypeError as error:
        raise InputError(f"layout must be what an earlier network of the same name has; got {layout!r}") from error
    return polarize(backbone, image_size=image_size, in_chans=in_chans, layout=known, **options)


class BackboneNetwork(Network):
    """A backbone as it is, looking at images enlarged `upsample` times: what a polarized one is compared with."""

    def __init__(self, input_shape: tuple[int, ...], backbone: nn.Module, upsample: float) -> None:
        super().__init__(input_shape)
        self.backbone = backbone
        self.upsample = upsample

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        seen = self.normalize(images)
        if self.upsample != 1:
            seen = F.interpolate(seen, scale_factor=self.upsample, mode="bilinear", align_corners=False)
        logits: Tensor = self.backbone(seen)
        return logits

    def trace(self, images: Tensor) -> Explanation:
        return Explanation(self(images))


def plain_timm_network(
    architecture: str,
    *,
    num_classes: int,
    image_size: tuple[int, int],
    in_chans: int,
    tag: str | None = None,
    upsample: float = 1.0,
) -> BackboneNetwork:
    """timm's `architecture` on images enlarged `upsample` times, for those smaller than it was made for."""
    if not upsample >= 1:
        raise InputError(f"upsample must be at least 1; got {upsample}")
    backbone = _timm_backbone(architecture, num_classes, in_chans, tag)
    network = BackboneNetwork((in_chans, *image_size), backbone, upsample)
    normalize_as_trained(network, backbone)
    return network


def _find(architecture: str) -> Any:
    """The package timm, if it has this architecture."""
    try:
        timm = optional_module("timm", "timm")
    except RuntimeError as error:
        raise InputError(f"timm fails to import ({error}): install the torchvision that fits this torch") from error
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "timm.list_models() names them all"
        raise InputError(f"timm has no model {architecture!r}: {hint}")
    return timm


def _timm_backbone(architecture: str, num_classes: int, in_chans: int, tag: str | None) -> nn.Module:
    timm = _find(architecture)
    name = architecture if tag is None else f"{architecture}.{tag}"
    try:
        backbone: nn.Module = timm.create_model(
            name, pretrained=tag is not None, num_classes=num_classes, in_chans=in_chans
        )
    except Exception as error:  # whatever timm and the network it loads from may raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"timm could not make {name}: {reason}") from error
    return backbone
