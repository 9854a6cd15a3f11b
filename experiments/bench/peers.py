"""Other packages: polar sampling with torch, kornia, OpenCV and scikit-image, and a steerable network with escnn.

Samplers read the same points with the same interpolation, except where a package has a radial law of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ptn.geometry import PolarGrid, origin_px

from .report import PeerMissing
from .timing import Work

Sampler = Callable[[Tensor, Tensor], Tensor]
"""(images, origin) -> polar images, differentiable in both."""

ESCNN = "escnn C8 network of its tutorial"
# Regular fields, kernel, padding, and the stride of the pooling that follows.
_ESCNN_LAYERS = ((24, 7, 1, None), (48, 5, 2, 2), (48, 5, 2, None), (96, 5, 2, 2), (96, 5, 2, None), (64, 5, 1, 1))
_ESCNN_SIZE = 29  # odd, so that a stride of 2 keeps the center


def need(module: str, install: str = "ptn[bench]") -> Any:
    """Imports an optional package; raises PeerMissing if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f"{module.partition('.')[0]} is not installed: pip install '{install}'") from error


def grid_sample(grid: PolarGrid, images: Tensor) -> Sampler:
    """`F.grid_sample` for images like these, on points that are computed in each call from precomputed offsets."""
    height, width = images.shape[-2:]
    x, y = grid.offsets_px((height, width), device=images.device)
    offsets = torch.stack((x * (2 / width), y * (2 / height)), dim=-1)

    def sample(images: Tensor, origin: Tensor) -> Tensor:
        points = offsets + origin[:, None, None, :]
        return F.grid_sample(images, points, mode="bilinear", padding_mode="zeros", align_corners=False)

    return sample


def kornia_remap(grid: PolarGrid, images: Tensor) -> Sampler:
    """kornia's `remap` with maps that are computed in each call from precomputed offsets."""
    remap = need("kornia").geometry.transform.remap
    size = (images.shape[-2], images.shape[-1])
    dx, dy = grid.offsets_px(size, device=images.device)

    def sample(images: Tensor, origin: Tensor) -> Tensor:
        x, y = origin_px(origin, size).unbind(dim=1)
        # align_corners=True is the convention of kornia with pixel centers at integers.
        return remap(images, x[:, None, None] + dx, y[:, None, None] + dy, align_corners=True)

    return sample


def opencv_remap(images: Tensor, origin: Tensor, grid: PolarGrid, *, build_maps: bool) -> Work:
    """OpenCV's `remap` in a loop over images, with maps computed in each call or precomputed."""
    cv2 = need("cv2")
    cv2.setNumThreads(torch.get_num_threads())
    pixels, centers = _on_cpu(images, origin)
    dx, dy = (offset.numpy() for offset in grid.offsets_px((images.shape[-2], images.shape[-1])))
    maps = [(dx + x, dy + y) for x, y in centers]

    def work() -> NDArray[np.float32]:
        polar = np.empty((len(pixels), grid.angles, grid.radii), np.float32)
        for index, (x, y) in enumerate(centers):
            map_x, map_y = (dx + x, dy + y) if build_maps else maps[index]
            cv2.remap(pixels[index], map_x, map_y, cv2.INTER_LINEAR, polar[index], cv2.BORDER_CONSTANT, 0)
        return polar

    return work


def skimage_warp_polar(images: Tensor, origin: Tensor, grid: PolarGrid) -> Work:
    """scikit-image's `warp_polar` in a loop over images, with its own logarithmic law."""
    warp_polar = need("skimage.transform").warp_polar
    pixels, centers = _on_cpu(images, origin)
    radius = grid.outer_radius((images.shape[-2], images.shape[-1]))
    shape = (grid.angles, grid.radii)

    def work() -> NDArray[np.float32]:
        return np.stack(
            [
                warp_polar(image, (y, x), radius=radius, output_shape=shape, scaling="log", order=1)
                for image, (x, y) in zip(pixels, centers, strict=True)
            ]
        )

    return work


def _on_cpu(images: Tensor, origin: Tensor) -> tuple[NDArray[np.float32], list[list[float]]]:
    """Returns images of one channel (N, H, W) and their origins in pixels."""
    if images.device.type != "cpu":
        raise PeerMissing("it runs on CPUs only")
    return images[:, 0].numpy(), origin_px(origin, (images.shape[-2], images.shape[-1])).tolist()


class SteerableNetwork(nn.Module):
    """An escnn network that is equivariant to eight rotations: (N, 1, 29, 29) -> (N, classes)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: Any = need("escnn.nn", "escnn")
        rotations = need("escnn.gspaces", "escnn").rot2dOnR2(N=8)
        self.wrap = layers.GeometricTensor
        self.input_type = field = layers.FieldType(rotations, [rotations.trivial_repr])
        stack = [layers.MaskModule(field, _ESCNN_SIZE, margin=1)]
        for count, kernel, padding, stride in _ESCNN_LAYERS:
            before, field = field, layers.FieldType(rotations, count * [rotations.regular_repr])
            stack.append(layers.R2Conv(before, field, kernel_size=kernel, padding=padding, bias=False))
            stack += [layers.InnerBatchNorm(field), layers.ReLU(field, inplace=True)]
            if stride is not None:
                border = {"padding": 0} if stride == 1 else {}
                stack.append(layers.PointwiseAvgPoolAntialiased(field, sigma=0.66, stride=stride, **border))
        self.features = layers.SequentialModule(*stack, layers.GroupPooling(field))
        width = _ESCNN_LAYERS[-1][0]
        self.head = nn.Sequential(nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ELU(), nn.Linear(64, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(self.wrap(images, self.input_type)).tensor.flatten(1))


def escnn_step(batch: int, device: torch.device) -> Work:
    """A training step of `SteerableNetwork`."""
    if device.type != "cpu":
        raise PeerMissing("it is measured on CPUs only")
    model = SteerableNetwork().train()
    images, labels = torch.rand(batch, 1, _ESCNN_SIZE, _ESCNN_SIZE), torch.arange(batch) % 10
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def work() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return work
