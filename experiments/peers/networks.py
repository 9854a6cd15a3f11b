"""Rotation-equivariant and -invariant networks of other papers: images (N, 1, H, W) in [0, 1] -> logits (N, 10)."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ptn import Similarity, similarity_warp
from ptn.layers import ChannelDropout, RandomLayer


class Dropout(RandomLayer):
    """Dropout of single values of maps (N, C, size, size), with the random numbers of the training step."""

    def __init__(self, channels: int, size: int, rate: float) -> None:
        super().__init__(channels * size**2)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = self.uniform(len(x), x.device) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.dtype).view_as(x)


class Z2CNN(nn.Sequential):
    """The plain network of Cohen & Welling (2016): six valid 3×3 convolutions, one of 4×4; 28×28 images."""

    def __init__(self, dropout: float = 0.3) -> None:
        layers: list[nn.Module] = []
        sizes = (26, 0, 10, 8, 6, 4)
        for channels, size in zip((1, 20, 20, 20, 20, 20), sizes, strict=True):
            layers += [nn.Conv2d(channels, 20, 3), nn.BatchNorm2d(20), nn.ReLU()]
            layers.append(Dropout(20, size, dropout) if size else nn.MaxPool2d(2))
        super().__init__(*layers, nn.Conv2d(20, 10, 4), nn.AdaptiveMaxPool2d(1), nn.Flatten())


class P4Conv(nn.Module):
    """Group convolution over the rotations by multiples of 90°: (N, in·turns, H, W) -> (N, out·4, H', W').

    `turns` is 1 for an image and 4 for feature maps, whose channels are (in, 4).
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, turns: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, turns, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.kaiming_normal_(self.weight.view(out_channels, -1, kernel, kernel), nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        turned = [self.weight.roll(turn, dims=2).rot90(turn, (3, 4)) for turn in range(4)]
        weight = torch.stack(turned, dim=1)  # (out, 4, in, turns, k, k)
        out, _, channels, turns, kernel, _ = weight.shape
        weight = weight.reshape(4 * out, channels * turns, kernel, kernel)
        return F.conv2d(x, weight, self.bias.repeat_interleave(4))


class P4CNN(nn.Module):
    """The network of Cohen & Welling (2016) over the group p4; the maximum over rotations and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(P4Conv(c, 10, 3, turns=1 if c == 1 else 4) for c in (1, 10, 10, 10, 10, 10))
        self.norms = nn.ModuleList(nn.BatchNorm3d(10) for _ in self.convs)  # one for the four rotations
        self.head = P4Conv(10, 10, 4)

    def forward(self, x: Tensor) -> Tensor:
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(norm(conv(x).unflatten(1, (10, 4)))).flatten(1, 2)
            if index == 1:
                x = F.max_pool2d(x, 2)
        return self.head(x).unflatten(1, (10, 4)).flatten(2).amax(dim=2)


class TIPooling(nn.Module):
    """TI-Pooling (Laptev et al. 2016): the maximum of features over 24 rotated copies of a 28×28 image."""

    def __init__(self, rotations: int = 24) -> None:
        super().__init__()
        self.rotations = rotations
        layers: list[nn.Module] = []
        for before, after in pairwise((1, 40, 80, 160)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(160 * 4 * 4, 5120), nn.ReLU())
        self.head = nn.Sequential(ChannelDropout(5120, 0.5), nn.Linear(5120, 10))

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        angles = torch.arange(self.rotations, device=x.device) * (2 * math.pi / self.rotations)
        copies = F.pad(x, (2, 2, 2, 2)).repeat_interleave(self.rotations, dim=0)
        copies = similarity_warp(copies, Similarity(rotation=angles.repeat(count)))
        return self.head(self.features(copies).unflatten(0, (count, self.rotations)).amax(dim=1))


class HarmonicConv(nn.Module):
    """Harmonic convolution (Worrall et al. 2017): complex maps of orders 0 and 1, (N, orders, 2, in, H, W).

    Filters have the rotation orders -1, 0 and 1: a radial profile on `rings`, resampled to pixels by Gaussians,
    times exp(i(mφ + phase)). Gradients of phases are multiplied by `phase_gain`.
    """

    orders = 2
    phase_gain = 7.8

    def __init__(self, in_channels: int, out_channels: int, kernel: int = 5, rings: int = 4, *, phase: bool = True):
        super().__init__()
        std = 0.7 * math.sqrt(2 / (rings * in_channels * out_channels))
        self.profile = nn.Parameter(std * torch.randn(3, rings, out_channels, in_channels))
        shape = (3, out_channels, in_channels)
        self.phase = nn.Parameter(2 * math.pi * torch.rand(shape)) if phase else None
        basis = torch.stack([_ring_basis(kernel, rings, order) for order in (-1, 0, 1)])
        self.register_buffer("basis", torch.view_as_real(basis))

    def filters(self) -> Tensor:
        """Complex filters of the orders -1, 0 and 1 as (3, 2, out, in, k, k)."""
        basis: Tensor = self.basis  # type: ignore[assignment]
        filters = torch.einsum("mroi,mrhwc->mcoihw", self.profile, basis)
        if self.phase is None:
            return filters
        phase = self.phase_gain * self.phase - (self.phase_gain - 1) * self.phase.detach()
        cos, sin = (f(phase)[..., None, None] for f in (torch.cos, torch.sin))
        real, imaginary = filters.unbind(dim=1)
        return torch.stack((cos * real - sin * imaginary, sin * real + cos * imaginary), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        filters = self.filters()
        rows = []
        for order in range(self.orders):
            # a filter of order m maps maps of order k to maps of order k + m
            parts = [filters[order - k + 1] for k in range(x.shape[1])]
            if x.shape[2] == 1:  # a real image
                rows += [torch.cat([part[c] for part in parts], dim=1) for c in (0, 1)]
            else:
                rows.append(torch.cat([torch.cat((part[0], -part[1]), dim=1) for part in parts], dim=1))
                rows.append(torch.cat([torch.cat((part[1], part[0]), dim=1) for part in parts], dim=1))
        weight = torch.cat(rows)
        y = F.conv2d(x.flatten(1, 3), weight, padding=weight.shape[-1] // 2)
        return y.unflatten(1, (self.orders, 2, -1))


def _ring_basis(kernel: int, rings: int, order: int) -> Tensor:
    """exp(i·order·φ) on each ring, resampled to pixels by normalised Gaussians: complex (rings, k, k)."""
    radii = torch.linspace(float(order != 0), rings - 0.5, rings)
    angles = torch.arange(101) * (2 * math.pi / 101)
    points = torch.stack((torch.cos(angles), torch.sin(angles)), dim=1)  # (angles, 2) as (x, y)
    pixels = torch.arange(kernel) - (kernel - 1) / 2
    grid = torch.stack(torch.meshgrid(pixels, pixels, indexing="xy"), dim=-1).flatten(0, 1)  # (k·k, 2)
    squared = (radii[:, None, None, None] * points[:, None] - grid).square().sum(dim=-1)  # (rings, angles, k·k)
    weights = torch.exp(-2 * squared)
    weights = weights / weights.sum(dim=2, keepdim=True)
    harmonic = torch.polar(torch.ones_like(angles), order * angles)
    basis = torch.einsum("rap,a->rp", weights.to(harmonic.dtype), harmonic)
    return basis.view(rings, kernel, kernel)


class _Magnitudes(nn.Module):
    """ReLU of the shifted magnitudes of complex maps; with `norm`, of the magnitudes after batch norm."""

    def __init__(self, channels: int, *, norm: bool) -> None:
        super().__init__()
        self.bias = None if norm else nn.Parameter(torch.full((2, channels, 1, 1), 0.01))
        self.norm = nn.BatchNorm2d(2 * channels) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        size = magnitudes(x)
        scaled = self.norm(size.flatten(1, 2)).view_as(size) if self.bias is None else size + self.bias
        return x * (F.relu(scaled) / size)[:, :, None]


def magnitudes(x: Tensor) -> Tensor:
    """Absolute values of complex maps: (N, orders, 2, C, H, W) -> (N, orders, C, H, W)."""
    return x.square().sum(dim=2).clamp(min=1e-12).sqrt()


class HNet(nn.Module):
    """Harmonic network of Worrall et al. (2017) for rotated MNIST."""

    def __init__(self, channels: Sequence[int] = (8, 16, 32)) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for before, after in pairwise((1, *channels)):
            self.blocks.append(
                nn.Sequential(
                    HarmonicConv(before, after),
                    _Magnitudes(after, norm=False),
                    HarmonicConv(after, after),
                    _Magnitudes(after, norm=True),
                )
            )
        self.head = HarmonicConv(channels[-1], 10, phase=False)
        self.bias = nn.Parameter(torch.full((10,), 0.01))

    def forward(self, images: Tensor) -> Tensor:
        x = images[:, None, None]
        for index, block in enumerate(self.blocks):
            if index:
                x = F.avg_pool2d(x.flatten(1, 3), 2).unflatten(1, x.shape[1:4])
            x = block(x)
        return magnitudes(self.head(x)).sum(dim=1).mean(dim=(2, 3)) + self.bias


class RICConv(nn.Conv2d):
    """Rotation-invariant coordinate convolution (Mo & Zhao 2022): nine points, the pixel and eight at distance 1.

    The first of the eight lies in the direction from the middle of the image, so a rotation about the middle moves
    the outputs without changing them.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        points = _ric_points(height, width, x.device).to(x.dtype)
        samples = F.grid_sample(x, points.expand(len(x), -1, -1, -1), align_corners=False)
        samples = samples.unflatten(2, (9, height)).flatten(1, 2)  # (N, in·9, H, W)
        return F.conv2d(samples, self.weight.flatten(1)[..., None, None], self.bias)


@cache  # a copy to a GPU cannot be captured in a CUDA graph
def _ric_points(height: int, width: int, device: torch.device) -> Tensor:
    """Sample points in [-1, 1], (1, 9·H, W, 2)."""
    y, x = torch.meshgrid(
        torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij"
    )
    angle = torch.atan2(y, x) + (torch.arange(8) * (math.pi / 4))[:, None, None]
    dx, dy = (torch.cat((f(angle), torch.zeros(1, height, width))) for f in (torch.cos, torch.sin))
    points = torch.stack(((x + dx) * (2 / width), (y + dy) * (2 / height)), dim=-1)
    return points.flatten(0, 1)[None].to(device)


class RICCNN(nn.Sequential):
    """RIC-CNN for digits: six convolutions, maximum over 2×2 after the second and the fourth."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((1, 32, 32, 64, 64, 128, 128))):
            layers += [RICConv(before, after), nn.BatchNorm2d(after), nn.ReLU()]
            if index in (1, 3):
                layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
