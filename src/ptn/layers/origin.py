"""Where the object's centre is: a heatmap, its centroid, and the network that draws it."""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, check_choice
from .noise import RandomLayer

HeatmapActivation = Literal["softplus", "linear", "softmax"]
ACTIVATIONS = ("softplus", "linear", "softmax")

# below this share of its absolute mass, or below this sum, a heatmap counts as vanished
VANISHING = 1e-6
FAINT = 1e-30


class Location(NamedTuple):
    """An origin (N, 2) in [-1, 1] and the heatmap (N, h, w) whose centroid it is, if it was predicted."""

    origin: Tensor
    heatmap: Tensor | None


def activate_heatmap(heatmap: Tensor, activation: HeatmapActivation = "softplus") -> Tensor:
    """Raw scores (N, h, w) or (N, 1, h, w) as weights (N, h, w), in float32 at least."""
    check_choice("heatmap activation", activation, ACTIVATIONS)
    if not isinstance(heatmap, Tensor):
        raise InputError(f"expected a heatmap tensor (N, h, w) or (N, 1, h, w); got {type(heatmap).__name__}")
    if heatmap.dim() == 4 and heatmap.shape[1] == 1:
        heatmap = heatmap[:, 0]
    if heatmap.dim() != 3 or not heatmap.is_floating_point():
        raise InputError(
            f"expected a floating-point heatmap (N, h, w) or (N, 1, h, w); "
            f"got {heatmap.dtype} {tuple(heatmap.shape)}"
        )
    scores = heatmap if heatmap.dtype == torch.float64 else heatmap.float()
    if activation == "softplus":
        return F.softplus(scores)
    if activation == "softmax":
        return scores.flatten(1).softmax(dim=1).view_as(scores)
    return scores


def centroid(weights: Tensor) -> Tensor:
    """The centre of mass of each map: (N, h, w) -> (N, 2) as (x, y) in [-1, 1], pixel centres at (2i+1)/n - 1.

    Weights may be negative (the paper's heatmap is signed). Where their sum vanishes the centroid is the
    middle of the map, and it never leaves the map.
    """
    height, width = weights.shape[-2:]
    x = (2 * torch.arange(width, dtype=weights.dtype, device=weights.device) + 1) / width - 1
    y = (2 * torch.arange(height, dtype=weights.dtype, device=weights.device) + 1) / height - 1
    mass = weights.sum(dim=(-2, -1))
    # the coordinates sum to zero, so a constant taken off the weights changes nothing but rounding:
    # a uniform map has its centroid in the middle exactly
    rest = weights - weights.detach().amin(dim=(-2, -1), keepdim=True)
    moment = torch.stack(((rest.sum(dim=-2) * x).sum(dim=-1), (rest.sum(dim=-1) * y).sum(dim=-1)), dim=-1)
    vanishes = mass.abs() <= (VANISHING * weights.abs().sum(dim=(-2, -1))).clamp(min=FAINT)
    safe = torch.where(vanishes, torch.ones_like(mass), mass)
    centre = torch.where(vanishes[:, None], torch.zeros_like(moment), moment / safe[:, None])
    return centre.clamp(-1, 1)


def heatmap_centroid(heatmap: Tensor, activation: HeatmapActivation = "softplus") -> Tensor:
    """The origin that a heatmap of raw scores points at: (N, h, w) or (N, 1, h, w) -> (N, 2) in [-1, 1].

    `activation` makes weights of the scores: "linear" takes them as they are, the paper's choice; "softplus"
    and "softmax" make them positive, so that the origin is always inside the image.
    """
    return centroid(activate_heatmap(heatmap, activation))


class ChannelSum(nn.Conv2d):
    """A 1×1 convolution to one channel, (N, C, h, w) -> (N, 1, h, w), as the sum over channels that it is.

    In float32 at least, and in fewer kernels on a GPU than a convolution to one channel takes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        x = x if x.dtype == torch.float64 else x.float()
        return (x * self.weight).sum(dim=1, keepdim=True) + self.bias


class OriginPredictor(nn.Module):
    """A fully convolutional `body`, a 1×1 convolution to one channel, and the centroid of that heatmap.

    (N, C, H, W) -> Location. The 1×1 convolution starts with weights 0 and `bias`, so that the first origin is
    the middle of the image. The larger the bias, the longer the heatmap stays broad, and the origin in the middle.
    Keep weight decay off it: its sum is what the centroid is divided by.

    With 4 `turns` the heatmap is the mean of those of the image turned by quarters, each turned back: when the
    image turns by a quarter, so does the origin, exactly, whatever the predictor has seen in training.
    """

    def __init__(
        self,
        body: nn.Module,
        channels: int,
        *,
        activation: HeatmapActivation = "softplus",
        bias: float = 1.0,
        turns: int = 1,
    ) -> None:
        super().__init__()
        check_choice("heatmap activation", activation, ACTIVATIONS)
        if turns not in (1, 4):
            raise InputError(f"origin_turns must be 1 or 4; got {turns}")
        if not (math.isfinite(bias) and bias > 0):
            raise InputError(f"heatmap_bias must be a positive number; got {bias}")
        self.body = body
        self.head = ChannelSum(channels)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, bias)  # type: ignore[arg-type]
        self.activation: HeatmapActivation = activation
        self.turns = turns

    def forward(self, x: Tensor) -> Location:
        heatmap = self._draw(x) if self.turns == 1 else self._draw_turned(x)
        return Location(centroid(heatmap), heatmap)

    def _draw(self, x: Tensor) -> Tensor:
        return activate_heatmap(self.head(self.body(x)), self.activation)

    def _draw_turned(self, x: Tensor) -> Tensor:
        if x.shape[-2] != x.shape[-1]:
            raise InputError(f"origin_turns=4 takes square images; got {x.shape[-2]}×{x.shape[-1]}")
        turned = torch.cat([x.rot90(turn, (2, 3)) for turn in range(self.turns)])
        parts = self._draw(turned).unflatten(0, (self.turns, x.shape[0]))
        return torch.stack([part.rot90(-turn, (1, 2)) for turn, part in enumerate(parts)]).mean(dim=0)


class OriginJitter(RandomLayer):
    """Moves each origin by up to `amount_px` pixels along x and y, uniformly, in training only."""

    def __init__(self, amount_px: float) -> None:
        super().__init__()
        if not amount_px >= 0:
            raise InputError(f"origin_jitter_px must be at least 0; got {amount_px}")
        self.amount_px = amount_px

    def noise_shape(self, count: int) -> tuple[int, ...]:
        return (count, 2)

    def forward(self, origin: Tensor, size: tuple[int, int]) -> Tensor:
        if not self.training or self.amount_px == 0:
            return origin
        height, width = size
        x, y = (2 * self.uniform(origin.shape[0], origin.device) - 1).to(origin.dtype).unbind(dim=1)
        step = torch.stack((x * (2 * self.amount_px / width), y * (2 * self.amount_px / height)), dim=1)
        return origin + step
