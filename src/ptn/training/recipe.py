"""Recipes: the full configuration of a training run."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..config import build, changes, check
from ..data.augment import AugmentSpec
from ..data.catalog import dataset_info
from ..data.folder import list_images, median_side
from ..device import Precision
from ..errors import InputError
from ..models import list_models, list_options


@dataclass(frozen=True)
class DataSpec:
    """Data set of a run: a name of the catalog ("folder" for a folder of images), its splits and options."""

    name: str
    train: str = "train"
    valid: str | None = None
    test: str = "test"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSpec:
    """Name and options of a model; dropout and origin jitter are settings of the recipe."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerSpec:
    """Optimizer. Weight decay is not applied to biases, norms and the heatmap layer.

    `origin_scale` multiplies the learning rate of origin predictors, which are trained from scratch in front of a
    pretrained backbone.
    """

    kind: Literal["adam", "sgd"] = "adam"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    origin_scale: float = 1.0

    def __post_init__(self) -> None:
        check("optimizer.lr", self.lr, self.lr > 0, "positive")
        check("optimizer.weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0")
        check("optimizer.origin_scale", self.origin_scale, self.origin_scale > 0, "positive")
        check("optimizer.momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and less than 1")


@dataclass(frozen=True)
class ScheduleSpec:
    """Schedules of the learning rate and of the origin; all but `kind` are fractions of the number of steps.

    The rate rises linearly over `warmup`, then is "constant", falls to zero ("cosine"), is divided by ten at 1/2
    and at 3/4 ("steps"), is constant until 0.7 and then falls to zero ("hold"), or is multiplied by `decay_factor`
    at `decay_start` and after every further `decay_every` ("decay"). Origin predictors are not updated before
    `origin_delay`; until then the origin stays at the image center. Origin jitter decreases to zero over the last
    `jitter_fade`.
    """

    kind: Literal["constant", "cosine", "steps", "hold", "decay"] = "constant"
    warmup: float = 0.0
    decay_start: float = 0.25
    decay_every: float = 0.25
    decay_factor: float = 0.1
    origin_delay: float = 0.0
    jitter_fade: float = 0.0

    def __post_init__(self) -> None:
        check("schedule.jitter_fade", self.jitter_fade, 0 <= self.jitter_fade <= 1, "a fraction of all steps")
        for name in ("warmup", "origin_delay", "decay_start"):
            value = getattr(self, name)
            check(f"schedule.{name}", value, 0 <= value < 1, "a fraction of all steps, less than 1")
        for name in ("decay_every", "decay_factor"):
            value = getattr(self, name)
            check(f"schedule.{name}", value, 0 < value <= 1, "positive and at most 1")


@dataclass(frozen=True)
class EvaluationSpec:
    """Evaluation of the trained model on the test split; one record each.

    Predictions are averaged over `rotations` rotated copies of an image and `origins` origins in each.
    `id` identifies the evaluation in records, if there is one.
    """

    id: str | None = None
    rotations: int = 1
    origins: int = 1

    def __post_init__(self) -> None:
        for name in ("rotations", "origins"):
            check(f"evaluations.{name}", getattr(self, name), 1 <= getattr(self, name) <= 360, "from 1 to 360")


@dataclass(frozen=True)
class Recipe:
    """Configuration of a training run.

    `selection` "final" keeps the last weights, "valid" the best on `data.valid`. `origin_jitter_px` None is the
    default of the model. A run with the schedule "hold" may end before `epochs`: its learning rate starts to fall
    when the validation error has not improved for `patience` epochs (0: never; epochs near the error of chance do
    not count), or early enough to end after `max_seconds` of training.

    Args:
        name: of the recipe; records and folders contain it.
        data: the training, validation and test data.
        model: the network and its options.
        optimizer: its kind, learning rate and weight decay.
        schedule: of the learning rate and of the origin.
        augment: the random transforms of training images.
        epochs: number of passes over the training images.
        batch: number of images per step.
        origin_jitter_px: largest random shift of origins in training; None for the default of the model.
        dropout: probability of dropout.
        label_smoothing: probability that is spread over all classes, as in `torch.nn.CrossEntropyLoss`.
        precision: "fp32", "tf32" or "bf16".
        selection: "final" or "valid", see above.
        patience: epochs without improvement before a run with the schedule "hold" ends; 0: never.
        max_seconds: limit of the training time with the schedule "hold".
        seed: of all random numbers of the run.
        evaluations: the tests at the end, one record each.
    """

    name: str
    data: DataSpec
    model: ModelSpec
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    augment: AugmentSpec = field(default_factory=AugmentSpec)
    epochs: int = 100
    batch: int = 200
    origin_jitter_px: float | None = None
    dropout: float = 0.0
    label_smoothing: float = 0.0
    precision: Precision = "fp32"
    selection: Literal["final", "valid"] = "final"
    patience: int = 0
    max_seconds: float | None = None
    seed: int = 0
    evaluations: tuple[EvaluationSpec, ...] = (EvaluationSpec(),)

    def __post_init__(self) -> None:
        folder = self.name.replace("/", ".")
        valid = not folder or (folder.strip(".") and folder.isprintable() and "\\" not in folder)
        check("name", self.name, bool(valid) and len(folder.encode()) <= 200, "the name of a folder")
        check("epochs", self.epochs, 1 <= self.epochs <= 10**6, "from 1 to a million")
        check("batch", self.batch, 1 <= self.batch <= 10**6, "from 1 to a million")
        check("seed", self.seed, 0 <= self.seed < 2**40, "at least 0 and less than 2^40")
        check("evaluations", self.evaluations, len(self.evaluations) > 0, "at least one evaluation")
        for name in ("label_smoothing", "dropout"):
            check(name, getattr(self, name), 0 <= getattr(self, name) < 1, "at least 0 and less than 1")
        check("patience", self.patience, self.patience >= 0, "at least 0")
        check("max_seconds", self.max_seconds, self.max_seconds is None or self.max_seconds > 0, "positive")
        if (self.patience or self.max_seconds) and self.schedule.kind != "hold":
            raise InputError(f"{self.name}: patience and max_seconds need schedule.kind 'hold'")
        if self.patience and self.selection != "valid":
            raise InputError(f"{self.name}: patience needs selection 'valid': set patience=0")
        if self.selection == "valid" and self.data.valid is None:
            raise InputError(f"{self.name}: selection 'valid' needs a validation split: set data.valid")

    def can_extend(self, epochs: int, max_seconds: float | None) -> bool:
        """Returns whether this recipe can continue a run that was limited to `epochs` and `max_seconds`."""
        limit = self.max_seconds
        raised = limit is None or (max_seconds is not None and limit >= max_seconds)
        return self.schedule.kind == "hold" and self.epochs > epochs and raised

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings, JSON-like."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return settings

    def changes(self) -> dict[str, Any]:
        """Returns the settings of training that differ from the defaults: the `config` of a record.

        Name, seed and evaluations have fields of their own in a record and are not included. Defaults must not
        change: records are read with them.
        """
        own = ("name", "seed", "evaluations")
        return {key: value for key, value in changes(self).items() if key not in own}

    @property
    def sha256(self) -> str:
        """Hash of `changes`: of the settings of training. Settings that are added later do not change it."""
        settings = build(Recipe, {"name": "", **self.changes()}).changes()  # 1 and 1.0 are the same rate
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


STEPS = 3000
"""Approximate number of optimization steps of a default recipe for data sets."""
IMAGES_SEEN = 100_000
"""Number of training images, with repetitions, that a recipe for a folder has in addition to ten epochs."""
MAX_SIDE = 128
"""Largest default image size for folders, in pixels."""
FOLDER_LR = 0.003
"""Learning rate for folders. At 0.01, learning the evidence among clutter takes more than twice the epochs."""

_VOXEL_MODELS = ("ccnn_3d", "cylindrical", "cylindrical_l")
# data sets whose images are rotated by any angle; in the others an upside-down 6 is a 9
_ROTATED = ("rotmnist", "sim2mnist", "sim2mnist-larger", "rotsvhn", "rotsvhn-minus", "modelnet10", "modelnet40")
_ANY_ROTATION = AugmentSpec(rotation_deg=180.0, mode="bicubic")


def folder_recipe(root: Path | str, *, model: str | None = None, image_size: int | None = None) -> Recipe:
    """Returns a recipe for a folder of images, `root`/class/image, with the best weights on validation images.

    Training images are rotated by any angle, scaled by up to 10% and shifted by up to 6% of their size.

    Args:
        model: a name of the zoo or a timm backbone, "timm:resnet18"; by default "ptn_b", and "ptn_s" for fewer than
            200 training images.
        image_size: by default the median of the shorter sides of the images, from 28 to 128 pixels.
    """
    listing = list_images(Path(root))
    files = [path for paths in listing["train"].values() for path in paths]
    count = len(files)
    if model is None:
        model = "ptn_b" if count >= 200 else "ptn_s"
    _check_model(model, voxels=False, data="a folder of images")
    if image_size is None:
        image_size = min(MAX_SIDE, max(28, 4 * round(median_side(files) / 4)))
    letters = (
        "_" if letter == "\\" or not letter.isprintable() else letter for letter in Path(root).resolve().name
    )
    title = "".join(letters)[:50].encode()[:100].decode(errors="ignore")
    name = f"folder/{title}/{model.replace(':', '-')}"
    data = DataSpec("folder", valid="valid", options={"root": str(root), "image_size": image_size})
    shift = round(image_size / 16, 1)
    augment = replace(_ANY_ROTATION, scale=(0.9, 1.1), shift_px=shift, padding_mode="border")
    recipe = default_recipe(name, data, model, count, augment=augment)
    options = {"heatmap": "evidence"} if "heatmap" in list_options(model) else {}
    batch = max(2, min(50, count // 8))
    epochs = max(10, min(300, (IMAGES_SEEN + 10 * count) // max(1, count)))
    lr, origin_scale = FOLDER_LR, 1.0
    if model not in list_models():  # a backbone, perhaps pretrained: its new origin predictor learns faster
        lr, origin_scale = FOLDER_LR / 3, 3.0 if options else 1.0
    return replace(
        recipe,
        model=ModelSpec(model, options),
        optimizer=OptimizerSpec(lr=lr, origin_scale=origin_scale),
        schedule=ScheduleSpec("hold", warmup=0.05),
        batch=batch,
        epochs=epochs,
        patience=max(5, epochs // 8),
    )


def explain_choices(recipe: Recipe) -> dict[str, str]:
    """Returns the choices of `folder_recipe` with their reasons, by the option or setting that changes them."""
    size = recipe.data.options["image_size"]
    few = "fewer than 200" if recipe.model.name == "ptn_s" else "200 or more"
    return {
        "model": f"{recipe.model.name} for {few} training images",
        "image_size": f"{size} pixels, the median of the shorter sides (28 to {MAX_SIDE})",
        "batch": f"batches of {recipe.batch}, an eighth of the images (at most 50)",
        "epochs": f"at most {recipe.epochs} epochs, 10 + {IMAGES_SEEN:,} / number of images (at most 300)",
    }


def dataset_recipe(name: str, *, model: str | None = None) -> Recipe:
    """Returns a recipe for a data set of the catalog: "rotmnist", "modelnet40".

    The default model is "ptn_b" for digits, "ptn_resnet32" for color images and "cylindrical" for voxels. The
    weights are the best on the validation split where the data set has one, else the last.
    """
    info = dataset_info(name)
    voxels, color = len(info.shape) == 4, info.shape[0] == 3
    model = model or ("cylindrical" if voxels else "ptn_resnet32" if color else "ptn_b")
    _check_model(model, voxels=voxels, data=name)
    train = "fit" if "fit" in info.splits else "train"  # the part of "train" without "valid"
    data = DataSpec(name, train, valid="valid" if "valid" in info.splits else None)
    augment = _ANY_ROTATION if name in _ROTATED else AugmentSpec()
    title = f"{name}/{model.replace(':', '-')}"
    return default_recipe(title, data, model, info.splits[train], augment=augment, voxels=voxels)


def default_recipe(
    name: str, data: DataSpec, model: str, count: int, *, augment: AugmentSpec, voxels: bool = False
) -> Recipe:
    """Returns a recipe for `count` training images."""
    batch = max(2, min(32 if voxels else 100, count // 4))
    small = model in list_models() and not voxels  # other networks are deeper or pretrained
    return Recipe(
        name=name,
        data=data,
        model=ModelSpec(model),
        optimizer=OptimizerSpec(lr=0.01 if small else 0.001),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=augment,
        epochs=min(200, max(10, STEPS * batch // max(1, count))),
        batch=batch,
        label_smoothing=0.1,
        selection="valid" if data.valid else "final",
    )


def _check_model(model: str, *, voxels: bool, data: str) -> None:
    list_options(model)  # raises for an unknown name; those of timm are checked when the model is built
    if model == "ptn_cnn_b":
        raise InputError("ptn_cnn_b is an ensemble: train its members, ptn_b and ccnn_b")
    if model in list_models() and (model in _VOXEL_MODELS) != voxels:
        usable = "cylindrical" if voxels else "ptn_s, ptn_b or another one"
        raise InputError(f"{model} cannot be trained on {data}: use {usable}")
