"""Short training runs of every kind of recipe, on data generated from fixed seeds, and their digests.

tests/gpu/golden_gpu.py trains them on a GPU, where pytest may be missing.
"""

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptn.config import build
from ptn.data import Dataset, VoxelDataset
from ptn.device import prepare_device
from ptn.training import Recipe, Run, RunData, folder_recipe
from ptn.training.session import load_split

BATCH, STEPS_PER_EPOCH = 16, 5

MODERN: dict[str, Any] = {
    "model": {"name": "ptn_b", "options": {"heatmap": "linear"}},
    "optimizer": {"lr": 0.005},
    "schedule": {"kind": "cosine", "origin_delay": 0.2, "jitter_fade": 0.6},
    "augment": {"rotation_deg": 180.0, "mode": "bicubic"},
    "origin_jitter_px": 3.0,
    "dropout": 0.2,
    "label_smoothing": 0.1,
}
PAPER = {
    "model": {"name": "ptn_b", "options": {"heatmap": "linear"}},
    "augment": {"rotation_deg": 180.0, "mode": "nearest"},
}
STEPPED = {
    "schedule": {"kind": "steps", "warmup": 0.1},
    "augment": {"rotation_deg": 180.0, "scale": (0.9, 1.1), "shift_px": 1.0},
}
PHOTOGRAPHS = {
    "model": {"name": "ptn_resnet32", "options": {"heatmap": "softplus", "upright": True}},
    "optimizer": {"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4},
    "schedule": {"kind": "cosine", "warmup": 0.05},
    "augment": {
        **{"rotation_deg": 10.0, "scale": (0.9, 1.1), "shift_px": 2.0, "mode": "bicubic", "crop_px": 16},
        **{"padding_mode": "border", "brightness": 0.2, "contrast": 0.3, "saturation": 0.3, "invert": 0.25},
        "cutout_px": 5,
    },
}
VOXELS = {
    "model": {"name": "cylindrical", "options": {"heatmap": "linear"}},
    "optimizer": {"lr": 1e-3},
    "schedule": {"kind": "cosine"},
    "augment": {"rotation_deg": 180.0, "mirror": True},
    "dropout": 0.3,
    "label_smoothing": 0.1,
}
VOXELS_STRONG = {
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
LARGE = {
    **MODERN,
    "model": {"name": "ptn_l", "options": {"heatmap": "softplus", "frame": "disc", "mode": "bicubic"}},
    "augment": {**MODERN["augment"], "scale": (0.94, 1.06), "aspect": 1.5},
    "dropout": 0.3,
}

# kind: the settings of its recipe and the shape of its images
KINDS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "digits_modern": (MODERN, (1, 28, 28)),
    "digits_modern_bf16": ({**MODERN, "precision": "bf16"}, (1, 28, 28)),
    "digits_paper": (PAPER, (1, 28, 28)),
    "stn": ({"model": {"name": "stn_s"}}, (1, 28, 28)),
    "ccnn": ({"model": {"name": "ccnn_s"}}, (1, 28, 28)),
    "photographs": (PHOTOGRAPHS, (3, 24, 24)),
    "voxels": (VOXELS, (1, 12, 12, 12)),
    "voxels_strong": (VOXELS_STRONG, (2, 16, 16, 16)),
    "large": (LARGE, (1, 20, 20)),
    "folder": ({}, ()),  # reads images from files and selects the best weights on validation images
    "pcnn_stepped": ({**STEPPED, "model": {"name": "pcnn_s"}}, (1, 20, 20)),
    "ptn_stepped": ({**STEPPED, "model": {"name": "ptn_s"}}, (1, 20, 20)),
}


def make_run(
    kind: str,
    folder: Path | None = None,
    *,
    seed: int = 0,
    epochs: int = 4,
    precision: str | None = None,
    device: str = "cpu",
    fused: bool = False,
) -> Run:
    """A run of `kind` with checkpoints in `folder`, which "folder" needs for its images too."""
    if kind == "folder":
        assert folder is not None
        write_images(folder / "images")
        recipe = folder_recipe(folder / "images", model="ptn_s", image_size=16)
        data = RunData(load_split(recipe.data, "train"), load_split(recipe.data, "valid"))
    else:
        settings, shape = KINDS[kind]
        recipe = build(Recipe, {"name": f"golden/{kind}", "data": {"name": "quickstart"}, "epochs": 1, **settings})
        data = RunData(make_data(shape))
    # a tenth of the learning rate keeps rounding errors of other machines from growing within 20 steps
    optimizer = replace(recipe.optimizer, lr=recipe.optimizer.lr / 10)
    precision = precision or recipe.precision
    recipe = replace(recipe, seed=seed, epochs=epochs, batch=BATCH, optimizer=optimizer, precision=precision)
    prepare_device(recipe.precision)
    run = Run(recipe, data, torch.device(device), folder, fused=fused)
    assert run.steps_per_epoch == STEPS_PER_EPOCH
    return run


def make_data(shape: tuple[int, ...]) -> Dataset | VoxelDataset:
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


def write_images(root: Path) -> None:
    """Write 39 PNG files for each of three classes, of which five batches remain for training."""
    from PIL import Image  # may be missing on a GPU machine

    generator = torch.Generator().manual_seed(30)
    for index, name in enumerate(("bars", "checks", "dots")):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(39):
            noise = torch.randint(0, 64, (20, 24), generator=generator)
            pattern = (torch.arange(20)[:, None] // (2 + index) + torch.arange(24) // (9 - 3 * index)) % 2
            pattern = 20 * index + pattern * (60 + 45 * index)
            Image.fromarray((noise + pattern).byte().numpy()).save(root / name / f"{number:02}.png")


def train(run: Run, steps: int | None = None) -> list[float]:
    """Train to the end, or for a number of steps; returns the loss of each step."""
    losses = []
    total = _total_loss(run) if run.position else 0.0
    for _ in itertools.islice(run.steps(), steps):
        before = 0.0 if run.position == 1 else total  # the sum of losses restarts with each epoch
        total = _total_loss(run)
        losses.append(total - before)
    return losses


def _total_loss(run: Run) -> float:
    with run.on_stream():
        return run.step.loss_sum.item()


def digest(run: Run, losses: list[float]) -> dict[str, Any]:
    """Losses and validation errors of a finished run, sum and norm of each weight, and the hash of all weights."""
    weights = {name: value.cpu() for name, value in run.finished_model().state_dict().items()}
    sums = {name: [value.double().sum().item(), value.double().norm().item()] for name, value in weights.items()}
    return {
        "losses": _rounded(losses),
        "valid_errors": _rounded([epoch["valid_error"] for epoch in run.history if "valid_error" in epoch]),
        "weights": {name: _rounded(values) for name, values in sums.items()},
        "sha256": hash_weights(weights),
    }


def hash_weights(weights: dict[str, Tensor]) -> str:
    """The hash of the values of all weights, in the order of their names."""
    contents = [weights[name].contiguous().numpy().tobytes() for name in sorted(weights)]
    return hashlib.sha256(b"".join(contents)).hexdigest()


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.9g}") for value in values]
