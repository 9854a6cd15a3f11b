"""Whole networks: normalisation, a transformer, a classifier; and sums of their scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..geometry import Warp, similarity_warp
from ..geometry.interpolate import check_images
from ..layers import CylindricalTransformer, PolarTransformer, SpatialTransformer, StreamDropout
from .classifiers import ConvStack, ResNet

if TYPE_CHECKING:
    from .zoo import ModelConfig


@dataclass(frozen=True)
class Explanation:
    """How a network came to its answer, without gradients. What a network does not have is None.

    `logits` (N, num_classes); `feature_maps` (N, C, h, w), the last before the scores; `origins` (N, 2) in
    [-1, 1]; `heatmaps` (N, h, w), whose centroids they are; `polar_images` (N, C, angles, radii), in the
    units of the images. Volumes have one axis more: (N, C, angles, radii, Z).
    """

    logits: Tensor
    feature_maps: Tensor | None = None
    origins: Tensor | None = None
    heatmaps: Tensor | None = None
    polar_images: Tensor | None = None


@contextmanager
def inferring(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside the block; afterwards every module is in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


class Network(nn.Module, ABC):
    """What all networks share: images as floats in [0, 1] come in, and are normalised by buffers of the model."""

    config: "ModelConfig"

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.register_buffer("mean", torch.zeros(input_shape[0]))
        self.register_buffer("std", torch.ones(input_shape[0]))

    def normalize(self, images: Tensor) -> Tensor:
        """`images` standardised per channel."""
        shape = (-1, *(1,) * (images.dim() - 2))
        return (images - self.mean.view(shape)) / self.std.view(shape)  # type: ignore[operator]

    def set_normalization(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        """Standardise by this mean and deviation per channel."""
        if not (torch.as_tensor(std) > 0).all():
            raise InputError(f"std must be positive; got {std}")
        for name, values in (("mean", mean), ("std", std)):
            buffer: Tensor = getattr(self, name)
            given = torch.as_tensor(values, dtype=buffer.dtype)
            if given.shape != buffer.shape or not torch.isfinite(given).all():
                raise InputError(f"{name} must be {len(buffer)} finite numbers; got {values}")
            buffer.copy_(given)

    def check(self, images: Tensor) -> None:
        """Raise unless `images` are what this network was made for."""
        check_images(images, f"(N, {', '.join(map(str, self.input_shape))})")
        if tuple(images.shape[1:]) != self.input_shape:
            raise InputError(
                f"this model takes (N, {', '.join(map(str, self.input_shape))}); got {tuple(images.shape)}: "
                "resize the images, or create the model with other image_size and in_chans"
            )

    def explain(self, images: Tensor) -> Explanation:
        """How the network comes to its answer for `images`, in evaluation mode and without gradients."""
        self.check(images)
        with inferring(self):
            return self.trace(images)

    @abstractmethod
    def trace(self, images: Tensor) -> Explanation:
        """`forward` with everything in between."""


class PlainNetwork(Network):
    """A classifier of images as they are: CCNN, ResNet32."""

    def __init__(self, input_shape: tuple[int, ...], classifier: ConvStack | ResNet) -> None:
        super().__init__(input_shape)
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        return self.classifier(self.normalize(images))

    def trace(self, images: Tensor) -> Explanation:
        features = self.classifier.features(self.normalize(images))
        return Explanation(self.classifier.score(features), features)


class PolarNetwork(Network):
    """A classifier of polar images around a learned, fixed or given origin: PTN, PCNN, the cylindrical network.

    The image is sampled before it is normalised, so that what lies outside it is black like its background
    rather than grey: the frame of the image does not turn with what it shows.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        transformer: PolarTransformer | CylindricalTransformer,
        classifier: nn.Module,
    ) -> None:
        super().__init__(input_shape)
        self.transformer = transformer
        self.classifier = classifier

    def forward(self, images: Tensor, origin: Tensor | None = None, *, warp: Warp | None = None) -> Tensor:
        """Logits; `origin` (N, 2) overrides the predicted one.

        With `warp` those of the images warped: their origins are found there, their polar images read here.
        """
        self.check(images)
        if warp is None:
            guide = self.normalize(images) if origin is None else None
            return self.classifier(self.normalize(self.transformer(images, origin, guide=guide)))
        guide = self.normalize(similarity_warp(images, **warp._asdict()))
        return self.classifier(self.normalize(self.transformer(images, guide=guide, warp=warp)))

    def trace(self, images: Tensor) -> Explanation:
        location = self.transformer.locate(self.normalize(images))
        polar = self.transformer.sample(images, location.origin)
        features, logits = self.read(self.normalize(polar))
        return Explanation(logits, features, location.origin, location.heatmap, polar)

    def read(self, polar: Tensor) -> tuple[Tensor, Tensor]:
        """The last feature maps of normalised polar images, and their logits."""
        classifier = self.classifier
        assert isinstance(classifier, ConvStack | ResNet)
        features = classifier.features(polar)
        return features, classifier.score(features)


class TwoStreamNetwork(PolarNetwork):
    """A polar network beside a classifier of the image itself, learning together: their logits are summed.

    That is one linear layer over the feature maps of both. With `dropout` (see `StreamDropout`) one of the two is
    left out at times, in training.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        transformer: PolarTransformer,
        classifier: ConvStack | ResNet,
        cartesian: ConvStack | ResNet,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_shape, transformer, classifier)
        self.cartesian = cartesian
        # none where there is nothing to drop: it would take random numbers from the layers after it
        self.dropout = StreamDropout(dropout) if dropout else None

    def forward(self, images: Tensor, origin: Tensor | None = None, *, warp: Warp | None = None) -> Tensor:
        self.check(images)
        seen = images if warp is None else similarity_warp(images, **warp._asdict())
        upright: Tensor = self.cartesian(self.normalize(seen))
        polar = super().forward(images, origin, warp=warp)
        return upright + polar if self.dropout is None else self.dropout(upright, polar)

    def trace(self, images: Tensor) -> Explanation:
        upright: Tensor = self.cartesian(self.normalize(images))
        polar = super().trace(images)
        return replace(polar, logits=upright + polar.logits)


class SpatialNetwork(Network):
    """A classifier of images brought into canonical pose by a spatial transformer: STN."""

    def __init__(
        self, input_shape: tuple[int, ...], transformer: SpatialTransformer, classifier: ConvStack | ResNet
    ) -> None:
        super().__init__(input_shape)
        self.transformer = transformer
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        pose = self.transformer.locate(self.normalize(images))
        return self.classifier(self.normalize(self.transformer.sample(images, pose)))

    def trace(self, images: Tensor) -> Explanation:
        pose = self.transformer.locate(self.normalize(images))
        features = self.classifier.features(self.normalize(self.transformer.sample(images, pose)))
        return Explanation(self.classifier.score(features), features)


class ScoreSum(nn.Module):
    """Networks trained apart that vote by the sum of their softmax scores: PTN-CNN, ensembles.

    Its logits are the logarithm of the mean score, so that their softmax is the mean score itself.
    """

    config: "ModelConfig"

    def __init__(self, members: Sequence[Network]) -> None:
        super().__init__()
        if not members:
            raise InputError("a sum of scores needs at least one network")
        shapes = {member.input_shape for member in members}
        if len(shapes) > 1:
            raise InputError(f"networks whose scores are summed must take the same images; got {sorted(shapes)}")
        self.members = nn.ModuleList(members)
        self.input_shape = members[0].input_shape

    def forward(self, images: Tensor, origin: Tensor | None = None) -> Tensor:
        """Logits; `origin` (N, 2) overrides the predicted one of the members that have one."""
        answers = []
        for member in self.members:
            given = {"origin": origin} if isinstance(member, PolarNetwork) else {}
            answers.append(member(images, **given))
        return self._sum(answers)

    def set_normalization(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        """Standardise by this mean and deviation per channel, in every member."""
        for member in self.members:
            if isinstance(member, Network):
                member.set_normalization(mean, std)

    def explain(self, images: Tensor) -> Explanation:
        """The first member's explanation with the logits of the sum."""
        parts = [member.explain(images) for member in self.members if isinstance(member, Network)]
        first = parts[0]
        logits = self._sum([part.logits for part in parts])
        return Explanation(logits, first.feature_maps, first.origins, first.heatmaps, first.polar_images)

    def _sum(self, logits: list[Tensor]) -> Tensor:
        classes = [member.shape[1] for member in logits]
        if len(set(classes)) > 1:
            raise InputError(f"the members score {classes} classes: they must be the same")
        scores = torch.stack([member.log_softmax(dim=1) for member in logits])
        return scores.logsumexp(dim=0) - math.log(len(logits))


Model = Network | ScoreSum
"""What `create_model` returns."""
