"""Origin prediction: a heatmap, its centroid, and the network that predicts it."""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import checked
from ..errors import InputError, InputTypeError, check_choice
from .conv import Blocks, ConvBlock, RandomLayer

HeatmapActivation = Literal["softplus", "linear"]
HEATMAP_ACTIVATIONS = ("softplus", "linear")
ConvHeatmap = Literal["softplus", "linear", "contrast"]
CONV_HEATMAPS = (*HEATMAP_ACTIVATIONS, "contrast")
Heatmap = Literal["softplus", "linear", "contrast", "evidence"]
HEATMAPS = (*CONV_HEATMAPS, "evidence")

# The sum of a heatmap counts as zero below this share of its absolute sum, or below this value.
_ZERO_SHARE = 1e-6
_ZERO_SUM = 1e-30

CANDIDATES = 2
"""Number of candidates for the origin of an `EvidencePredictor`."""


class Location(NamedTuple):
    """An origin (N, 2) in [-1, 1] and the heatmap (N, h, w) that it was read from.

    That of an `EvidencePredictor` has the logits of the evidence, (N, num_classes), and several candidates for the
    origin, (N, K, 2), with the logarithms of their weights, (N, K). The first candidate is `origin`.
    """

    origin: Tensor
    heatmap: Tensor | None
    evidence: Tensor | None = None
    candidates: Tensor | None = None
    log_weights: Tensor | None = None


def activate_heatmap(heatmap: Tensor, activation: HeatmapActivation = "softplus") -> Tensor:
    """Returns the weights (N, h, w) of a raw heatmap (N, h, w) or (N, 1, h, w), in float32 or float64."""
    check_choice("heatmap", activation, HEATMAP_ACTIVATIONS)
    if heatmap.dim() == 4 and heatmap.shape[1] == 1:
        heatmap = heatmap[:, 0]
    if heatmap.dim() != 3:
        raise InputError(f"expected a heatmap (N, h, w) or (N, 1, h, w); got shape {tuple(heatmap.shape)}")
    values = heatmap if heatmap.dtype == torch.float64 else heatmap.float()
    return F.softplus(values) if activation == "softplus" else values


def centroid(weights: Tensor) -> Tensor:
    """Returns the centre of mass of each map: (N, h, w) -> (N, 2) as (x, y), pixel centres at (2i+1)/n - 1.

    Weights may be negative: the paper's heatmap is signed. If their sum is zero, the centroid is the centre of the
    map. The result is clamped to [-1, 1].
    """
    height, width = weights.shape[-2:]
    x = (2 * torch.arange(width, dtype=weights.dtype, device=weights.device) + 1) / width - 1
    y = (2 * torch.arange(height, dtype=weights.dtype, device=weights.device) + 1) / height - 1
    mass = weights.sum(dim=(-2, -1))
    # The coordinates sum to zero, so subtracting a constant changes rounding only: the centroid of a uniform map is
    # exactly the centre.
    raised = weights - weights.detach().amin(dim=(-2, -1), keepdim=True)
    moment = torch.stack(((raised.sum(dim=-2) * x).sum(dim=-1), (raised.sum(dim=-1) * y).sum(dim=-1)), dim=-1)
    is_zero = mass.abs() <= (_ZERO_SHARE * weights.abs().sum(dim=(-2, -1))).clamp(min=_ZERO_SUM)
    divisor = torch.where(is_zero, torch.ones_like(mass), mass)
    centre = torch.where(is_zero[:, None], torch.zeros_like(moment), moment / divisor[:, None])
    return centre.clamp(-1, 1)


def heatmap_centroid(heatmap: Tensor, activation: HeatmapActivation = "softplus") -> Tensor:
    """Returns the origin of a raw heatmap: (N, h, w) or (N, 1, h, w) -> (N, 2) in [-1, 1].

    Args:
        heatmap: (N, h, w) or (N, 1, h, w), before the activation.
        activation: applied to the heatmap before the centroid: "linear", the identity, as in the paper; "softplus"
            makes weights positive, so that the centroid is well-conditioned.
    """
    if not isinstance(heatmap, Tensor):
        raise InputTypeError(f"heatmap must be a tensor (N, h, w); got {heatmap!r}")
    return centroid(activate_heatmap(heatmap, activation))


def normalize_heatmap(heatmap: Tensor) -> Tensor:
    """Returns a heatmap scaled to [0, 1] for display: (…, h, w) -> (…, h, w), a constant map as zeros.

    A map and its negative have the same centroid, so a map with a negative sum is negated first.
    """
    weights = heatmap.detach().float()
    weights = torch.where(weights.sum(dim=(-2, -1), keepdim=True) < 0, -weights, weights)
    weights = weights - weights.amin(dim=(-2, -1), keepdim=True)
    return weights / weights.amax(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


class ChannelSum(nn.Conv2d):
    """A 1×1 convolution to one channel as a weighted sum: (N, C, h, w) -> (N, 1, h, w), in float32 or float64.

    It takes fewer kernels on a GPU than a convolution to one channel.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        x = x if x.dtype == torch.float64 else x.float()
        return (x * self.weight).sum(dim=1, keepdim=True) + self.bias


class OriginPredictor(nn.Module):
    """Predicts the origin of each image as the centroid of a heatmap: (N, C, H, W) -> Location.

    The heatmap is a 1×1 convolution to one channel of the output of `body`, a fully convolutional network. That
    convolution starts with weights 0 and bias 1, so that the first origin is the centre of the image. Do not apply
    weight decay to it: the centroid is divided by the sum of the heatmap.

    Args:
        body: (N, C, H, W) -> (N, channels, h, w).
        channels: channels of the output of `body`.
        heatmap: activation of the heatmap, see `heatmap_centroid`; or "contrast", the squared difference from the
            heatmap of a uniform image with the smallest values of the image. A uniform dark background then has no
            weight, and the origin follows an object to positions that do not occur in training. Its convolution
            starts with random weights.
        origin_turns: 1, or 4: the heatmap is the mean over the four rotations of the image by multiples of 90°,
            each rotated back. The origin is then exactly equivariant to these rotations. For square images.
    """

    @checked
    def __init__(
        self, body: nn.Module, channels: int, *, heatmap: ConvHeatmap = "softplus", origin_turns: int = 1
    ) -> None:
        super().__init__()
        check_choice("heatmap", heatmap, CONV_HEATMAPS)
        if origin_turns not in (1, 4):
            raise InputError(f"origin_turns must be 1 or 4; got {origin_turns}")
        self.body = body
        self.head = ChannelSum(channels)
        if heatmap == "contrast":
            nn.init.normal_(self.head.weight, std=channels**-0.5)
        else:
            nn.init.zeros_(self.head.weight)
        nn.init.ones_(self.head.bias)  # type: ignore[arg-type]
        self.heatmap: ConvHeatmap = heatmap
        self.origin_turns = origin_turns

    def forward(self, x: Tensor) -> Location:
        heatmap = self._heatmap(x) if self.origin_turns == 1 else self._mean_heatmap(x)
        return Location(centroid(heatmap), heatmap)

    def _heatmap(self, x: Tensor) -> Tensor:
        if self.heatmap != "contrast":
            return activate_heatmap(self.head(self.body(x)), self.heatmap)
        uniform = x.amin(dim=(1, 2, 3), keepdim=True).expand_as(x)
        raw, background = self.head(self.body(torch.cat((x, uniform))))[:, 0].chunk(2)
        return (raw - background).square()

    def _mean_heatmap(self, x: Tensor) -> Tensor:
        if x.shape[-2] != x.shape[-1]:
            raise InputError(f"origin_turns=4 takes square images; got {x.shape[-2]}×{x.shape[-1]}")
        rotated = torch.cat([x.rot90(turns, (2, 3)) for turns in range(4)])
        heatmaps = self._heatmap(rotated).unflatten(0, (4, x.shape[0]))
        return torch.stack([part.rot90(-turns, (1, 2)) for turns, part in enumerate(heatmaps)]).mean(dim=0)


def halvings(image_size: tuple[int, int]) -> int:
    """Returns how often an image is halved to reach about 28 pixels, the size of the paper's first networks."""
    return max(0, round(math.log2(max(image_size) / 28)))


def default_predictor(
    in_chans: int,
    image_size: tuple[int, int] | None = None,
    *,
    heatmap: Heatmap = "softplus",
    origin_turns: int = 1,
    num_classes: int = 0,
) -> "OriginPredictor | EvidencePredictor":
    """Returns the paper's origin predictor: three blocks of 20 channels, the first with stride 2.

    Args:
        in_chans: channels of the images.
        image_size: (H, W). At 96 pixels the first two blocks have stride 2, at 160 and more all three.
        heatmap, origin_turns: see `OriginPredictor`; "evidence" returns an `EvidencePredictor` instead.
        num_classes: number of classes, for `heatmap="evidence"`.
    """
    check_choice("heatmap", heatmap, HEATMAPS)
    if heatmap == "evidence":
        if origin_turns != 1 or image_size is None:
            raise InputError('heatmap="evidence" needs image_size, and origin_turns=1')
        return EvidencePredictor(in_chans, num_classes, image_size)
    strided = 1 if image_size is None else min(3, max(1, halvings(image_size)))
    strides = (2,) * strided + (1,) * (3 - strided)
    blocks = [ConvBlock(c, 20, stride=stride) for c, stride in zip((in_chans, 20, 20), strides, strict=True)]
    return OriginPredictor(Blocks(*blocks), 20, heatmap=heatmap, origin_turns=origin_turns)


def heatmap_peaks(heatmap: Tensor, count: int, radius: float = 2.0) -> tuple[Tensor, Tensor]:
    """Returns the largest peaks of a positive heatmap: (N, h, w) -> positions (N, count, 2), sums (N, count).

    A peak is the centroid of the positions within `radius` of the largest value, which the next peaks do not use.
    """
    height, width = heatmap.shape[-2:]
    rows = torch.arange(height, dtype=heatmap.dtype, device=heatmap.device)
    columns = torch.arange(width, dtype=heatmap.dtype, device=heatmap.device)
    x, y = (2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1
    free = torch.ones_like(heatmap)
    peaks, sums = [], []
    for _ in range(count):
        largest = (heatmap.detach() * free).flatten(1).argmax(dim=1)
        row, column = largest.div(width, rounding_mode="floor"), largest % width
        squared = (rows[:, None] - row[:, None, None]).square() + (columns - column[:, None, None]).square()
        near = (squared <= radius**2).to(heatmap.dtype) * free
        weights = heatmap * near
        total = weights.sum(dim=(1, 2)).clamp(min=_ZERO_SUM)
        moment = torch.stack(((weights.sum(dim=1) * x).sum(dim=1), (weights.sum(dim=2) * y).sum(dim=1)), dim=1)
        peaks.append(moment / total[:, None])
        sums.append(total)
        free = free * (1 - near)
    return torch.stack(peaks, dim=1), torch.stack(sums, dim=1)


class EvidencePredictor(nn.Module):
    """Predicts the origin of each image as the place of the evidence for its class: (N, C, H, W) -> Location.

    A fully convolutional network predicts a map of evidence e_k(p) for each class k. The heatmap is the softmax
    over positions p of τ·logsumexp_k e_k(p), with a learned τ. Its largest peaks (`heatmap_peaks`) are candidates
    for the origin. A `PolarNetwork` classifies the polar images around all of them: its logits are
    logsumexp_c (logits of candidate c + β·log of its sum), with a learned β, so an object that is not at the
    largest peak is still recognized.

    The logits of the evidence are (logsumexp_p τ·e_k(p) - log P)/τ for P positions: between the mean (τ = 0) and
    the maximum. A classification loss on them (the trainer adds one) teaches the predictor where objects are before
    the classifier of polar images has learned anything.

    Args:
        in_chans: channels of the images.
        num_classes: number of classes.
        image_size: (H, W). The receptive field is 35 pixels up to 80, about twice as many up to 160, and so on.
    """

    def __init__(self, in_chans: int, num_classes: int, image_size: tuple[int, int]) -> None:
        super().__init__()
        if num_classes < 1:
            raise InputError('heatmap="evidence" needs classes: use num_classes of at least 1, or another heatmap')
        widths, strides = (in_chans, 16, 32, 32, 64, 64, 64), [2, 1, 2, 1, 1, 1]
        for index in range(min(3, max(0, halvings(image_size) - 1))):
            strides[(1, 3, 4)[index]] = 2
        blocks = [ConvBlock(c, d, stride=s) for (c, d), s in zip(pairwise(widths), strides, strict=True)]
        self.body = Blocks(*blocks)
        self.head = nn.Conv2d(widths[-1], num_classes, 1)
        # Starting from 4, objects among clutter are found in half as many epochs as from 1 or with the maximum.
        self.log_sharpness = nn.Parameter(torch.tensor(4.0).log())
        self.prior = nn.Parameter(torch.tensor(0.5))  # β

    def forward(self, x: Tensor) -> Location:
        evidence = self.head(self.body(x))
        evidence = evidence if evidence.dtype == torch.float64 else evidence.float()
        sharpness = self.log_sharpness.exp()
        total = sharpness * evidence.logsumexp(dim=1)
        heatmap = total.flatten(1).softmax(dim=1).view_as(total)
        logits = (sharpness * evidence).flatten(2).logsumexp(dim=2) - math.log(total[0].numel())
        candidates, sums = heatmap_peaks(heatmap, CANDIDATES)
        return Location(candidates[:, 0], heatmap, logits / sharpness, candidates, self.prior * sums.log())


class OriginJitter(RandomLayer):
    """Adds uniform noise of up to `amount_px` pixels along x and y to each origin, in training only.

    All candidates for the origin of an image, (N, K, 2), move by the same vector.
    """

    def __init__(self, amount_px: float) -> None:
        super().__init__(2)
        if not amount_px >= 0:
            raise InputError(f"origin_jitter_px must be at least 0; got {amount_px}")
        self.amount_px = amount_px

    def forward(self, origin: Tensor, size: tuple[int, int]) -> Tensor:
        if not self.training or self.amount_px == 0:
            return origin
        height, width = size
        x, y = (2 * self.uniform(origin.shape[0], origin.device) - 1).to(origin.dtype).unbind(dim=1)
        step = torch.stack((x * (2 * self.amount_px / width), y * (2 * self.amount_px / height)), dim=1)
        return origin + (step if origin.dim() == 2 else step[:, None])
