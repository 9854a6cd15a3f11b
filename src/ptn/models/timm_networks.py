"""Backbones of timm, polarized, as networks of the zoo: `timm:resnet18`, `timm:resnet18.a1_in1k`."""

import difflib
import inspect
from typing import Any

from ..errors import InputError, optional_module
from .polarize import Layout, PolarizedNetwork, polarize

PREFIX = "timm:"


def is_timm(name: str) -> bool:
    """Whether a model's name is that of a backbone of timm."""
    return name.startswith(PREFIX)


def timm_options() -> list[str]:
    """The options of every such network: those of `polarize`."""
    given = ("backbone", "image_size", "in_channels")
    return [name for name in inspect.signature(polarize).parameters if name not in given]


def timm_network(
    architecture: str,
    *,
    num_classes: int,
    image_size: tuple[int, int],
    in_channels: int,
    tag: str | None = None,
    layout: dict[str, Any] | None = None,
    **options: Any,
) -> PolarizedNetwork:
    """timm's `architecture`, polarized: with fresh weights, or with those that timm has under `tag`.

    `layout` is what an earlier network of the same name and size has found: its `Layout` as a dictionary.
    """
    try:
        timm = optional_module("timm", "timm")
    except RuntimeError as error:
        raise InputError(f"timm fails to import ({error}): install the torchvision that fits this torch") from error
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "timm.list_models() names them all"
        raise InputError(f"timm has no model {architecture!r}: {hint}")
    name = architecture if tag is None else f"{architecture}.{tag}"
    try:
        backbone = timm.create_model(
            name, pretrained=tag is not None, num_classes=num_classes, in_chans=in_channels
        )
    except Exception as error:  # whatever timm and the network it loads from may raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"timm could not make {name}: {reason}") from error
    try:
        known = None if layout is None else Layout(**layout)
    except TypeError as error:
        raise InputError(f"layout must be what an earlier network of the same name has; got {layout!r}") from error
    return polarize(backbone, image_size=image_size, in_channels=in_channels, layout=known, **options)
