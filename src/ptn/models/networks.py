"""Networks: a transformer and a classifier of its samples, ensembles of networks, and their builders."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..config import build, check
from ..errors import InputError, InputTypeError, check_choice
from ..geometry import Law, Mode, PolarGrid, check_images, check_range
from ..geometry.sample import values_known
from ..layers import (
    Blocks,
    ConvBlock,
    CylindricalTransformer,
    EvidencePredictor,
    Frame,
    Heatmap,
    HeatmapActivation,
    Location,
    Origin,
    OriginPredictor,
    PolarTransformer,
    ResidualBlock,
    SpatialTransformer,
    default_predictor,
)
from ..layers.origin import centroid
from .classifiers import Classifier, Stack, make_classifier

ImageSize = tuple[int, int]
Padding = Literal["zeros", "border", "mean"]
"""Values outside an image: black, the nearest pixel, or the mean of the training images."""


@dataclass(frozen=True)
class ModelConfig:
    """Name, sizes and options of a model: the arguments of `create_model` that build it."""

    name: str
    num_classes: int = 10
    image_size: ImageSize = (28, 28)
    in_chans: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check("num_classes", self.num_classes, 0 <= self.num_classes <= 10**5, "from 0 to 100,000")
        check("in_chans", self.in_chans, 1 <= self.in_chans <= 1024, "from 1 to 1,024")
        sides = min(self.image_size), max(self.image_size)
        check("image_size", self.image_size, 4 <= sides[0] <= sides[1] <= 4096, "from 4 to 4,096 pixels")


def check_sizes(image_size: int | ImageSize, in_chans: int) -> ImageSize:
    """Returns (H, W); raises `InputError` unless both arguments are those of a `ModelConfig`."""
    size = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    return build(ModelConfig, {"name": "", "image_size": size, "in_chans": in_chans}).image_size


@dataclass(frozen=True)
class Explanation:
    """Intermediate results of a forward pass, without gradients; None if the network has no such result.

    Attributes:
        logits: (N, num_classes).
        feature_maps: (N, C, h, w), the last ones of the network.
        origins: (N, 2) in [-1, 1].
        heatmaps: (N, h, w); the origins are their centroids.
        polar_images: (N, C, angles, radii), in the units of the images. Of volumes: (N, C, angles, radii, Z).
    """

    logits: Tensor
    feature_maps: Tensor | None = None
    origins: Tensor | None = None
    heatmaps: Tensor | None = None
    polar_images: Tensor | None = None


@contextmanager
def inferring(model: nn.Module) -> Iterator[None]:
    """Context manager: evaluation mode without gradients; restores the mode of every module on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


class Network(nn.Module, ABC):
    """Base class: images (N, *input_shape), floats in [0, 1] -> logits (N, num_classes).

    Images are normalized with the buffers `mean` and `std`: normalization is part of the network.

    Attributes:
        config: Arguments of `create_model` that build the network; missing if it cannot.
        classes: Names of the classes, or None.
        metadata: Facts about the training, such as "dataset", "recipe", "seed" and "test_error".
    """

    config: ModelConfig

    def __init__(
        self, input_shape: tuple[int, ...], classifier: nn.Module, transformer: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.classes: tuple[str, ...] | None = None
        self.metadata: dict[str, Any] = {}
        self.register_buffer("mean", torch.zeros(input_shape[0]))
        self.register_buffer("std", torch.ones(input_shape[0]))
        if transformer is not None:
            self.add_module("transformer", transformer)
        self.classifier = classifier

    @abstractmethod
    def classifier_input(self, images: Tensor) -> Tensor:
        """Normalized images that the classifier reads."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, num_classes), or pooled features (N, C) of a network with `num_classes=0`."""
        self.check(images)
        return self.classifier(self.classifier_input(images))

    def forward_features(self, images: Tensor, **options: Any) -> Tensor:
        """The last feature maps (N, C, h, w); options are those of `forward`."""
        self.check(images)
        return self.read(self.classifier_input(images, **options))[0]

    def explain(self, images: Tensor) -> Explanation:
        """Logits and intermediate results, in evaluation mode and without gradients."""
        self.check(images)
        with inferring(self):
            return self.trace(images)

    def trace(self, images: Tensor) -> Explanation:
        """`forward` with the intermediate results."""
        features, logits = self.read(self.classifier_input(images))
        return Explanation(logits, features)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The last feature maps and the logits of an input of the classifier."""
        assert isinstance(self.classifier, Classifier)
        features = self.classifier.features(x)
        return features, self.classifier.score(features)

    def normalize(self, images: Tensor) -> Tensor:
        """`images` standardized per channel."""
        shape = (-1, *(1,) * (images.dim() - 2))
        return (images - self.mean.view(shape)) / self.std.view(shape)  # type: ignore[operator]

    def set_normalization(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        """Set the mean and standard deviation per channel."""
        mean, std = torch.as_tensor(mean), torch.as_tensor(std)
        count = self.input_shape[0]
        valid = mean.shape == std.shape == (count,) and bool((mean.isfinite() & std.isfinite() & (std > 0)).all())
        check("mean and std", (mean.tolist(), std.tolist()), valid, f"{count} finite numbers each, std positive")
        self.mean.copy_(mean)  # type: ignore[operator]
        self.std.copy_(std)  # type: ignore[operator]

    def check(self, images: Tensor) -> None:
        """Raise `InputError` unless `images` have the shape, type and range of values that this network takes."""
        shape = f"(N, {', '.join(map(str, self.input_shape))})"
        check_images(images, shape)
        if tuple(images.shape[1:]) != self.input_shape:
            raise InputError(
                f"this model takes {shape}; got {tuple(images.shape)}: "
                "resize the images, or create the model with another image_size or in_chans"
            )
        if images.dtype != self.mean.dtype and not torch.is_autocast_enabled(images.device.type):
            raise InputTypeError(
                f"this model computes in {self.mean.dtype}; got {images.dtype}: convert the images"
            )
        check_range(images)
        if values_known(images) and len(images) and (low := float(images[0].detach().min())) < -0.5:
            raise InputError(
                f"expected images in [0, 1]; got values down to {low:g}: do not normalize them, the network does"
            )


class PlainNetwork(Network):
    """A classifier of the images themselves: CCNN, ResNet32."""

    def classifier_input(self, images: Tensor) -> Tensor:
        return self.normalize(images)


ROTATED_SHARE = 0.2
"""Share of a batch whose origins are compared with those of rotated images in training."""


class PolarNetwork(Network):
    """A classifier of polar images: PTN, PCNN, and the cylindrical network for volumes.

    Images are sampled before they are normalized. Pixels outside an image are therefore black like its background,
    and the border of the image is not visible. With `normalize_first` they have the mean of the training images.
    """

    transformer: PolarTransformer | CylindricalTransformer
    normalize_first = False

    def classifier_input(self, images: Tensor, origin: Tensor | None = None) -> Tensor:
        if origin is None and self._has_candidates:
            assert isinstance(self.transformer, PolarTransformer)
            origin = self.transformer.jitter(self.locate(images).origin, (images.shape[-2], images.shape[-1]))
        if self.normalize_first:
            return self.transformer(self.normalize(images), origin)
        guide = self.normalize(images) if origin is None else None
        return self._normalize_polar(self.transformer(images, origin, guide=guide))

    def _normalize_polar(self, polar: Tensor) -> Tensor:
        """`polar` with the channels of the image normalized, but not that of the frame."""
        channels = self.input_shape[0]
        if polar.shape[1] == channels:
            return self.normalize(polar)
        return torch.cat((self.normalize(polar[:, :channels]), polar[:, channels:]), dim=1)

    def forward(self, images: Tensor, origin: Tensor | None = None, *, with_evidence: bool = False) -> Any:
        """Logits (N, num_classes); `origin` (N, 2) replaces the predicted origin.

        `with_evidence` returns two more tensors for the loss of an `EvidencePredictor`: the logits of the evidence,
        and for a part of the images the squared distance between the centroid of the heatmap and that of the image
        rotated by 180°, rotated back.
        """
        self.check(images)
        if origin is not None or not self._has_candidates:
            return self.classifier(self.classifier_input(images, origin))
        normalized, count = self.normalize(images), images.shape[0]
        if not with_evidence:
            return self._joint_logits(images, self.transformer.locate(normalized)).logsumexp(dim=1)
        rotated = normalized[: math.ceil(count * ROTATED_SHARE)].rot90(2, (2, 3))
        every = self.transformer.locate(torch.cat((normalized, rotated)))
        parts: Any = [None if part is None else part[:count] for part in every]
        location = Location(*parts)
        logits = self._joint_logits(images, location).logsumexp(dim=1)
        assert every.heatmap is not None
        centers = centroid(every.heatmap)
        change = (centers[: len(rotated)] + centers[count:]).square().sum(dim=1)
        return logits, location.evidence, change

    @property
    def _has_candidates(self) -> bool:
        return isinstance(getattr(self.transformer, "predictor", None), EvidencePredictor)

    def _joint_logits(self, images: Tensor, location: Location) -> Tensor:
        """Logits (N, K, num_classes) around each candidate for the origin, plus the logarithm of its weight."""
        assert isinstance(self.transformer, PolarTransformer)
        assert location.candidates is not None
        assert location.log_weights is not None
        count = location.candidates.shape[1]
        origins = self.transformer.jitter(location.candidates, (images.shape[-2], images.shape[-1]))
        copies = images.repeat_interleave(count, dim=0)
        logits = self.classifier(self.classifier_input(copies, origins.flatten(0, 1)))
        return logits.unflatten(0, (-1, count)) + location.log_weights[..., None]

    def locate(self, images: Tensor) -> Location:
        """The origin and its heatmap; of several candidates, the one with the largest logits."""
        return self._locate(images)[0]

    def _locate(self, images: Tensor) -> tuple[Location, Tensor | None]:
        """The location, and the logits if they are those of several candidates."""
        location = self.transformer.locate(self.normalize(images))
        if location.candidates is None:
            return location, None
        logits = self._joint_logits(images, location)
        best = logits.logsumexp(dim=2).argmax(dim=1)
        origin = location.candidates.gather(1, best[:, None, None].expand(-1, 1, 2))[:, 0]
        return location._replace(origin=origin), logits.logsumexp(dim=1)

    def trace(self, images: Tensor) -> Explanation:
        location, joint = self._locate(images)
        features, logits = self.read(self.classifier_input(images, location.origin))
        polar = self.transformer.sample(images, location.origin)[:, : self.input_shape[0]]
        return Explanation(logits if joint is None else joint, features, location.origin, location.heatmap, polar)


class SpatialNetwork(Network):
    """A classifier of images in the canonical pose that a spatial transformer predicts: STN."""

    transformer: SpatialTransformer
    normalize_first = False

    def classifier_input(self, images: Tensor) -> Tensor:
        normalized = self.normalize(images)
        pose = self.transformer.locate(normalized)
        if self.normalize_first:
            return self.transformer.sample(normalized, pose)
        return self.normalize(self.transformer.sample(images, pose))


class Ensemble(nn.Module):
    """Averages the softmax of independently trained networks.

    The logits are the logarithm of the mean probabilities, so that their softmax is the mean.

    Args:
        members: networks for the same images and classes.
    """

    config: ModelConfig

    def __init__(self, members: Sequence[Network]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.input_shape = members[0].input_shape
        self.classes = members[0].classes
        self.metadata: dict[str, Any] = {}

    def forward(self, images: Tensor, origin: Tensor | None = None) -> Tensor:
        """Logits (N, num_classes); `origin` (N, 2) replaces the predicted origin of members that have one."""
        logits = []
        for member in self.members:
            options = {"origin": origin} if isinstance(member, PolarNetwork) else {}
            logits.append(member(images, **options))
        return _mean_logits(logits)

    def set_normalization(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        """Set the mean and standard deviation per channel of every member."""
        for member in self.members:
            assert isinstance(member, Network)
            member.set_normalization(mean, std)

    def explain(self, images: Tensor) -> Explanation:
        """The logits of the ensemble with the intermediate results of its first member."""
        parts = [member.explain(images) for member in self.members if isinstance(member, Network)]
        return replace(parts[0], logits=_mean_logits([part.logits for part in parts]))


def _mean_logits(logits: list[Tensor]) -> Tensor:
    log_probabilities = torch.stack([member.log_softmax(dim=1) for member in logits])
    return log_probabilities.logsumexp(dim=0) - math.log(len(logits))


Model = Network | Ensemble
"""Return type of `create_model`."""


# Builders: the keyword options of each, less those that the zoo fixes, are the options of `create_model`.


def plain_network(config: ModelConfig, *, stack: Stack, dropout: float = 0.0) -> PlainNetwork:
    """Conventional CNN, of images or, with the stack "voxels", of voxels."""
    size = (_cube_size(config),) * 3 if stack == "voxels" else config.image_size
    classifier = make_classifier(stack, config.in_chans, config.num_classes, config.image_size, dropout=dropout)
    return PlainNetwork((config.in_chans, *size), classifier)


def polar_network(
    config: ModelConfig,
    *,
    stack: Stack,
    origin: Origin,
    angles: int | None = None,
    radii: int | None = None,
    r_min_px: float | None = None,
    r_max_px: float | None = None,
    law: Law = "log",
    mode: Mode = "bilinear",
    padding_mode: Padding = "zeros",
    frame: Frame | None = None,
    antialias: bool = False,
    heatmap: Heatmap = "softplus",
    origin_turns: int = 1,
    origin_jitter_px: float | None = None,
    wrap: bool = True,
    dropout: float = 0.0,
    upright: bool = False,
) -> PolarNetwork:
    """PTN (learned origin) and PCNN (the centre of the image).

    Args:
        angles: By default the height of the image, with stack L twice the height.
        radii: By default the width of the image.
        padding_mode: Values outside the image; "mean" is that of the original code of the paper.
        frame: "disc" shows the classifier where the image ends; see `PolarTransformer`, also for `antialias`.
        heatmap: "softplus" or, as in the paper, "linear"; "contrast" follows an object on a uniform background
            (see `OriginPredictor`); "evidence" finds objects among clutter (see `EvidencePredictor`).
        origin_jitter_px: By default 2 for a learned origin.
        wrap: Whether convolutions wrap around the angle.
        upright: Let the logits depend on the rotation of the object, for upright images: see `RowHead`.
    """
    channels, (height, width) = config.in_chans, config.image_size
    predictor: OriginPredictor | EvidencePredictor | None = None
    if origin == "learned" and stack == "resnet32" and heatmap != "evidence":
        body = Blocks(ConvBlock(channels, 16), *(ResidualBlock(16, 16, stride=stride) for stride in (2, 1, 1, 1)))
        predictor = OriginPredictor(body, 16, heatmap=heatmap, origin_turns=origin_turns)
    elif origin == "learned":
        predictor = default_predictor(
            channels, (height, width), heatmap=heatmap, origin_turns=origin_turns, num_classes=config.num_classes
        )
    if angles is None:
        angles = 2 * height if stack == "l" else height
    radii = width if radii is None else radii
    limit = max(2**20, 2 * height * width)  # halvings are those of the image
    check("angles × radii", (angles, radii), angles * radii <= limit, f"at most {limit:,} for this image_size")
    grid = PolarGrid(angles, radii, r_min_px=r_min_px, r_max_px=r_max_px, law=law)
    options: Any = {"mode": mode, "frame": frame, "antialias": antialias}
    transformer = make_transformer(grid, predictor, origin_jitter_px, padding_mode, **options)
    rows, inputs = angles if upright else None, channels + (frame is not None)
    classifier = make_classifier(
        stack, inputs, config.num_classes, config.image_size, wrap=wrap, dropout=dropout, rows=rows
    )
    network = PolarNetwork((channels, height, width), classifier, transformer)
    network.normalize_first = padding_mode == "mean"
    return network


def make_transformer(
    grid: PolarGrid,
    predictor: OriginPredictor | EvidencePredictor | None,
    origin_jitter_px: float | None,
    padding_mode: Padding,
    **options: Any,
) -> PolarTransformer:
    """Returns the transformer of a polar network; with padding mode "mean" it samples normalized images.

    Args:
        origin_jitter_px: By default 2 for a learned origin.
        options: Others of `PolarTransformer`.
    """
    check_choice("padding_mode", padding_mode, ("zeros", "border", "mean"))
    if origin_jitter_px is None:
        origin_jitter_px = 0.0 if predictor is None else 2.0
    sampled = "zeros" if padding_mode == "mean" else padding_mode
    return PolarTransformer(grid, predictor, origin_jitter_px=origin_jitter_px, padding_mode=sampled, **options)


def spatial_network(
    config: ModelConfig,
    *,
    stack: Stack,
    mode: Mode = "bilinear",
    padding_mode: Padding = "zeros",
    dropout: float = 0.0,
) -> SpatialNetwork:
    """Spatial transformer network over SIM(2). Its localizer has four blocks of stride 2 and 20 hidden units."""
    channels, (height, width) = config.in_chans, config.image_size
    blocks = [ConvBlock(c, 20, stride=2) for c in (channels, 20, 20, 20)]
    hidden = nn.Linear(20 * math.ceil(height / 16) * math.ceil(width / 16), 20)
    pose = nn.Linear(20, 4)
    nn.init.zeros_(pose.weight)
    nn.init.zeros_(pose.bias)
    localizer = nn.Sequential(Blocks(*blocks), nn.Flatten(), hidden, nn.ReLU(), pose)
    classifier = make_classifier(stack, channels, config.num_classes, (height, width), dropout=dropout)
    sampled = "zeros" if padding_mode == "mean" else padding_mode
    transformer = SpatialTransformer(localizer, mode=mode, padding_mode=sampled)
    network = SpatialNetwork((channels, height, width), classifier, transformer)
    network.normalize_first = padding_mode == "mean"
    return network


def cylindrical_network(
    config: ModelConfig,
    *,
    stack: Stack,
    origin: Origin = "learned",
    angles: int | None = None,
    heatmap: HeatmapActivation = "softplus",
    origin_jitter_px: float = 0.0,
    wrap: bool = True,
    dropout: float = 0.0,
) -> PolarNetwork:
    """Cylindrical network: voxels (N, C, size, size, size) -> (N, num_classes).

    The axis predictor has four blocks of 5×5 over the slices as channels, the first of stride 2 before residual
    blocks.
    """
    size, channels = _cube_size(config), config.in_chans
    predictor = None
    if origin == "learned":
        widths = pairwise((channels * size, 32, 16, 8, 4))
        strides = (1 if stack == "voxels" else 2, 1, 1, 1)
        blocks = [ConvBlock(c, d, kernel=5, stride=s) for (c, d), s in zip(widths, strides, strict=True)]
        predictor = OriginPredictor(Blocks(*blocks), 4, heatmap=heatmap)
    grid = PolarGrid(size if angles is None else angles, size, r_max_px=size / 2, law="linear")
    transformer = CylindricalTransformer(grid, predictor, origin_jitter_px=origin_jitter_px)
    classifier = make_classifier(stack, channels, config.num_classes, config.image_size, wrap=wrap, dropout=dropout)
    return PolarNetwork((channels, size, size, size), classifier, transformer)


def _cube_size(config: ModelConfig) -> int:
    size, other = config.image_size
    if size != other:
        raise InputError(f"a network for voxels takes cubes: give image_size as one number; got {size, other}")
    check(
        "image_size × in_chans of voxels", size * config.in_chans, size * config.in_chans <= 1024, "at most 1,024"
    )
    return size
