"""The benchmark suites and their peers."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ptn.config import override
from ptn.data import Dataset, VoxelDataset, load_dataset
from ptn.data.store import MissingDataError
from ptn.device import prepare_device
from ptn.errors import InputError
from ptn.geometry import PolarGrid, Similarity, polar_sample, register, similarity_warp
from ptn.models import Model, OnnxModel, create_model, export, for_inference
from ptn.training import Run, RunData
from ptn.training.fleet import train_fleet
from ptn.training.step import epoch_order
from ptn.training.trainer import build_model

from ..recipes import find_recipe
from ..registration import errors, make_pairs
from .peers import Sampler, grid_sample, kornia_remap, need, opencv_remap, skimage_registration, skimage_warp_polar
from .report import Bench, PeerMissing, Peers
from .timing import Timing, Work, busy_processes, summarize, time_together

Shape = tuple[int, int, int]
"""Batch, channels, size of images."""

TORCH_PEERS: dict[str, Callable[..., Sampler]] = {
    "F.grid_sample, grid built": grid_sample,
    "kornia remap, maps built": kornia_remap,
}
_OPENCV = "OpenCV remap, maps built"
IMAGE_PEERS: dict[str, Callable[..., Work]] = {
    _OPENCV: partial(opencv_remap, build_maps=True),
    "OpenCV remap, maps given": partial(opencv_remap, build_maps=False),
    "scikit-image warp_polar": skimage_warp_polar,
}
STEP_RECIPE = "rotmnist/ptn_b/paper+"
MODELNET40_SHAPES = 9843


def sampling(
    bench: Bench,
    *,
    images: Shape = (200, 1, 96),
    maps: Shape = (64, 64, 64),
    large: Shape = (16384, 1, 96),
    busy: int = 2,
) -> None:
    """Times `polar_sample`: bilinear, float32, a grid of the image's size, a different origin for each image.

    `F.grid_sample` and kornia add the origins to precomputed offsets. OpenCV and scikit-image process the images in
    a loop, `warp_polar` with a radial law of its own.
    """
    for shape in (images, maps):
        _compare_samplers(bench, shape, "forward")
        _compare_samplers(bench, shape, "forward + backward to the origin", to_origin=True)
        _compare_samplers(bench, shape, "forward + backward to image and origin", to_origin=True, to_images=True)
    peers: Peers
    if bench.device.type == "cpu":
        pixels, origin, grid = make_inputs(images, bench.device)
        title = f"{_title(images)}, forward, {busy} busy processes in the background"
        peers = {_OPENCV: partial(IMAGE_PEERS[_OPENCV], pixels, origin, grid)}
    else:
        pixels, origin, grid = make_inputs(large, bench.device)
        title = f"{_title(large)}, forward"
        target = torch.empty_like(pixels)
        peers = {"a copy of the images": lambda: partial(target.copy_, pixels)}
        busy = 0
    with busy_processes(busy), torch.inference_mode():
        bench.compare_kernels(title, partial(polar_sample, pixels, origin, grid), peers)


def _compare_samplers(
    bench: Bench, shape: Shape, title: str, *, to_origin: bool = False, to_images: bool = False
) -> None:
    images, origin, grid = make_inputs(shape, bench.device)
    images.requires_grad_(to_images)
    origin.requires_grad_(to_origin)
    inputs = [tensor for tensor in (images, origin) if tensor.requires_grad]
    grad_output = torch.rand(*images.shape[:2], grid.angles, grid.radii, device=bench.device)

    def work(make: Callable[..., Sampler]) -> Work:
        sample = make(grid, images)
        if not inputs:
            return partial(sample, images, origin)
        return lambda: torch.autograd.grad(sample(images, origin), inputs, grad_output)

    peers = {name: partial(work, make) for name, make in TORCH_PEERS.items()}
    if shape[1] == 1 and not inputs:
        peers |= {name: partial(make, images, origin, grid) for name, make in IMAGE_PEERS.items()}
    with torch.inference_mode(not inputs):
        ours = work(lambda grid, _: partial(polar_sample, grid=grid))
        bench.compare_kernels(f"{_title(shape)}, {title}", ours, peers)


def make_inputs(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor, PolarGrid]:
    """Returns random images, origins in the middle half of the image, and a grid of the image's size."""
    count, channels, size = shape
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, channels, size, size, generator=generator).to(device)
    origin = (torch.rand(count, 2, generator=generator) - 0.5).to(device)
    return images, origin, PolarGrid(size, size)


def _title(shape: Shape) -> str:
    count, channels, size = shape
    return f"polar_sample {count}×{channels}×{size}×{size}"


def registration(bench: Bench, *, sizes: Sequence[int] = (256, 512), count: int = 64, tested: int = 2400) -> None:
    """Times `ptn.register` per pair of photographs, in a batch, beside scikit-image's example for one pair.

    The example, "Using Polar and Log-Polar Transformations for Registration", finds rotation and scale only, from
    all pixels in float64. `register` also finds the shift, resolves rotations by 180° and warps the images, but
    compares them at 128×128 pixels.
    """
    for size in sizes:
        moving, fixed, _ = make_pairs(count, size)
        moving, fixed = moving.to(bench.device), fixed.to(bench.device)
        peers = {"scikit-image's example": partial(skimage_registration, moving, fixed)}
        contenders = {"": partial(register, moving, fixed)} | bench.present("register", peers)
        times = time_together(contenders)
        low, high = times[""].quartiles
        times[""] = Timing(times[""].ms / count, (low / count, high / count), times[""].rounds)
        bench.add(f"register, a pair of {size}×{size}, {count} at once", times)
    parts = []
    for seed in range(4):
        moving, fixed, truth = make_pairs(tested // 4, seed=seed)
        parts.append(torch.stack(errors(register(moving.to(bench.device), fixed.to(bench.device)), truth)))
    rotation, scale, shift = torch.cat(parts, dim=1)
    right = int(((rotation < 1) & (scale < 2) & (shift < 2)).sum())
    bench.details["accuracy"] = (
        f"Of {tested} pairs of 256×256 pixels with any rotation, scales from 1/2 to 2 and shifts up to a quarter "
        f"of the width, {right} ({100 * right / tested:.1f}%) are within 1°, 2% and 2 px of the truth. Median "
        f"errors: {rotation.median():.3f}°, {scale.median():.2f}%, {shift.median():.2f} px."
    )


def inference(bench: Bench, *, sizes: Sequence[int] = (28, 96), batches: Sequence[int] = (256, 1)) -> None:
    """Times `ptn.for_inference(model)` of PTN-B beside the model itself and ONNX Runtime."""
    for size in sizes:
        torch.manual_seed(0)
        model = create_model("ptn_b", image_size=size).eval().to(bench.device)
        for batch in batches:
            images = torch.rand(batch, 1, size, size, device=bench.device)
            peers = {"eager": partial(run_model, model, images), "ONNX Runtime": partial(run_onnx, model, images)}
            title = f"PTN-B inference {batch}×1×{size}×{size}"
            bench.compare(title, run_model(for_inference(model), images), peers)


def run_model(model: nn.Module, images: Tensor) -> Work:
    """Returns the forward pass in inference mode."""
    return torch.inference_mode()(partial(model, images))


def run_onnx(model: Model, images: Tensor) -> Work:
    """Returns the forward pass of `model` in ONNX Runtime."""
    if images.device.type != "cpu":
        raise PeerMissing("it is measured on CPUs only")
    for package in ("onnxruntime", "onnxscript"):
        need(package, "ptn[export]")
    with tempfile.TemporaryDirectory() as folder:
        export(model, Path(folder) / "model.onnx")
        return partial(OnnxModel(Path(folder) / "model.onnx"), images)


def training(bench: Bench, *, batch: int = 200) -> None:
    """Times a step of the recipe rotmnist/ptn_b/paper+ in float32: batch, rotation, loss, gradients, optimizer.

    The eager loop does the same in plain torch.
    """
    title = f"PTN-B training step, {batch} images of 28×28"
    bench.compare(
        title, trainer_step(batch, bench.device), {"eager loop": partial(eager_step, batch, bench.device)}
    )


def random_digits(count: int) -> Dataset:
    """Returns random images in the format of rotated MNIST."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator)
    return Dataset("noise", "train", images, torch.arange(count) % 10, tuple("0123456789"))


def trainer_step(batch: int, device: torch.device) -> Work:
    """Returns a step of the library's trainer, on a GPU as a CUDA graph."""
    recipe = override(find_recipe(STEP_RECIPE), {"batch": batch, "epochs": 1, "precision": "fp32"})
    prepare_device(recipe.precision)
    data = random_digits(2 * batch)
    run = Run(recipe, RunData(data), device)
    with run.on_stream():
        run.batches.start(epoch_order(len(data), batch, seed=0, epoch=0), 0)

    def work() -> None:
        with run.on_stream():
            run.step()
        if run.cuda_stream is not None:
            torch.cuda.current_stream(device).wait_stream(run.cuda_stream)

    return work


def eager_step(batch: int, device: torch.device) -> Work:
    """Returns the same step as an eager loop in float32."""
    recipe = find_recipe(STEP_RECIPE)
    data = random_digits(2 * batch)
    model = build_model(recipe, data).to(device).train()
    images, labels = data.images.to(device), data.labels.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.optimizer.lr)

    def work() -> None:
        index = torch.randint(len(images), (batch,), device=device)
        rotation = math.radians(recipe.augment.rotation_deg) * (2 * torch.rand(batch, device=device) - 1)
        rotated = similarity_warp(images[index].float() / 255, Similarity(rotation))
        optimizer.zero_grad()
        F.cross_entropy(model(rotated), labels[index]).backward()
        optimizer.step()

    return work


def fleet(
    bench: Bench,
    *,
    epochs: int = 20,
    fleets: Sequence[int] = (1, 8, 16),
    precisions: Sequence[str] = ("bf16", "tf32"),
    data: Dataset | None = None,
) -> None:
    """Times epochs of PTN-B on rotated MNIST, per run, with several seeds at once; on a GPU also unfused."""
    train = data or load_dataset("rotmnist", find_recipe(STEP_RECIPE).data.train)
    for precision in precisions:
        for runs in fleets:
            title = f"PTN-B, epoch of {len(train):,} and run, {precision}, {runs} at once"
            _compare_epochs(bench, title, STEP_RECIPE, train, epochs, precision, runs)


def voxels(bench: Bench, *, epochs: int = 3, data: VoxelDataset | None = None) -> None:
    """Times epochs of the cylindrical networks on ModelNet40, or on random voxels; on a GPU also unfused."""
    try:
        train = data or load_dataset("modelnet40", "train")
        kind = "shapes"
    except MissingDataError:
        train, kind = random_voxels(MODELNET40_SHAPES), "random shapes"
    for model in ("cylindrical", "cylindrical_l"):
        title = f"{model}, epoch of {len(train):,} {kind}, bf16"
        _compare_epochs(bench, title, f"modelnet40/{model}/modern+", train, epochs, "bf16", 1)


def random_voxels(count: int, size: int = 32) -> VoxelDataset:
    """Returns random shapes in the format of ModelNet40."""
    generator = torch.Generator().manual_seed(0)
    packed = torch.randint(0, 256, (count, 2 * size**3 // 8), dtype=torch.uint8, generator=generator)
    meta = {"sha256": "0", "from_points": torch.zeros(count, dtype=torch.bool)}
    classes = tuple(map(str, range(40)))
    return VoxelDataset("noise", "train", packed, size, torch.arange(count) % len(classes), classes, meta)


def _compare_epochs(
    bench: Bench, title: str, recipe: str, train: Any, epochs: int, precision: str, runs: int
) -> None:
    settings = override(find_recipe(recipe), {"epochs": epochs + 1, "precision": precision})
    prepare_device(settings.precision)

    def measure(fused: bool) -> Timing:
        """Returns milliseconds per epoch and run of `runs` seeds at once, without the first epoch."""
        ends: list[float] = []
        group = [Run(replace(settings, seed=n), RunData(train), bench.device, fused=fused) for n in range(runs)]
        group[-1].on_epoch = lambda run, progress: ends.append(time.perf_counter())
        train_fleet(group)
        if len(ends) < 2:
            raise InputError("interrupted before an epoch was measured")
        together = runs if bench.device.type == "cuda" else 1  # a CPU trains one run at a time
        return summarize([1000 * (end - start) / together for start, end in pairwise(ends)])

    on_gpu = bench.device.type == "cuda"
    times = {"": measure(fused=on_gpu)}
    if on_gpu:
        times["the same, not fused"] = measure(fused=False)
    bench.add(title, times)


def scaling(
    bench: Bench,
    *,
    batches: Sequence[int] = (1, 4, 16, 64, 256, 1024),
    sizes: Sequence[int] = (16, 32, 64, 128, 256, 512),
    angles: Sequence[int] = (8, 16, 32, 64, 128, 256),
) -> None:
    """Times `polar_sample` and PTN-B inference against batch, image size and angles; as many radii as pixels."""
    curves: list[dict[str, Any]] = []
    for what, contenders, start in (
        ("polar_sample", _scaled_sampling, {"batch": 32, "size": 96, "angles": 96}),
        ("PTN-B inference", _scaled_inference, {"batch": 32, "size": 32, "angles": 32}),
    ):
        for axis, values, changed in (
            ("batch", batches, ("batch",)),
            ("image size", sizes, ("size", "angles")),
            ("angles", angles, ("angles",)),
        ):
            curve: dict[str, Any] = {"what": what, "axis": axis, "start": start, "at": list(values), "ms": {}}
            for value in values:
                works = contenders(bench, **{**start, **dict.fromkeys(changed, value)})
                for name, timing in time_together(works).items():
                    curve["ms"].setdefault(name, []).append(float(f"{timing.ms:.4g}"))
            curves.append(curve)
    bench.details["curves"] = curves


def _scaled_sampling(bench: Bench, batch: int, size: int, angles: int) -> dict[str, Work]:
    images, origin, _ = make_inputs((batch, 1, size), bench.device)
    grid = PolarGrid(angles, size)
    remap = {"OpenCV remap": partial(opencv_remap, images, origin, grid, build_maps=True)}
    return {
        "ptn": partial(polar_sample, images, origin, grid),
        "F.grid_sample": partial(grid_sample(grid, images), images, origin),
        **bench.present("polar_sample", remap),
    }


def _scaled_inference(bench: Bench, batch: int, size: int, angles: int) -> dict[str, Work]:
    model = create_model("ptn_b", image_size=size, angles=angles).eval().to(bench.device)
    images = torch.rand(batch, 1, size, size, device=bench.device)
    return {"ptn": run_model(for_inference(model), images), "eager": run_model(model, images)}
