"""`polar_sample` beside the ways there are to do it: forward, and with gradients."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..geometry import PolarGrid, polar_sample
from . import samplers
from .report import Bench
from .samplers import Sampler
from .timing import CALLS_IN_GRAPH, Effort, Work, capture, time_captured, time_together

# batch, channels, size: the images of SIM2MNIST as PTN samples them, and feature maps
IMAGES, MAPS = (200, 1, 96), (64, 64, 64)
# images for the share of the memory's bandwidth: hundreds of megabytes
LARGE = (16384, 1, 96)

Shape = tuple[int, int, int]


def measure(bench: Bench, *, images: Shape = IMAGES, maps: Shape = MAPS, large: Shape = LARGE) -> None:
    """Forward, forward and backward to the origin, and to the image too."""
    for shape in (images, maps):
        _measure_forward(bench, shape)
        for to_images in (False, True):
            _measure_gradients(bench, shape, to_images)
    if bench.device.type == "cuda":
        bench.details["calls_in_graph"] = CALLS_IN_GRAPH
        bench.details["bandwidth"] = measure_bandwidth(bench.device, bench.effort, large)


def _measure_forward(bench: Bench, shape: Shape) -> None:
    images, origin, grid = make_inputs(shape, bench.device)
    peers: dict[str, Callable[[], Work]] = {
        name: partial(_forward, make, images, origin, grid) for name, make in TORCH_PEERS.items()
    }
    if images.shape[1] == 1:
        peers |= {name: partial(make, images, origin, grid) for name, make in IMAGE_PEERS.items()}
    name = f"polar_sample {describe(shape)}, forward"
    with torch.inference_mode():
        bench.compare(name, lambda: polar_sample(images, origin, grid), peers, memory=True, graph=True)


def _forward(make: Callable[..., Sampler], images: Tensor, origin: Tensor, grid: PolarGrid) -> Work:
    sample = make(tuple(images.shape[-2:]), grid, images.device)
    return lambda: sample(images, origin)


def _measure_gradients(bench: Bench, shape: Shape, to_images: bool) -> None:
    images, origin, grid = make_inputs(shape, bench.device)
    images.requires_grad_(to_images)
    origin.requires_grad_()
    slope = torch.rand(*images.shape[:2], grid.angles, grid.radii, device=bench.device)
    wanted = [images, origin] if to_images else [origin]

    def both_ways(sample: Sampler) -> Work:
        return lambda: torch.autograd.grad(sample(images, origin), wanted, slope)

    def peer(make: Callable[..., Sampler]) -> Callable[[], Work]:
        return lambda: both_ways(make(tuple(images.shape[-2:]), grid, images.device))

    target = "image and origin" if to_images else "the origin"
    bench.compare(
        f"polar_sample {describe(shape)}, forward + backward to {target}",
        both_ways(lambda images, origin: polar_sample(images, origin, grid)),
        {name: peer(make) for name, make in TORCH_PEERS.items()},
        memory=True,
        graph=True,
    )


IMAGE_PEERS: dict[str, Callable[..., Work]] = {
    "OpenCV remap, its maps built": partial(samplers.opencv_remap, build_maps=True),
    "OpenCV remap, its maps given": partial(samplers.opencv_remap, build_maps=False),
    "OpenCV warpPolar": samplers.opencv_warp_polar,
    "scikit-image warp_polar": samplers.skimage_warp_polar,
}
TORCH_PEERS: dict[str, Callable[..., Sampler]] = {
    "F.grid_sample, its grid built": samplers.grid_sample,
    "kornia remap, its maps built": samplers.kornia_remap,
}


def measure_bandwidth(device: torch.device, effort: Effort, shape: Shape) -> dict[str, float | str]:
    """The bytes that a forward reads and writes a second, as a share of what a plain copy of them moves."""
    images, origin, grid = make_inputs(shape, device)
    target = torch.empty_like(images)
    with torch.inference_mode():
        works: dict[str, Work] = {
            "sample": lambda: polar_sample(images, origin, grid),
            "copy": lambda: target.copy_(images),
        }
        if device.type == "cuda":
            times = time_captured({name: capture(work, device) for name, work in works.items()}, device, effort)
        else:
            times = time_together(works, device, effort)
    polar_bytes = images.element_size() * images.shape[0] * images.shape[1] * grid.angles * grid.radii
    sample = (images.nbytes + polar_bytes) / times["sample"].ms / 1e6
    copy = 2 * images.nbytes / times["copy"].ms / 1e6
    return {
        "shape": describe(shape),
        "sample_gb_per_second": round(sample, 1),
        "copy_gb_per_second": round(copy, 1),
        "share_of_copy": round(sample / copy, 3),
    }


def make_inputs(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor, PolarGrid]:
    """Random images, origins in their middle half, and a grid of their size."""
    count, channels, size = shape
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, channels, size, size, generator=generator).to(device)
    origin = (torch.rand(count, 2, generator=generator) - 0.5).to(device)
    return images, origin, PolarGrid(size, size)


def describe(shape: Shape) -> str:
    count, channels, size = shape
    return f"{count}×{channels}×{size}×{size}"
