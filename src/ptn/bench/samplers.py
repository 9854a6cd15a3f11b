"""Polar sampling as others do it: each maker takes images, origins and a grid and gives what to call.

All read the same points with the same interpolation, except where a peer has a radial law of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..geometry import PolarGrid, origin_px
from .report import PeerMissing

Sampler = Callable[[Tensor, Tensor], Tensor]
"""(images, origin) -> polar images, differentiable in both."""


def need(module: str, extra: str = "bench") -> Any:
    """An optional package, or the reason for leaving a peer out."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = f"pip install 'ptn[{extra}]'" if extra else f"pip install {module.partition('.')[0]}"
        raise PeerMissing(f"{module.partition('.')[0]} is not installed: {hint}") from error


def grid_sample(size: tuple[int, int], grid: PolarGrid, device: torch.device) -> Sampler:
    """`F.grid_sample` with its grid built for every call, from offsets that are kept."""
    height, width = size
    x, y = grid.offsets_px(size, device=device)
    offsets = torch.stack((x * (2 / width), y * (2 / height)), dim=-1)

    def sample(images: Tensor, origin: Tensor) -> Tensor:
        points = offsets + origin[:, None, None, :]
        return F.grid_sample(images, points, mode="bilinear", padding_mode="zeros", align_corners=False)

    return sample


def kornia_remap(size: tuple[int, int], grid: PolarGrid, device: torch.device) -> Sampler:
    """kornia's `remap` with its maps built for every call, from offsets that are kept."""
    remap = need("kornia").geometry.transform.remap
    dx, dy = grid.offsets_px(size, device=device)

    def sample(images: Tensor, origin: Tensor) -> Tensor:
        x, y = origin_px(origin, size).unbind(dim=1)
        # kornia takes whole pixels from corner to corner: its align_corners=True has pixel centres at whole numbers
        return remap(images, x[:, None, None] + dx, y[:, None, None] + dy, align_corners=True)

    return sample


def opencv_remap(
    images: Tensor, origin: Tensor, grid: PolarGrid, *, build_maps: bool
) -> Callable[[], NDArray[np.float32]]:
    """OpenCV's `remap` over the images one by one, its maps built within the call or beforehand."""
    cv2 = _opencv()
    pixels, centres, size = _arrays(images, origin)
    dx, dy = (offset.numpy() for offset in grid.offsets_px(size))
    maps = [(dx + x, dy + y) for x, y in centres]

    def work() -> NDArray[np.float32]:
        polar = np.empty((len(pixels), grid.angles, grid.radii), np.float32)
        for index, (x, y) in enumerate(centres):
            map_x, map_y = (dx + x, dy + y) if build_maps else maps[index]
            cv2.remap(pixels[index], map_x, map_y, cv2.INTER_LINEAR, polar[index], cv2.BORDER_CONSTANT, 0)
        return polar

    return work


def opencv_warp_polar(images: Tensor, origin: Tensor, grid: PolarGrid) -> Callable[[], NDArray[np.float32]]:
    """OpenCV's `warpPolar` over the images one by one, with its own logarithmic law."""
    cv2 = _opencv()
    pixels, centres, size = _arrays(images, origin)
    flags = cv2.WARP_POLAR_LOG | cv2.INTER_LINEAR | cv2.WARP_FILL_OUTLIERS
    shape, radius = (grid.radii, grid.angles), grid.outer_radius(size)
    points = [(float(x), float(y)) for x, y in centres]

    def work() -> NDArray[np.float32]:
        polar = np.empty((len(pixels), grid.angles, grid.radii), np.float32)
        for index, point in enumerate(points):
            cv2.warpPolar(pixels[index], shape, point, radius, flags, polar[index])
        return polar

    return work


def skimage_warp_polar(images: Tensor, origin: Tensor, grid: PolarGrid) -> Callable[[], NDArray[Any]]:
    """scikit-image's `warp_polar` over the images one by one, with its own logarithmic law."""
    warp_polar = need("skimage.transform").warp_polar
    pixels, centres, size = _arrays(images, origin)
    shape, radius = (grid.angles, grid.radii), grid.outer_radius(size)
    points = [(float(y), float(x)) for x, y in centres]

    def work() -> NDArray[Any]:
        polar = np.empty((len(pixels), *shape), np.float32)
        for index, point in enumerate(points):
            polar[index] = warp_polar(
                pixels[index], point, radius=radius, output_shape=shape, scaling="log", order=1
            )
        return polar

    return work


def _opencv() -> Any:
    cv2 = need("cv2")
    cv2.setNumThreads(torch.get_num_threads())
    return cv2


def _arrays(images: Tensor, origin: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[int, int]]:
    """Images of one channel and their origins in pixels, for packages that know neither batches nor GPUs."""
    if images.device.type != "cpu":
        raise PeerMissing("it runs on CPUs only")
    size = (images.shape[-2], images.shape[-1])
    return images[:, 0].numpy(), origin_px(origin, size).numpy(), size
