"""`fit`: trains a model on data in memory or a folder, with the same loop as a session."""

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import build, check, override
from ..data import Dataset, VoxelDataset, load_folder
from ..data.augment import AugmentSpec
from ..data.dataset import AnyDataset, subset
from ..device import Precision, choose_device, prepare_device, restored_settings
from ..errors import InputError
from ..evaluation import match_classes, scores
from ..files import locked_folder, save_tensors
from ..layers import EvidencePredictor
from ..models import ModelConfig, Network, save_weights
from .progress import QuietReporter, make_reporter
from .recipe import FOLDER_LR, DataSpec, Recipe, default_recipe
from .trainer import CHECKPOINTS, Progress, Run, RunData, channel_statistics

TrainingData = Dataset | VoxelDataset | str | Path | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class History:
    """Result of `fit`.

    Attributes:
        epochs: Losses and errors of each epoch.
        best_epoch: The epoch (from 1) whose weights were kept: the best on validation images, else the last.
        seconds: Training time.
    """

    epochs: list[Progress]
    best_epoch: int
    seconds: float


def fit(
    model: nn.Module,
    train: TrainingData,
    valid: TrainingData | None = None,
    *,
    epochs: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    augment: Mapping[str, Any] | None = None,
    seed: int = 0,
    precision: Precision = "fp32",
    device: torch.device | str = "auto",
    folder: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> History:
    """Trains a model in place and returns its history.

    Afterwards the model is in evaluation mode, on the device that it was on, with the weights of the best epoch on
    the validation images (without them, of the last epoch), and `model.classes` has the names of the classes.

    >>> model = ptn.create_model("ptn_s", num_classes=3, in_chans=3, image_size=64)  # doctest: +SKIP
    >>> history = ptn.fit(model, "photos", augment={"rotation_deg": 180})  # doctest: +SKIP

    Args:
        model: A model of `create_model`, `load_model` or `polarize`, or any module: images in [0, 1] -> logits.
            A network without a normalization gets that of the training images.
        train: A data set, a folder of images (see `load_folder`), or images (N, C, H, W), uint8 or floats in
            [0, 1], and labels (N,). Images are kept as bytes.
        valid: Validation data of the same kinds; by default the validation split of a folder, else none.
        epochs: By default about 3,000 steps, at least 10 and at most 200 epochs.
        batch: By default 100 images or 32 voxel grids, fewer for small data sets.
        lr: Peak learning rate of Adam with a cosine schedule; by default 0.01 for the networks of `list_models`
            for images, 0.003 with `heatmap="evidence"`, else 0.001.
        augment: Options of `AugmentSpec`, such as `{"rotation_deg": 180, "scale": (0.8, 1.2)}`.
        seed: Seed of the order of the images and of their augmentation.
        precision: "fp32", "tf32" or "bf16".
        device: Where to train; "auto" is the GPU if there is one.
        folder: Folder for checkpoints and the final weights. An interrupted call with the same arguments resumes.
        settings: Further settings of a `Recipe` by dotted key: `{"optimizer.weight_decay": 0.01}`.
        progress: Print the progress.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"fit takes a torch.nn.Module, such as create_model('ptn_s', ...); got {model!r}")
    train_set = _as_dataset(model, train, "train")
    if not len(train_set):
        raise InputError(f"{train_set.name} has no images to train on")
    if valid is None and isinstance(train, str | Path):
        valid = train
    valid_set = None
    if valid is not None:
        valid_set = match_classes(_as_dataset(model, valid, "valid", train_set.classes), train_set.classes)
    options = {"epochs": epochs, "batch": batch, "optimizer.lr": lr, "seed": seed, "precision": precision}
    check("settings", settings, isinstance(settings, Mapping | None), "an object of settings")
    chosen = {key: value for key, value in options.items() if value is not None} | dict(settings or {})
    augmentation = build(AugmentSpec, augment or {}, "augment")
    recipe = _make_recipe(model, train_set, valid_set is not None, augmentation, chosen)
    sample = subset(train_set, torch.arange(min(2, len(train_set)))).images
    crop = recipe.augment.crop_px
    outputs = scores(model, sample[..., :crop, :crop]).shape[1]
    if outputs != (count := len(train_set.classes)):
        raise InputError(f"the model has {outputs} outputs, the data {count} classes: use num_classes={count}")
    if isinstance(model, Network) and isinstance(train_set, Dataset) and not _is_normalized(model):
        model.set_normalization(*channel_statistics(train_set.images))
    target = None if folder is None else Path(folder)
    reporter = make_reporter() if progress else QuietReporter()
    with nullcontext() if target is None else locked_folder(target), restored_settings():
        prepare_device(recipe.precision)
        place, on_epoch = choose_device(str(device)), reporter.epoch
        run = Run(recipe, RunData(train_set, valid_set), place, target, network=model, on_epoch=on_epoch)
        run.resume()
        reporter.begin(run)
        try:
            start = time.perf_counter() - run.seconds
            for _ in run.steps():
                run.seconds = time.perf_counter() - start
        finally:  # an interrupted call keeps the weights that it has
            reporter.close()
            if run.history:
                model.load_state_dict(run.finished_model().state_dict())
                model.classes = tuple(train_set.classes)  # type: ignore[assignment]
                model.metadata = {"dataset": train_set.name, "seed": recipe.seed}  # type: ignore[assignment]
            model.eval()
        if target is not None:
            path = target / "weights.safetensors"
            if _config(model) is not None:
                save_weights(model, path)
            else:  # create_model cannot build it
                save_tensors(path, model.state_dict(), {"classes": json.dumps(model.classes)})
            for name in CHECKPOINTS:
                (target / name).unlink(missing_ok=True)
    history = [Progress(**epoch) for epoch in run.history]
    best = min(history, key=lambda epoch: epoch.valid_error or 0.0) if run.best else history[-1]
    return History(history, best.epoch, run.seconds)


def _config(model: nn.Module) -> ModelConfig | None:
    config = getattr(model, "config", None)  # other libraries have configurations of their own
    return config if isinstance(config, ModelConfig) else None


def _is_normalized(model: Network) -> bool:
    return bool(model.get_buffer("mean").any() or (model.get_buffer("std") != 1).any())


def _make_recipe(
    model: nn.Module, train: AnyDataset, has_valid: bool, augment: AugmentSpec, settings: dict[str, Any]
) -> Recipe:
    for key in settings:
        if key.split(".")[0] in ("name", "data", "model", "dropout", "origin_jitter_px"):
            raise InputError(f"{key} is not a setting of fit: it is decided by the model and the data")
    config = _config(model)
    name = type(model).__name__ if config is None else config.name
    data = DataSpec(train.name, valid="valid" if has_valid else None)
    voxels = isinstance(train, VoxelDataset)
    recipe = default_recipe(f"fit/{data.name}/{name}", data, name, len(train), augment=augment, voxels=voxels)
    if any(isinstance(module, EvidencePredictor) for module in model.modules()) and config is not None:
        settings = {"optimizer.lr": FOLDER_LR, **settings}
    return override(recipe, settings)


def _as_dataset(
    model: nn.Module, data: TrainingData, split: str, classes: tuple[str, ...] | None = None
) -> AnyDataset:
    """Returns training data of any kind as a data set; `classes` are for tensors, by default those of the model."""
    if isinstance(data, AnyDataset):
        return data
    if isinstance(data, str | Path):
        shape: Any = getattr(model, "input_shape", None)
        if not isinstance(shape, tuple) or len(shape) != 3:
            raise InputError("the image size of this model is unknown: use load_folder(..., image_size=...)")
        return load_folder(data, split, image_size=shape[1:], channels=shape[0])
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise InputError(f"{split} must be a data set, a folder or (images, labels); got {type(data).__name__}")
    images, labels = (torch.as_tensor(part).cpu() for part in data)
    if images.dim() != 4:
        raise InputError(f"images must have shape (N, C, H, W); got {tuple(images.shape)}")
    if images.dtype != torch.uint8:
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):
            raise InputError("images must be uint8, or floats in [0, 1]")
        images = (255 * images.float()).round().to(torch.uint8)
    if classes is None:
        known = getattr(model, "classes", None)
        classes = known or tuple(map(str, range(scores(model, images[:2]).shape[1])))
    labels = labels if labels.is_floating_point() else labels.long()  # floats are refused
    return Dataset("tensors", split, images, labels, classes)
