"""Other packages: polar sampling with torch, kornia, OpenCV and scikit-image.

Samplers read the same points with the same interpolation, except where a package has a radial law of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ptn.geometry import PolarGrid, origin_px

from .report import PeerMissing
from .timing import Work

Sampler = Callable[[Tensor, Tensor], Tensor]
"""(images, origin) -> polar images, differentiable in both."""


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


def skimage_registration(moving: Tensor, fixed: Tensor) -> Work:
    """scikit-image's example of registration by log-polar magnitudes of spectra, for the first pair."""
    filters, transform, registration = (
        need(f"skimage.{part}") for part in ("filters", "transform", "registration")
    )
    fft = need("scipy.fft")
    if moving.device.type != "cpu":
        raise PeerMissing("it runs on CPUs only")
    pictures = [images[0, 0].double().numpy() for images in (moving, fixed)]

    def work() -> tuple[float, float]:
        polar = []
        for picture in pictures:
            filtered = filters.difference_of_gaussians(picture, 5, 20)
            spectrum = np.abs(fft.fftshift(fft.fft2(filtered * filters.window("hann", picture.shape))))
            radius = picture.shape[0] // 8
            options = {"radius": radius, "output_shape": picture.shape, "scaling": "log", "order": 0}
            polar.append(transform.warp_polar(spectrum, **options)[: picture.shape[0] // 2])
        shift = registration.phase_cross_correlation(*polar, upsample_factor=10, normalization=None)[0]
        rows, columns = pictures[0].shape
        return 360 / rows * shift[0], float(np.exp(shift[1] * np.log(radius) / columns))

    return work


def _on_cpu(images: Tensor, origin: Tensor) -> tuple[NDArray[np.float32], list[list[float]]]:
    """Returns images of one channel (N, H, W) and their origins in pixels."""
    if images.device.type != "cpu":
        raise PeerMissing("it runs on CPUs only")
    return images[:, 0].numpy(), origin_px(origin, (images.shape[-2], images.shape[-1])).tolist()
