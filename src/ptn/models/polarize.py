"""Any image backbone as a Polar Transformer Network."""

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import InputError, check_choice
from ..geometry import Law, Mode, PaddingMode, PolarGrid
from ..layers import PolarTransformer, default_predictor
from ..layers.convert import angular_stride, is_convolution, wrap_layer
from ..layers.origin import HeatmapActivation
from .networks import Network, PolarNetwork
from .turning import CannotTurnError, Turn, can_run, measure_stride, position_parameter

Origin = Literal["learned", "center"]


@dataclass(frozen=True)
class Layout:
    """The polar images that suit a backbone, and what it does to them.

    Turning them by a multiple of `stride` rows turns the feature maps of `feature_layer`, the last it has, exactly,
    and leaves logits as they are.
    """

    angles: int
    radii: int
    stride: int
    feature_layer: str


class PolarizedNetwork(PolarNetwork):
    """A backbone that looks at the polar image around a learned, central or given origin.

    (N, C, H, W) in [0, 1] -> whatever the backbone returns.
    """

    def __init__(
        self, input_shape: tuple[int, ...], transformer: PolarTransformer, backbone: nn.Module, layout: Layout
    ) -> None:
        super().__init__(input_shape, transformer, backbone)
        self.layout = layout

    @property
    def backbone(self) -> nn.Module:
        return self.classifier

    def read(self, polar: Tensor) -> tuple[Tensor, Tensor]:
        kept: list[Tensor] = []
        layer = self.backbone.get_submodule(self.layout.feature_layer)
        handle = layer.register_forward_hook(lambda layer, args, output: kept.append(output.clone()))
        try:
            logits = self.backbone(polar)
        finally:
            handle.remove()
        return kept[-1], logits


def polarize(
    backbone: nn.Module,
    *,
    image_size: int | tuple[int, int],
    in_chans: int = 3,
    angles: int | None = None,
    radii: int | None = None,
    origin: Origin = "learned",
    r_min_px: float = 1.0,
    r_max_px: float | None = None,
    law: Law = "log",
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    heatmap: HeatmapActivation = "softplus",
    origin_jitter_px: float | None = None,
    layout: Layout | None = None,
) -> PolarizedNetwork:
    """A Polar Transformer Network of any convolutional backbone: from timm, torchvision or your own.

    The network has a copy of `backbone`, its state dict unchanged, whose convolutions, poolings and paddings go
    once around the angle. That it turns with its input is then tried out, and a backbone that does not (it has
    position embeddings, flattens space, pads in its own `forward`) is refused with the name of the layer to blame.
    Re-parameterise and fuse a backbone before, not after.

    Args:
        image_size: of the images, a number of pixels or (H, W).
        angles: rows of the polar image, a multiple of the backbone's stride s along the angle and at least 2s.
            By default the height of the image rounded up to a multiple of 4s, so that quarter turns are exact.
        radii: its columns, by default the width of the image.
        origin: "learned" by the paper's origin predictor, or the "center" of the image.
        layout: what an earlier call found for the same architecture and images; nothing is tried then.

    The other options are as of `ptn.create_model("ptn_b")`. A learned origin is jittered by 2 pixels in training.
    Images are normalised by the mean and deviation in the backbone's `pretrained_cfg`, where it has one as timm's
    have, or else not at all: see `set_normalization`.
    """
    if not isinstance(backbone, nn.Module):
        raise InputError(f"polarize takes a torch.nn.Module; got {type(backbone).__name__}")
    check_choice("origin", origin, ("learned", "center"))
    size = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side >= 4 for side in size):
        raise InputError(f"image_size must be a number of pixels or (H, W), at least 4; got {image_size}")
    example = _example(backbone)
    wrapped = copy.deepcopy(backbone)
    layers = wrap_network(wrapped)
    if layout is None:
        try:
            layout = find_layout(wrapped, layers, size, in_chans, angles, radii)
        except CannotTurnError as error:
            if (culprit := position_parameter(wrapped)) is None:
                raise
            raise CannotTurnError(
                f"cannot polarize {type(backbone).__name__}: {culprit} is a position embedding, which does not "
                "turn with the angle; take a backbone without one"
            ) from error
    learned = origin == "learned"
    transformer = PolarTransformer(
        PolarGrid(layout.angles, layout.radii, r_min_px=r_min_px, r_max_px=r_max_px, law=law),
        default_predictor(in_chans, size, heatmap=heatmap) if learned else None,
        origin_jitter_px=(2.0 if learned else 0.0) if origin_jitter_px is None else origin_jitter_px,
        mode=mode,
        padding_mode=padding_mode,
    )
    network = PolarizedNetwork((in_chans, *size), transformer, wrapped, layout)
    normalize_as_trained(network, backbone)
    return network.to(example.device, example.dtype).train(backbone.training)


def normalize_as_trained(network: Network, backbone: nn.Module) -> None:
    """Standardise images as the backbone's `pretrained_cfg` says, if it has one as timm's have."""
    config, channels = getattr(backbone, "pretrained_cfg", None), network.input_shape[0]
    if isinstance(config, Mapping) and len(config.get("mean") or ()) == len(config.get("std") or ()) == channels:
        network.set_normalization(config["mean"], config["std"])


def wrap_network(network: nn.Module) -> list[nn.Module]:
    """Make a network's layers wrap around the angle, in place; returns those that do now."""
    layers = []
    for name, layer in network.named_modules():
        try:
            if wrap_layer(layer):
                layers.append(layer)
        except InputError as error:
            kind = type(layer).__name__
            raise InputError(f"cannot polarize {type(network).__name__}: layer {name} ({kind}) {error}") from error
    if not any(is_convolution(layer) for layer in layers):
        kind = type(network).__name__
        raise InputError(
            f"cannot polarize {kind}: it has no convolutions (torch.nn.Conv2d); take a network that has"
        )
    return layers


def find_layout(
    wrapped: nn.Module,
    layers: Collection[nn.Module],
    size: tuple[int, int],
    in_chans: int,
    angles: int | None = None,
    radii: int | None = None,
) -> Layout:
    """The polar images that suit a wrapped network, found by trying them."""
    columns = size[1] if radii is None else radii
    PolarGrid(angles or 1, columns)  # says what is wrong with them
    kind = type(wrapped).__name__
    odd = math.lcm(*(stride // (stride & -stride) for stride in map(angular_stride, layers)))
    blank = _example(wrapped).new_zeros(1, in_chans, 128 * odd, columns)
    least = measure_stride(wrapped, layers, blank)
    # turns show on few columns as well as on many, and sooner
    width = least if least < columns and can_run(wrapped, blank[..., :least]) else columns
    # what pools or cuts into patches without being a layer shows only in how far the input must turn
    for stride in (least, 2 * least, 4 * least):
        rows = 4 * stride * math.ceil(size[0] / (4 * stride))
        if angles is not None and angles % stride == 0 and angles >= 2 * stride:
            rows = angles
        elif angles is not None and stride > least:
            break
        turn = Turn(wrapped, in_chans, (rows, width), stride)
        feature_layer = turn.find_features()
        if feature_layer is None:
            continue
        if angles not in (None, rows):
            raise InputError(
                f"angles must be a multiple of {stride}, the stride of {kind} along the angle, "
                f"and at least {2 * stride}; got {angles}: take {stride * max(2, round(angles / stride))}"
            )
        return Layout(rows, columns, stride, feature_layer)
    raise CannotTurnError(
        f"cannot polarize {kind}: it does not turn with the angle from {turn.find_breach()}; padding in a forward, "
        "position embeddings and layers over flattened space cannot wrap around"
    )


def _example(network: nn.Module) -> Tensor:
    """A tensor of the kind a network computes with."""
    if any(is_lazy(parameter) or parameter.is_meta for parameter in network.parameters()):
        raise InputError(
            f"cannot polarize {type(network).__name__}: it has no weights yet; load them, or run it once"
        )
    return next((parameter for parameter in network.parameters() if parameter.is_floating_point()), torch.empty(0))
