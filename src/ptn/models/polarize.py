"""Polar Transformer Networks from arbitrary convolutional backbones, and the backbones of timm by name."""

import copy
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import check, checked
from ..device import placement
from ..errors import InputError, check_choice, first_line, optional_module
from ..geometry import Law, Mode, PolarGrid
from ..layers import Frame, Heatmap, PolarTransformer, default_predictor
from ..layers.convert import angular_stride, is_convolution, wrap_layer
from .equivariance_check import EquivarianceCheck, measure_stride
from .networks import ModelConfig, Network, Origin, Padding, PlainNetwork, PolarNetwork, check_sizes

PREFIX = "timm:"
PLAIN_PREFIX = "timm-plain:"
_MAX_SIDE = 4096  # of a polar image


@dataclass(frozen=True)
class Layout:
    """Size of the polar images of a backbone.

    Rolling them by a multiple of `stride` rows rolls the feature maps of `feature_layer`, the last ones, exactly
    and does not change the logits.
    """

    angles: int
    radii: int
    stride: int
    feature_layer: str


class PolarizedNetwork(PolarNetwork):
    """A backbone applied to polar images: (N, C, H, W) in [0, 1] -> output of the backbone."""

    def __init__(
        self, input_shape: tuple[int, ...], backbone: nn.Module, transformer: PolarTransformer, layout: Layout
    ) -> None:
        super().__init__(input_shape, backbone, transformer)
        self.layout = layout

    @property
    def backbone(self) -> nn.Module:
        return self.classifier

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs: list[Tensor] = []
        layer = self.backbone.get_submodule(self.layout.feature_layer)
        handle = layer.register_forward_hook(lambda layer, args, output: outputs.append(output.clone()))
        try:
            logits = self.backbone(x)
        finally:
            handle.remove()
        return outputs[-1], logits


@checked
def polarize(
    backbone: nn.Module,
    *,
    image_size: int | tuple[int, int],
    in_chans: int = 3,
    angles: int | None = None,
    radii: int | None = None,
    r_min_px: float | None = None,
    r_max_px: float | None = None,
    law: Law = "log",
    mode: Mode = "bilinear",
    padding_mode: Padding = "zeros",
    frame: Frame | None = None,
    origin: Origin = "learned",
    heatmap: Heatmap = "softplus",
    origin_jitter_px: float | None = None,
    layout: Layout | None = None,
) -> PolarizedNetwork:
    """Returns a Polar Transformer Network with a copy of a convolutional backbone as its classifier.

    Convolutions, poolings and paddings of the copy wrap around the angle; its state dict is unchanged. A numerical
    check then verifies that its features roll with the polar image. A backbone that fails it (because of position
    embeddings, layers over flattened space, or padding in a `forward`) is refused with the name of the layer.
    Reparameterize and fuse a backbone before this call.

    Images are normalized with the mean and standard deviation in `backbone.pretrained_cfg`, if it has one as the
    networks of timm have. A polarized network of timm can be saved and loaded: its `config` has the name
    "timm:ARCHITECTURE".

    Args:
        backbone: A convolutional network: images -> logits.
        image_size: Pixels, or (H, W).
        in_chans: Number of channels of the images.
        angles: Rows of the polar image: a multiple of the stride s of the backbone along the angle, at least 2s. By
            default the height of the image rounded up to a multiple of 4s, so that rotations by 90° are exact.
        radii: Columns of the polar image, by default the width of the image.
        r_min_px: As in `PolarGrid`.
        r_max_px: As in `PolarGrid`.
        law: As in `PolarGrid`.
        mode: As in `polar_sample`.
        padding_mode: As in `polar_sample`; "mean" samples normalized images, padded with zeros.
        frame: "disc" adds a channel to the polar image (see `PolarTransformer`); the weights of the first
            convolution for it start at zero.
        origin: "learned" with the origin predictor of the paper, or the "center" of the image.
        heatmap: "softplus", "linear" or, for objects among clutter, "evidence", for which the backbone must have
            an attribute `num_classes`.
        origin_jitter_px: By default 2 for a learned origin.
        layout: Result of an earlier call for the same architecture and image size, which skips the check.
    """
    options = dict(locals())
    if not isinstance(backbone, nn.Module):
        raise InputError(f"polarize takes a torch.nn.Module; got {backbone!r}: create a network of timm first")
    for name in ("backbone", "image_size", "in_chans", "layout"):
        del options[name]
    check_choice("origin", origin, ("learned", "center"))
    size = check_sizes(image_size, in_chans)
    wrapped = copy.deepcopy(backbone)
    layers = wrap_network(wrapped)
    if layout is None:
        layout = find_layout(wrapped, layers, size, in_chans, angles, radii)
    grid = PolarGrid(layout.angles, layout.radii, r_min_px=r_min_px, r_max_px=r_max_px, law=law)
    predictor = None
    if origin == "learned":
        classes = getattr(backbone, "num_classes", 0)
        predictor = default_predictor(in_chans, size, heatmap=heatmap, num_classes=classes)
    if origin_jitter_px is None:
        origin_jitter_px = 0.0 if predictor is None else 2.0
    transformer = PolarTransformer(
        grid,
        predictor,
        origin_jitter_px=origin_jitter_px,
        mode=mode,
        padding_mode="zeros" if padding_mode == "mean" else padding_mode,
        frame=frame,
    )
    if frame is not None:
        _add_input_channel(wrapped, in_chans)
    network = PolarizedNetwork((in_chans, *size), wrapped, transformer, layout)
    network.normalize_first = padding_mode == "mean"
    normalize_as_trained(network, backbone)
    if (architecture := _timm_architecture(backbone, in_chans)) is not None:
        num_classes: Any = backbone.num_classes
        options["layout"] = asdict(layout)
        network.config = ModelConfig(PREFIX + architecture, num_classes, size, in_chans, options)
    return network.to(*placement(backbone)).train(backbone.training)


def _add_input_channel(backbone: nn.Module, in_chans: int) -> None:
    """Add an input channel with weights of zero to the first convolution, in place."""
    convs = (layer for layer in backbone.modules() if is_convolution(layer))
    conv: Any = next(convs)
    if (conv.in_channels, conv.groups) != (in_chans, 1):
        raise InputError(f"cannot add the channel of the frame: the first convolution is {conv}")
    zeros = torch.zeros_like(conv.weight[:, :1])
    conv.weight = nn.Parameter(torch.cat((conv.weight.detach(), zeros), dim=1))
    conv.in_channels += 1


def normalize_as_trained(network: Network, backbone: nn.Module) -> None:
    """Set the normalization of the `pretrained_cfg` of a backbone, if it has one."""
    config, channels = getattr(backbone, "pretrained_cfg", None), network.input_shape[0]
    if isinstance(config, Mapping) and len(config.get("mean") or ()) == len(config.get("std") or ()) == channels:
        network.set_normalization(config["mean"], config["std"])


def wrap_network(network: nn.Module) -> list[nn.Module]:
    """Make the layers of a network wrap around the angle, in place; returns these layers."""
    layers, kind = [], type(network).__name__
    for name, layer in network.named_modules():
        try:
            if wrap_layer(layer):
                layers.append(layer)
        except InputError as error:
            raise InputError(f"cannot polarize {kind}: layer {name} ({type(layer).__name__}) {error}") from error
    if not any(is_convolution(layer) for layer in layers):
        raise InputError(f"cannot polarize {kind}: it has no convolutions (torch.nn.Conv2d)")
    return layers


def find_layout(
    wrapped: nn.Module,
    layers: Collection[nn.Module],
    size: tuple[int, int],
    in_chans: int,
    angles: int | None = None,
    radii: int | None = None,
) -> Layout:
    """Returns the layout of a wrapped network, found by running it."""
    kind, columns = type(wrapped).__name__, size[1] if radii is None else radii
    for name, count in (("angles", angles), ("radii", radii)):
        check(name, count, count is None or 1 <= count <= _MAX_SIDE, f"from 1 to {_MAX_SIDE:,}")
    odd = math.lcm(*(stride // (stride & -stride) for stride in map(angular_stride, layers)))
    device, dtype = placement(wrapped)
    blank = torch.zeros(1, in_chans, 128 * odd, columns, device=device, dtype=dtype)
    least = measure_stride(wrapped, layers, blank)
    fits = angles is None or (angles % least == 0 and angles >= 2 * least)
    check("angles", angles, fits, f"a multiple of {least}, the stride of {kind}, and at least {2 * least}")
    # poolings and patches in a `forward` only show in the stride that the check accepts
    for stride in (least, 2 * least, 4 * least):
        rows = 4 * stride * math.ceil(size[0] / (4 * stride)) if angles is None else angles
        if rows % stride or rows < 2 * stride:
            break
        test = EquivarianceCheck(wrapped, in_chans, (rows, columns), stride)
        feature_layer = test.feature_layer()
        if feature_layer is not None:
            return Layout(rows, columns, stride, feature_layer)
    raise InputError(
        f"cannot polarize {kind}: it is not equivariant to rotation from {test.failing_layer()} on; padding in a "
        "forward, position embeddings, layers over flattened space and upsampling with other modes than nearest "
        "cannot wrap around the angle"
    )


# Networks of timm by name


class BackboneNetwork(PlainNetwork):
    """A network of timm on images enlarged `upsample` times: the baseline of a polarized one."""

    def __init__(self, input_shape: tuple[int, ...], backbone: nn.Module, upsample: float) -> None:
        super().__init__(input_shape, backbone)
        self.upsample = upsample

    def classifier_input(self, images: Tensor) -> Tensor:
        x = self.normalize(images)
        if self.upsample == 1:
            return x
        return F.interpolate(x, scale_factor=self.upsample, mode="bilinear", align_corners=False)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        backbone: Any = self.classifier
        features = backbone.forward_features(x)
        return features, backbone.forward_head(features)


def is_timm(name: str) -> bool:
    """Whether a model name is that of a network of timm."""
    return name.startswith((PREFIX, PLAIN_PREFIX))


def timm_builder(name: str) -> Callable[..., Network]:
    """The function that builds a network from a backbone of timm; its keyword options are those of the network."""
    return polarize if name.startswith(PREFIX) else plain_backbone


def timm_network(config: ModelConfig, *, tag: str | None = None, **options: Any) -> Network:
    """The network of timm in a configuration, with new weights or with those that timm has under `tag`."""
    backbone = _timm_backbone(config.name.partition(":")[2], config.num_classes, config.in_chans, tag)
    return timm_builder(config.name)(backbone, image_size=config.image_size, in_chans=config.in_chans, **options)


def plain_backbone(
    backbone: nn.Module, *, image_size: tuple[int, int], in_chans: int, upsample: float = 1.0
) -> BackboneNetwork:
    """A network of timm on images enlarged `upsample` times, for images smaller than it is designed for."""
    network = BackboneNetwork((in_chans, *image_size), backbone, upsample)
    normalize_as_trained(network, backbone)
    return network


def _timm_backbone(architecture: str, num_classes: int, in_chans: int, tag: str | None) -> nn.Module:
    """A network of timm; the tag "" is its default one, None new weights."""
    # without the version pip would replace torch to fit the newest torchvision
    try:
        timm = optional_module("timm", f"ptn[timm]' 'torch=={torch.__version__.partition('+')[0]}")
    except RuntimeError as error:
        raise InputError(f"timm fails to import: install the torchvision of this torch ({error})") from error
    name = f"{architecture}.{tag}" if tag else architecture
    try:
        backbone: nn.Module = timm.create_model(
            name, pretrained=tag is not None, num_classes=num_classes, in_chans=in_chans
        )
    except Exception as error:  # of timm, the network or the Hub
        raise InputError(f"timm could not create {name}: {first_line(error)}") from error
    return backbone


def _timm_architecture(backbone: nn.Module, in_chans: int) -> str | None:
    """Name of the architecture of timm that a backbone is, or None if timm would build another one by that name."""
    config = getattr(backbone, "pretrained_cfg", None)
    architecture = config.get("architecture") if isinstance(config, Mapping) else None
    if not isinstance(architecture, str) or not hasattr(backbone, "num_classes"):
        return None
    try:
        with torch.device("meta"):
            same = _timm_backbone(architecture, backbone.num_classes, in_chans, None)  # type: ignore[arg-type]
    except InputError:
        return None
    shapes = [{key: value.shape for key, value in network.state_dict().items()} for network in (backbone, same)]
    # dropout does not matter for a network that is loaded
    layers = [[line for line in str(network).splitlines() if "drop" not in line] for network in (backbone, same)]
    return architecture if shapes[0] == shapes[1] and layers[0] == layers[1] else None
