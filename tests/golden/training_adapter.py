"""Adapter between the golden tests of training and the library.

This is the only file of these tests that imports `ptn`. A change of names in the library changes this file; the
tests and the recorded values stay the same. All data is generated from fixed seeds.
"""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ptn
from ptn.config import build, override
from ptn.data import Dataset, VoxelDataset
from ptn.training import Recipe, Run, RunData, SessionOptions, folder_recipe, train_recipes
from ptn.training.fleet import train_fleet
from ptn.training.progress import PlainReporter
from ptn.training.records import read_records
from ptn.training.session import load_split, run_folder
from ptn.training.trainer import prepare_device

BATCH, STEPS_PER_EPOCH = 16, 5

_MODERN = {
    "model": {"name": "ptn_b", "options": {"heatmap": "linear"}},
    "optimizer": {"lr": 0.005},
    "schedule": {"kind": "cosine", "origin_delay": 0.2, "jitter_fade": 0.6},
    "augment": {"rotation_deg": 180.0, "mode": "bicubic"},
    "origin_jitter_px": 3.0,
    "dropout": 0.2,
    "label_smoothing": 0.1,
}
_PAPER = {
    "model": {"name": "ptn_b", "options": {"heatmap": "linear"}},
    "augment": {"rotation_deg": 180.0, "mode": "nearest"},
}
_PHOTOGRAPHS = {
    "model": {"name": "ptn_resnet32", "options": {"heatmap": "softplus", "upright": True}},
    "optimizer": {"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4},
    "schedule": {"kind": "cosine", "warmup": 0.05},
    "augment": {
        **{"rotation_deg": 10.0, "scale": (0.9, 1.1), "shift_px": 2.0, "mode": "bicubic", "crop_px": 16},
        **{"padding_mode": "border", "brightness": 0.2, "contrast": 0.3, "saturation": 0.3, "invert": 0.25},
        "cutout_px": 5,
    },
}
_VOXELS = {
    "model": {"name": "cylindrical", "options": {"heatmap": "linear"}},
    "optimizer": {"lr": 1e-3},
    "schedule": {"kind": "cosine"},
    "augment": {"rotation_deg": 180.0, "mirror": True},
    "dropout": 0.3,
    "label_smoothing": 0.1,
}
_VOXELS_STRONG = {
    "model": {"name": "cylindrical_l"},
    "optimizer": {"lr": 1e-3, "weight_decay": 0.02},
    "schedule": {"kind": "cosine", "warmup": 0.05},
    "augment": {
        **{"rotation_deg": 180.0, "scale": (0.85, 1.15), "shift_px": 2.0, "mirror": True, "jitter": 0.02},
        **{"z_scale": (0.85, 1.15), "z_shift_px": 2.0, "mode": "bicubic"},
    },
    "origin_jitter_px": 1.0,
    "dropout": 0.2,
    "label_smoothing": 0.1,
}
_LARGE = {
    **_MODERN,
    "model": {"name": "ptn_l", "options": {"heatmap": "softplus", "origin_turns": 4}},
    "augment": {**_MODERN["augment"], "stretch": (0.8, 1.25)},
    "dropout": 0.3,
}

_STEPPED = {
    "model": {"name": "ptn_s"},
    "schedule": {"kind": "steps", "warmup": 0.1},
    "augment": {"rotation_deg": 180.0, "scale": (0.9, 1.1), "shift_px": 1.0},
}

# kind: the settings of its recipe and the shape of its images
_KINDS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "digits_modern": (_MODERN, (1, 28, 28)),
    "digits_modern_bf16": ({**_MODERN, "precision": "bf16"}, (1, 28, 28)),
    "digits_paper": (_PAPER, (1, 28, 28)),
    "stn": ({"model": {"name": "stn_s"}}, (1, 28, 28)),
    "ccnn": ({"model": {"name": "ccnn_s"}}, (1, 28, 28)),
    "pcnn_stepped": (_STEPPED | {"model": {"name": "pcnn_s"}}, (1, 20, 20)),
    "ptn_stepped": (_STEPPED, (1, 20, 20)),
    "photographs": (_PHOTOGRAPHS, (3, 24, 24)),
    "voxels": (_VOXELS, (1, 12, 12, 12)),
    "voxels_strong": (_VOXELS_STRONG, (2, 16, 16, 16)),
    "large": (_LARGE, (1, 20, 20)),
}
KINDS = [*_KINDS, "folder"]
"""The kinds of recipes. "folder" reads images from files and selects the best weights on validation images."""


def train(
    kind: str,
    steps: int = 20,
    folder: Path | None = None,
    stop_at: int | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    fused: bool | None = False,
    precision: str | None = None,
) -> dict[str, Any]:
    """Train a recipe of `kind` and return `losses` (one per step), `weights` and `valid_errors` (one per epoch).

    With `folder`, a checkpoint there is resumed. With `stop_at`, training stops after that many steps and writes a
    checkpoint. `folder` is required for the kind "folder", whose images are written there.
    """
    with _one_thread():
        run = _make_run(kind, steps, folder, seed, device, fused, precision)
        losses: list[float] = []
        total = _total_loss(run) if run.resume() and run.position else 0.0
        for _ in run.steps():
            # the sum of losses is set to zero at the end of each epoch
            before, total = (0.0 if run.position == 1 else total), _total_loss(run)
            losses.append(total - before)
            if len(losses) == stop_at:
                run.save()
                break
        return _result(run, losses)


def train_together(kind: str, seeds: list[int], steps: int = 20, *, interleaved: bool) -> list[dict[str, Any]]:
    """Train one run for each seed in the same process: as a fleet, or interleaved step by step."""
    with _one_thread():
        runs = [_make_run(kind, steps, None, seed, "cpu", False, None) for seed in seeds]
        if not interleaved:
            outcome = train_fleet(runs)
            assert outcome.done == runs
        live = [run.steps() for run in runs] if interleaved else []
        while live:
            live = [steps for steps in live if next(steps, "end") != "end"]
        return [_result(run, []) for run in runs]


def train_session(folder: Path, steps: int = 20) -> dict[str, Any]:
    """Train the kind "folder" by `train_recipes`.

    Returns the `weights` in the file it writes, the `error` in its record, and the error measured by evaluating
    that file on the test images (`evaluated`).
    """
    with _one_thread():
        recipe = _make_recipe("folder", steps, 0, folder, None)
        train_recipes([recipe], SessionOptions(folder=folder / "runs"), PlainReporter())
        model = ptn.load_model(run_folder(recipe, folder / "runs") / "weights.safetensors")
        (record,) = read_records(folder / "runs" / "records.jsonl")
        test = load_split(recipe.data, recipe.data.test)
        evaluated = ptn.evaluation.evaluate(model, test).error
        return {"weights": dict(model.state_dict()), "error": record.test_error, "evaluated": evaluated}


def sample_geometry(device: str, backend: str) -> dict[str, Tensor]:
    """Values and gradients of the sampling functions on smooth images."""
    results: dict[str, Tensor] = {}
    for mode in ("bilinear", "bicubic"):
        for padding in ("zeros", "border"):
            options: Any = {"mode": mode, "padding_mode": padding, "backend": backend}
            for law in ("log", "linear"):
                grid = ptn.PolarGrid(24, 20, law=law)

                def polar(image, origin, rotation, scale, grid=grid, options=options):
                    return ptn.polar_sample(image, origin, grid, phase=rotation, dilation=scale, **options)

                results |= _with_gradients(f"polar_sample/{law}/{mode}/{padding}", polar, (3, 2, 28, 31), device)

            def warp(image, origin, rotation, scale, options=options):
                return ptn.similarity_warp(
                    image, ptn.Similarity(rotation, scale, 5 * origin), size=(25, 22), **options
                )

            results |= _with_gradients(f"similarity_warp/2d/{mode}/{padding}", warp, (3, 2, 28, 31), device)
            results |= _with_gradients(f"similarity_warp/3d/{mode}/{padding}", warp, (3, 2, 12, 14, 10), device)
        grid = ptn.PolarGrid(16, 12, law="linear")

        def cylinder(volume, origin, rotation, scale, grid=grid, mode=mode):
            pose: Any = {"phase": rotation, "dilation": scale}
            return ptn.cylindrical_sample(volume, origin, grid, **pose, mode=mode, backend=backend)

        results |= _with_gradients(f"cylindrical_sample/{mode}", cylinder, (3, 2, 16, 16, 12), device)
    return results


def _with_gradients(name: str, sample: Any, shape: tuple[int, ...], device: str) -> dict[str, Tensor]:
    axes = [torch.linspace(0.0, 2.0, size, dtype=torch.float64) for size in shape[2:]]
    waves = sum(torch.sin((1 + k) * mesh) for k, mesh in enumerate(torch.meshgrid(*axes, indexing="ij")))
    images = torch.stack([waves * (1 + k / 7) for k in range(shape[0] * shape[1])]).view(shape)
    origin = torch.tensor([[0.113, -0.271], [-0.347, 0.189], [0.051, 0.423]])
    inputs = [images, origin, torch.tensor([0.3, -1.7, 2.9]), torch.tensor([0.83, 1.0, 1.21])]
    inputs = [value.float().to(device).requires_grad_() for value in inputs]
    out = sample(*inputs)
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape).to(out)
    grads = torch.autograd.grad(out, inputs, weights)
    names = ("values", "d_images", "d_origin", "d_turn", "d_scale")
    return {f"{name}/{part}": value.detach().cpu() for part, value in zip(names, (out, *grads), strict=True)}


def _make_recipe(kind: str, steps: int, seed: int, folder: Path | None, precision: str | None) -> Any:
    if steps % STEPS_PER_EPOCH:
        raise ValueError(f"steps must be a multiple of {STEPS_PER_EPOCH}; got {steps}")
    size = {"epochs": steps // STEPS_PER_EPOCH, "batch": BATCH}
    if kind == "folder":
        if folder is None:
            raise ValueError("the kind 'folder' needs a folder")
        recipe = override(folder_recipe(_write_images(folder / "images"), model="ptn_s", image_size=16), size)
    else:
        common = {"name": f"golden/{kind}", "data": {"name": "quickstart"}}
        recipe = build(Recipe, {**common, **_KINDS[kind][0], **size})
    # a tenth of the learning rate keeps rounding errors of other machines from growing within 20 steps
    slow = replace(recipe.optimizer, lr=recipe.optimizer.lr / 10)
    return replace(recipe, seed=seed, optimizer=slow, precision=precision or recipe.precision)


def _make_run(
    kind: str, steps: int, folder: Path | None, seed: int, device: str, fused: bool | None, precision: str | None
) -> Run:
    recipe = _make_recipe(kind, steps, seed, folder, precision)
    place = torch.device(device)
    prepare_device(recipe.precision)
    if kind == "folder":
        data = RunData(load_split(recipe.data, "train"), load_split(recipe.data, "valid"))
    else:
        data = RunData(_make_data(_KINDS[kind][1]))
    run = Run(recipe, data, place, folder, fused=fused)
    assert run.steps_per_epoch == STEPS_PER_EPOCH
    return run


def _make_data(shape: tuple[int, ...]) -> Dataset | VoxelDataset:
    """One epoch of noisy copies of a random block pattern for each of ten classes: bytes, or packed voxels."""
    generator = torch.Generator().manual_seed(20)
    labels = torch.arange(BATCH * STEPS_PER_EPOCH) % 10
    coarse = (shape[0], *(size // 4 for size in shape[1:]))
    images = torch.randint(0, 256, (10, *coarse), generator=generator)
    for axis in range(2, images.dim()):
        images = images.repeat_interleave(4, dim=axis)
    images = (3 * images[labels] + torch.randint(0, 256, (len(labels), *shape), generator=generator)) // 4
    classes = tuple("0123456789")
    if len(shape) == 3:
        return Dataset("golden", "train", images.byte(), labels, classes)
    packed = torch.from_numpy(np.packbits((images > 140).numpy().reshape(len(labels), -1), axis=1))
    return VoxelDataset("golden", "train", packed, shape[1], labels, classes)


def _write_images(root: Path) -> Path:
    """Write 39 PNG files for each of three classes, of which five batches remain for training."""
    from PIL import Image  # only this kind needs it

    generator = torch.Generator().manual_seed(30)
    for index, name in enumerate(("bars", "checks", "dots")):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(39):
            noise = torch.randint(0, 64, (20, 24), generator=generator)
            pattern = (torch.arange(20)[:, None] // (2 + index) + torch.arange(24) // (9 - 3 * index)) % 2
            pattern = 20 * index + pattern * (60 + 45 * index)
            Image.fromarray((noise + pattern).byte().numpy()).save(root / name / f"{number:02}.png")
    return root


def _result(run: Run, losses: list[float]) -> dict[str, Any]:
    """The outcome of a run; after its end, with the weights that its recipe selects."""
    model = run.finished_model() if run.done else run.model
    weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    errors = [epoch["valid_error"] for epoch in run.history if "valid_error" in epoch]
    return {"losses": losses, "weights": weights, "valid_errors": errors}


def _total_loss(run: Run) -> float:
    with run.on_stream():
        return run.step.loss_sum.item()


@contextlib.contextmanager
def _one_thread():
    """Compute with one CPU thread: the order of a sum depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
