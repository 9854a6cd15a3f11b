"""Polar Transformer Networks from arbitrary convolutional backbones, and the backbones of timm by name."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import check, checked
from ..device import placement
from ..errors import InputError, check_choice, first_line, optional_module
from ..geometry import Law, Mode, PolarGrid
from ..layers import Frame, Heatmap, Origin, PolarTransformer, default_predictor
from ..layers.convert import angular_stride, is_convolution, is_wrapped, wrap_layer
from .networks import (
    ModelConfig,
    Network,
    Padding,
    PlainNetwork,
    PolarNetwork,
    check_sizes,
    inferring,
    make_transformer,
)

PREFIX = "timm:"
PLAIN_PREFIX = "timm-plain:"
_MAX_SIDE = 4096  # of a polar image

# Tolerances of the numerical check, relative to the difference between two random images. Rounding errors in
# float64 are far below that of outputs; the effect of a seam at the first row is far above that of feature maps.
OUTPUT_TOLERANCE = 1e-5
FEATURE_TOLERANCE = 1e-3
# Relative to the values: some layers compute in float32 even for float64 input.
ROUNDING = 1e-7


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
            an attribute `num_classes`. It classifies two polar images per image (see `EvidencePredictor`).
        origin_jitter_px: By default 2 for a learned origin.
        layout: Result of an earlier call for the same architecture and image size, which skips the check.
    """
    options = dict(locals())
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
    transformer = make_transformer(grid, predictor, origin_jitter_px, padding_mode, mode=mode, frame=frame)
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
    # the numerical check also finds strides that are not of layers, of poolings and patches in a `forward`
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


# The numerical check that a network is equivariant to rolling its polar input

Examine = Callable[[str, nn.Module, Any, Any], None]
"""Called with the name of a layer, the layer, its inputs and its output."""


class EquivarianceCheck:
    """Runs a network on an image, the image rolled by `rows`, and another image, as one batch.

    The network is a float64 copy with noise added to its parameters, so that layers initialized with zeros count.

    Args:
        channels: Channels of the polar images.
        size: (angles, radii).
    """

    def __init__(self, network: nn.Module, channels: int, size: tuple[int, int], rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = copy.deepcopy(network).cpu().double()
        for parameter in self.network.parameters():
            spread = float(parameter.detach().std(correction=0)) or 0.1
            parameter.data += spread * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        self.images = torch.randn(3, channels, *size, dtype=torch.float64, generator=generator)
        self.images[1] = self.images[0].roll(rows, dims=1)
        self.fraction = Fraction(rows, size[0])

    def feature_layer(self) -> str | None:
        """Name of the layer with the last feature maps (N, C, angles, radii) that roll with the input.

        None if a part of the output, or the output of a wrapped layer, neither rolls nor stays the same.
        """
        last, equivariant = None, True

        def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            nonlocal last, equivariant
            if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] > 1 and _is_batch(output):
                mean = output.mean(dim=1, keepdim=True)  # faster than all channels
                if _is_rolled(mean, self.fraction, 2, FEATURE_TOLERANCE):
                    last = name
                elif is_wrapped(layer) and not self._passes(mean, FEATURE_TOLERANCE):
                    equivariant = False

        output = run_layers(self.network, self.images, examine)
        return last if equivariant and self._passes(output) else None

    def failing_layer(self) -> str:
        """Description of the first layer whose inputs roll or stay the same, and whose output does not."""
        failures: list[str] = []

        def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            if not failures and not self._passes(output) and self._passes(inputs):
                kind = type(layer).__name__
                failures.append(f"layer {name} ({kind})" if name else f"the forward of {kind}")

        run_layers(self.network, self.images, examine)
        return failures[0] if failures else "its first layer"

    def _passes(self, values: Any, tolerance: float = OUTPUT_TOLERANCE) -> bool:
        """Whether all tensors of the second image equal those of the first, rolled along some axis or unchanged."""
        return all(
            any(_is_rolled(tensor, self.fraction, axis, tolerance) for axis in (None, *range(tensor.dim())))
            for tensor in _tensors(values)
            if _is_batch(tensor)
        )


def measure_stride(network: nn.Module, layers: Collection[nn.Module], images: Tensor) -> int:
    """Total stride along the rows of `images` (N, C, rows, columns), from the output sizes of `layers`."""
    rows, chosen = images.shape[2], set(layers)
    heights: set[int] = set()

    def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
        if layer in chosen and isinstance(output, Tensor) and output.dim() == 4:
            heights.add(output.shape[2])

    run_layers(network, images, examine)
    return math.lcm(*(rows // height for height in heights if height > 1 and rows % height == 0))


def run_layers(network: nn.Module, images: Tensor, examine: Examine) -> Any:
    """Returns `network(images)` in evaluation mode and calls `examine` after every layer.

    Raises:
        InputError: The network fails; the message names the layer.
    """
    active: list[tuple[str, Any]] = []

    def enter(name: str) -> Any:
        return lambda layer, args, kwargs: active.append((name, (args, kwargs)))

    def leave(layer: nn.Module, args: Any, output: Any) -> None:
        name, inputs = active.pop()
        examine(name, layer, inputs, output)

    handles = []
    for name, layer in network.named_modules():
        # before the hooks that wrap the input
        handles.append(layer.register_forward_pre_hook(enter(name), prepend=True, with_kwargs=True))
        handles.append(layer.register_forward_hook(leave))
    try:
        with inferring(network):
            return network(images)
    except Exception as error:
        where = f"layer {active[-1][0]}" if active and active[-1][0] else "its forward"
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        kind, shape = type(network).__name__, tuple(images.shape[1:])
        raise InputError(
            f"cannot polarize {kind}: polar images {shape} fail in {where}: {reason}; "
            "use other angles, radii or in_chans, or a backbone that takes images of any size"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def _is_rolled(values: Tensor, fraction: Fraction, axis: int | None, tolerance: float) -> bool:
    """Whether values of the second image equal those of the first, rolled along `axis` or, for None, unchanged."""
    first, second, other = values.reshape(3, -1, *values.shape[1:])
    bound = tolerance * (other - first).abs().max() + ROUNDING * first.abs().max()
    if axis is not None:
        shift = fraction * first.shape[axis]
        if shift.denominator != 1:
            return False
        first = first.roll(int(shift), dims=axis)
    return bool((first - second).abs().max() <= bound)


def _is_batch(values: Tensor) -> bool:
    """Whether values can belong to the three images."""
    return values.is_floating_point() and values.dim() > 0 and values.shape[0] % 3 == 0 and values.numel() > 0


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and mappings."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


# Networks of timm by name


class BackboneNetwork(PlainNetwork):
    """A network of timm on images enlarged `upsample` times, as the baseline of a polarized one.

    Images are enlarged if they are smaller than the network is designed for.
    """

    def __init__(
        self, backbone: nn.Module, *, image_size: tuple[int, int], in_chans: int, upsample: float = 1.0
    ) -> None:
        super().__init__((in_chans, *image_size), backbone)
        self.upsample = upsample
        normalize_as_trained(self, backbone)

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
    return polarize if name.startswith(PREFIX) else BackboneNetwork


def timm_network(config: ModelConfig, *, tag: str | None = None, **options: Any) -> Network:
    """The network of timm in a configuration, with new weights or with those that timm has under `tag`."""
    backbone = _timm_backbone(config.name.partition(":")[2], config.num_classes, config.in_chans, tag)
    return timm_builder(config.name)(backbone, image_size=config.image_size, in_chans=config.in_chans, **options)


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
