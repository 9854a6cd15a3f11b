"""Recipe: one frozen dataclass that says everything about a run."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from torch import Tensor

from ..data.augment import disturb, draw_warp, noise_per_image
from ..data.recolour import NUMBERS, recolour
from ..device import PRECISIONS, Precision
from ..errors import InputError, check_choice
from ..geometry import Warp, similarity_warp
from ..geometry.interpolate import MODES, PADDING_MODES, Mode, PaddingMode

Form = Literal["paper", "modern", "own"]
FORMS: tuple[Form, ...] = ("paper", "modern")
"""Those that tables have."""


def _changes(setting: Any) -> Any:
    """What `setting`, and every setting within it, has otherwise than by default."""
    if isinstance(setting, tuple):
        return tuple(map(_changes, setting))
    if not is_dataclass(setting):
        return setting
    changed = {}
    for entry in fields(setting):
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        if (value := getattr(setting, entry.name)) != default:
            changed[entry.name] = _changes(value)
    return changed


def _check(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise InputError(f"{name} must be {wanted}; got {value!r}")


@dataclass(frozen=True)
class DataSpec:
    """Which data: a name of the catalog ("folder" for one's own images), its splits and options.

    For choosing where there is no validation set, or where it is trained on too: `hold_out` training samples, drawn
    by the run's seed, are not trained on, and are the split "valid".
    """

    name: str
    train: str = "train"
    valid: str | None = None
    test: str = "test"
    options: dict[str, Any] = field(default_factory=dict)
    hold_out: int = 0

    def __post_init__(self) -> None:
        _check("data.hold_out", self.hold_out, self.hold_out >= 0, "at least 0")


@dataclass(frozen=True)
class ModelSpec:
    """Which network, and its options beyond dropout and origin jitter."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerSpec:
    """How weights follow gradients. Weight decay spares norms, biases and the heatmap layer."""

    kind: Literal["adam", "sgd"] = "adam"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.kind, ("adam", "sgd"))
        _check("optimizer.lr", self.lr, self.lr > 0, "positive")
        _check("optimizer.weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0")
        _check("optimizer.momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and less than 1")


@dataclass(frozen=True)
class ScheduleSpec:
    """How the learning rate goes: a linear warm-up over that share of all steps, then `kind`.

    "cosine" falls to zero, "steps" falls tenfold at each of `milestones` (shares of all steps). Origin predictors
    begin to learn after `origin_delay`, a share of all steps too; until then the origin is the image's middle.
    Over the last `jitter_fade` of all steps the jitter of origins falls to nothing.
    """

    kind: Literal["constant", "cosine", "steps"] = "constant"
    warmup: float = 0.0
    milestones: tuple[float, ...] = (0.5, 0.75)
    origin_delay: float = 0.0
    jitter_fade: float = 0.0

    def __post_init__(self) -> None:
        check_choice("schedule", self.kind, ("constant", "cosine", "steps"))
        _check("schedule.jitter_fade", self.jitter_fade, 0 <= self.jitter_fade <= 1, "a share of all steps")
        for name in ("warmup", "origin_delay"):
            share = getattr(self, name)
            _check(f"schedule.{name}", share, 0 <= share < 1, "a share of all steps, less than 1")


@dataclass(frozen=True)
class AugmentSpec:
    """How each training image is turned, scaled and moved afresh every time it is seen.

    A turn up to `rotation_deg` either way, a scale between the two of `scale` (evenly in its logarithm), a
    shift up to `shift_px` along x and y; before that images are scaled along x alone by `stretch`, `mirror` turns
    every other image over, `jitter` is the share of pixels or voxels left out; volumes may be scaled and moved
    along z too. `composed` reads the polar image of a turned
    image from the unturned one: one interpolation instead of two, for networks with a polar transformer.
    For photographs: `crop_px` is the side of the middle that is cut out of what was turned and moved, `padding`
    what lies beyond the image, and the last five are those of `recolour`.
    """

    rotation_deg: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shift_px: float = 0.0
    mirror: bool = False
    stretch: tuple[float, float] = (1.0, 1.0)
    z_scale: tuple[float, float] = (1.0, 1.0)
    z_shift_px: float = 0.0
    jitter: float = 0.0
    mode: Mode = "bilinear"
    composed: bool = False
    crop_px: int | None = None
    padding_mode: PaddingMode = "zeros"
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    invert: float = 0.0
    cutout_px: int = 0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("padding_mode", self.padding_mode, PADDING_MODES)
        for name in ("scale", "stretch", "z_scale"):
            smallest, largest = getattr(self, name)
            given = (smallest, largest)
            _check(f"augment.{name}", given, 0 < smallest <= largest, "two positive numbers in order")
        _check("augment.jitter", self.jitter, 0 <= self.jitter < 1, "at least 0 and less than 1")
        for name in ("brightness", "contrast", "saturation", "invert"):
            _check(
                f"augment.{name}", getattr(self, name), 0 <= getattr(self, name) <= 1, "at least 0 and at most 1"
            )
        _check("augment.cutout_px", self.cutout_px, self.cutout_px >= 0, "at least 0")
        _check("augment.crop_px", self.crop_px, self.crop_px is None or self.crop_px > 0, "positive")
        if self.composed and self.crop_px:
            raise InputError("augment.composed reads polar images from the whole image: leave augment.crop_px out")

    @property
    def active(self) -> bool:
        return self != AugmentSpec(mode=self.mode, composed=self.composed, padding_mode=self.padding_mode)

    @property
    def disturbances(self) -> dict[str, Any]:
        """The options of `disturb`."""
        return {key: getattr(self, key) for key in ("mirror", "stretch", "z_scale", "z_shift_px", "jitter")}

    @property
    def recolouring(self) -> dict[str, Any]:
        """The options of `recolour` that are used."""
        names = ("brightness", "contrast", "saturation", "invert", "cutout_px")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def apply(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Warp | None]:
        """Images changed as `noise` (N, `noise_per_image`) says, and the warp that is left to a composed network.

        Disturbed, warped and cropped, recoloured, in this order.
        """
        painted = len(self.recolouring) > 0
        moves, paints = noise.split((noise.shape[1] - NUMBERS * painted, NUMBERS * painted), dim=1)
        images = disturb(images, moves, **self.disturbances)
        warp = draw_warp(moves, rotation_deg=self.rotation_deg, scale=self.scale, shift_px=self.shift_px)
        if not self.composed:
            size = None if self.crop_px is None else (self.crop_px, self.crop_px)
            options: Any = {"size": size, "mode": self.mode, "padding_mode": self.padding_mode}
            images = similarity_warp(images, **warp._asdict(), **options)
        if painted:
            images = recolour(images, paints, **self.recolouring)
        return images, warp if self.composed else None

    def noise_per_image(self, shape: Sequence[int]) -> int:
        """How many random numbers an image of `shape` (C, …) needs."""
        return noise_per_image(shape, **self.disturbances) + (NUMBERS if self.recolouring else 0)


# those that recipes had from the start, and that every hash has seen
_FIRST_AUGMENTATIONS = {"rotation_deg", "scale", "shift_px", "mode"}


@dataclass(frozen=True)
class Row:
    """A row of a table, filled by a network's answers averaged over so many rotations, and origins in each."""

    table: str
    row: str
    rotations: int = 1
    origins: int = 1


@dataclass(frozen=True)
class Recipe:
    """Everything about a run but its seed's luck.

    `rows` are those of the paper's tables that a run fills. `selection` "final" takes the last weights, "valid"
    the best on `data.valid`.
    `origin_jitter_px` None is the model's own default.
    """

    name: str
    data: DataSpec
    model: ModelSpec
    form: Form = "own"
    rows: tuple[Row, ...] = ()
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    augment: AugmentSpec = AugmentSpec()
    epochs: int = 100
    batch: int = 200
    origin_jitter_px: float | None = None
    dropout: float = 0.0
    label_smoothing: float = 0.0
    ema: float = 0.0
    precision: Precision = "fp32"
    selection: Literal["final", "valid"] = "final"
    deterministic: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("selection", self.selection, ("final", "valid"))
        _check("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _check("batch", self.batch, self.batch >= 1, "at least 1")
        _check("seed", self.seed, self.seed >= 0, "at least 0")
        _check("ema", self.ema, 0 <= self.ema < 1, "at least 0 and less than 1")
        _check("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "at least 0 and less than 1")
        _check("dropout", self.dropout, 0 <= self.dropout < 1, "at least 0 and less than 1")
        if self.selection == "valid" and self.data.valid is None:
            raise InputError(f"{self.name}: selection 'valid' needs a split to choose on: set data.valid")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changes(self) -> dict[str, Any]:
        """What it sets otherwise than the defaults, as JSON has it: what records keep, so defaults never change.

        But for what a record says itself: name, form, rows and seed.
        """
        changes: dict[str, Any] = json.loads(json.dumps(_changes(replace(self, form="own", rows=(), seed=0))))
        del changes["name"]
        return changes

    @property
    def sha256(self) -> str:
        """The hash of what the recipe says about training: not of its names, rows or seed.

        Settings that are newer than some records are left out where they are not used: those records keep their
        hash.
        """
        said = self.to_dict()
        for key in ("name", "form", "rows", "seed"):
            said.pop(key)
        for key in said["augment"].keys() - _FIRST_AUGMENTATIONS:
            if said["augment"][key] == getattr(AugmentSpec, key):
                said["augment"].pop(key)
        if not self.data.hold_out:
            said["data"].pop("hold_out")
        for key in ("origin_delay", "jitter_fade"):
            if not said["schedule"][key]:
                said["schedule"].pop(key)
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
