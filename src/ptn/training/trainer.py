"""The training loop: a `Run` trains one recipe, with checkpoints; a fleet interleaves several runs."""

import copy
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import build, check
from ..data import Dataset, VoxelDataset
from ..data.dataset import AnyDataset, content_sha256
from ..device import Parallel, describe_device, synchronize_batch_norm
from ..errors import InputError, check_choice
from ..evaluation import DivergedError, evaluate, origin_changes_px
from ..files import parse_json, read_tensors, save_tensors
from ..layers import fuse_blocks
from ..models import Model, Network, create_model, list_options
from ..models.inference import put_channels_last
from .recipe import Recipe
from .records import timestamp
from .step import HOLD, Batches, TrainingStep, epoch_order


@dataclass(frozen=True)
class Progress:
    """State of a run at the end of an epoch: mean loss, errors in %, and the last learning rate.

    `origin_px` is the median distance between the origins of validation images and of their rotated copies.
    """

    epoch: int
    loss: float
    train_error: float
    lr: float
    valid_error: float | None = None
    origin_px: float | None = None


@dataclass
class RunData:
    """Training and validation sets of a run; the latter is needed for `selection="valid"`.

    `test_sha256` is the hash of the test images, which a checkpoint stores as well.
    """

    train: Dataset | VoxelDataset
    valid: Dataset | VoxelDataset | None = None
    test_sha256: str | None = None


LOG = logging.getLogger("ptn")
CHECKPOINTS = ("checkpoint.safetensors", "checkpoint.previous.safetensors")
"""Names of the last checkpoint and of the one before it."""
_STATE = ("epoch", "epochs", "position", "seconds", "started", "history", "best_error")
_WATCHED = 64  # number of validation images whose origins are compared after each epoch


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint stores as JSON: the recipe, the data, the machine, and attributes of the run."""

    recipe: dict[str, Any]
    data: tuple[str, ...]
    classes: tuple[str, ...]
    torch: str
    device: str
    epoch: int
    epochs: int
    position: int
    seconds: float
    started: str
    history: tuple[Progress, ...]
    best_error: float | None


@dataclass(eq=False)
class Run:
    """Training of one recipe; `steps()` continues from the current state, one optimization step at a time.

    The same recipe and seed on the same hardware give the same weights bit for bit: alone or in a fleet,
    uninterrupted or resumed from a checkpoint.

    Attributes:
        folder: Folder of the checkpoint; None writes none.
        network: Model to train; by default the recipe's, initialized by its seed. The run works on a copy.
        fused: Compile the step and fuse blocks: equal to rounding, faster. None does so where it is supported.
        on_epoch, on_step: Called at the end of each epoch and after each step.
        on_best: Called with a copy of the model when its validation error is the smallest so far.
        seconds: Training time; in a fleet, the share of this run.
        epochs: Planned number of epochs, at most that of the recipe.
    """

    recipe: Recipe
    data: RunData
    device: torch.device
    folder: Path | None = None
    network: nn.Module | None = None
    parallel: Parallel = field(default_factory=Parallel)
    fused: bool | None = None
    checkpoint_every: int = 10
    on_epoch: Callable[["Run", Progress], None] | None = None
    on_step: Callable[["Run"], None] | None = None
    on_best: Callable[["Run", Model], None] | None = None

    def __post_init__(self) -> None:
        recipe, train = self.recipe, self.data.train
        processes = self.parallel.world
        self.batch = min(recipe.batch, len(train))
        if self.batch < 2:
            raise InputError(f"{recipe.name}: {len(train)} training images are too few")
        if self.batch % processes:
            raise InputError(f"{recipe.name}: batch {self.batch} is not divisible by {processes} processes")
        model: Any = build_model(recipe, train) if self.network is None else copy.deepcopy(self.network)
        model.to(self.device)
        if self.device.type == "cpu" or recipe.precision == "bf16":  # slower in float32 on a GPU
            put_channels_last(model)
        self.template: Model = copy.deepcopy(model).eval()
        self.model: Model = model.train()
        if processes > 1 and self.device.type == "cuda":
            synchronize_batch_norm(self.model)
        if self.fused is None:  # supported: a network of this library in one process, on a GPU with Triton
            on_gpu = self.device.type == "cuda" and find_spec("triton") is not None
            self.fused = on_gpu and processes == 1 and isinstance(model, Network)
        if self.fused:
            fuse_blocks(self.model)
        self.steps_per_epoch = len(train) // self.batch
        self.batches = Batches(train, self.steps_per_epoch, self.batch // processes, self.device)
        self.cuda_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.epoch, self.position, self.seconds = 0, 0, 0.0
        self.epochs = recipe.epochs
        self.started = timestamp()
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.best_error: float | None = None
        self._last_is_damaged = False
        with self.on_stream():
            self.step = TrainingStep(self.model, recipe, self.batches, self.parallel, fused=self.fused)
            if self.device.type == "cuda" and processes == 1:
                self.step.capture()

    @property
    def title(self) -> str:
        return f"{self.recipe.name} seed {self.recipe.seed}"

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    def on_stream(self) -> AbstractContextManager[Any]:
        """Context manager: the CUDA stream of this run, on a GPU."""
        return torch.cuda.stream(self.cuda_stream) if self.cuda_stream is not None else nullcontext()

    def steps(self) -> Iterator[None]:
        """Trains to the end; yields after every step."""
        order = self._order(self.epoch)
        while not self.done:
            with self.on_stream():
                self.batches.start(order, self.position)
                self.step.plan(self.epoch, self.epochs)
            while self.position < self.steps_per_epoch:
                with self.on_stream():
                    self.step()
                self.position += 1
                if self.on_step is not None:
                    self.on_step(self)
                yield
            order = self._order(self.epoch + 1)  # while the GPU is still busy
            self._finish_epoch()

    def _order(self, epoch: int) -> Tensor:
        """Sample indices of this process for each batch of an epoch."""
        order = epoch_order(len(self.data.train), self.batch, seed=self.recipe.seed, epoch=epoch)
        return order.chunk(self.parallel.world, dim=1)[self.parallel.rank]

    def finished_model(self) -> Model:
        """Returns a copy of the model with the weights that the recipe selects, in evaluation mode."""
        model = self._copy()
        if self.recipe.selection == "valid" and self.best:
            model.load_state_dict(self.best)
        return model

    def release(self) -> None:
        """Frees the memory of the captured step and the gradients; the weights stay."""
        self.step.graph = None
        self.step.optimizer.zero_grad(set_to_none=True)

    # --- checkpoints

    def save(self) -> None:
        """Writes a checkpoint, unless the loss is not finite: then the last one is kept."""
        if self.folder is None or not self.parallel.leads:
            return
        self._synchronize()
        if int(self.step.first_bad) >= 0:
            return
        tensors = {**self.step.tensors(), "generator": self.step.generator.get_state()}
        tensors |= {f"best.{key}": value for key, value in self.best.items()}
        state = {**self._origin, **{name: getattr(self, name) for name in _STATE}}
        last, previous = (self.folder / name for name in CHECKPOINTS)
        keep = None if self._last_is_damaged else previous
        save_tensors(last, tensors, {"state": json.dumps(state)}, keep=keep)
        self._last_is_damaged = False

    @cached_property
    def _origin(self) -> dict[str, Any]:
        """What determines the result of a run, and the machine."""
        sets = [self.data.train, *([self.data.valid] if self.data.valid is not None else [])]
        test = [] if self.data.test_sha256 is None else [self.data.test_sha256]
        return {
            "recipe": self.recipe.to_dict(),
            "data": [*map(content_sha256, sets), *test],  # a hash in `meta` may be that of other images
            "classes": list(self.data.train.classes),
            "torch": torch.__version__,
            "device": describe_device(self.device),
        }

    def resume(self) -> bool:
        """Restores the last checkpoint in `folder`, or the one before if it is damaged; False if there is none.

        Raises:
            InputError: The checkpoint is of another run or other data, or all checkpoints are damaged.
        """
        names = CHECKPOINTS if self.folder is not None else ()
        paths = [path for name in names if (path := Path(self.folder or "", name)).exists()]
        for path in paths:
            try:
                saved, metadata = read_tensors(path, "checkpoint", needs_digest=True)
                if "state" not in metadata:
                    raise InputError(f"{path} is not a checkpoint")
                state = build(CheckpointState, parse_json(metadata["state"], str(path)), str(path))
            except InputError as error:
                if path == paths[-1]:
                    raise InputError(f"{error}; start over with --fresh, or in another folder") from error
                LOG.warning("%s; continuing from the checkpoint before it", error)
                self._last_is_damaged = True
            else:
                self._restore(path, saved, state)
                return True
        return False

    def _restore(self, path: Path, saved: dict[str, Tensor], state: CheckpointState) -> None:
        origin = self._origin
        limits = {name: origin["recipe"][name] for name in ("epochs", "max_seconds")}
        longer = self.recipe.can_extend(state.epoch, state.recipe.get("max_seconds"))
        if state.recipe != origin["recipe"] and not (longer and {**state.recipe, **limits} == origin["recipe"]):
            raise InputError(f"{path} is of another recipe, seed or settings: choose another folder")
        check_data(path, [*state.data, *state.classes], [*origin["data"], *origin["classes"]])
        check_machine(path, (state.torch, state.device), (origin["torch"], origin["device"]))
        tensors = {**self.step.tensors(), "generator": self.step.generator.get_state()}
        if any(key.startswith("best.") for key in saved):
            tensors |= {f"best.{key}": value for key, value in self.template.state_dict().items()}

        def kinds(group: dict[str, Tensor]) -> dict[str, Any]:
            return {key: (value.shape, value.dtype) for key, value in group.items()}

        if "generator" in saved and saved["generator"].shape != tensors["generator"].shape:
            raise InputError(
                f"{path} is of {state.device}, whose random numbers {self.device.type} cannot continue"
            )
        if kinds(saved) != kinds(tensors):
            raise InputError(f"{path} is of another model: choose another folder")
        done = state.epoch * self.steps_per_epoch + state.position
        valid = state.epoch >= 0 and 0 <= state.position <= self.steps_per_epoch and state.seconds >= 0
        valid &= len(state.history) == state.epoch <= state.epochs and int(saved["count"]) == done
        check(f"{path}: the number of steps", done, valid, "that of its tensors and its history")
        best = [key for key in saved if key.startswith("best.")]
        self.best = {key.removeprefix("best."): saved.pop(key).to(self.device) for key in best}
        self.step.generator.set_state(saved.pop("generator"))
        with self.on_stream(), torch.no_grad():
            for key, value in saved.items():
                tensors[key].copy_(value)
        for name in _STATE:
            setattr(self, name, getattr(state, name))
        if state.recipe != origin["recipe"]:  # longer than before: another run in the records
            self.epochs, self.started = self.recipe.epochs, timestamp()
        self.history = [_describe(progress) for progress in state.history]

    # --- the end of an epoch

    def _finish_epoch(self) -> None:
        steps = self.steps_per_epoch
        loss, wrong, first_bad = self._totals()
        self.epoch, self.position = self.epoch + 1, 0
        if first_bad >= 0:
            rate = self.step.rate(first_bad, self.epochs)
            raise DivergedError(
                f"the loss is not finite at step {first_bad} "
                f"(epoch {first_bad // steps + 1}, learning rate {rate:g}): lower optimizer.lr"
            )
        rate = self.step.rate(self.epoch * steps - 1, self.epochs)
        progress = Progress(self.epoch, loss / steps, 100 * wrong / (steps * self.batch), rate)
        if self.recipe.selection == "valid":
            error, origin_px = self._validate()
            progress = replace(progress, valid_error=error, origin_px=origin_px)
        self.history.append(_describe(progress))
        self._plan()
        with self.on_stream():
            self.step.loss_sum.zero_()
            self.step.wrong.zero_()
        if self.epoch % self.checkpoint_every == 0 or self.done:
            self.save()
        if self.on_epoch is not None:
            self.on_epoch(self, progress)

    def _totals(self) -> tuple[float, int, int]:
        """Returns the summed loss, the number of errors and the first bad step, over all processes."""
        with self.on_stream():
            totals = torch.cat((self.step.loss_sum / self.parallel.world, self.step.wrong.double()[None]))
            bad = self.step.first_bad.double()
            if self.parallel.world > 1:
                torch.distributed.all_reduce(totals)
                torch.distributed.all_reduce(bad, op=torch.distributed.ReduceOp.MAX)
            loss, wrong, first_bad = torch.cat((totals, bad)).tolist()  # one synchronization
        return loss, round(wrong), round(first_bad)

    def _validate(self) -> tuple[float, float | None]:
        """Returns the validation error and the change of the origins when images are rotated."""
        assert self.data.valid is not None
        model = self._copy()
        error = evaluate(model, self.data.valid, precision=self.recipe.precision).error
        if self.best_error is None or error < self.best_error:
            self.best, self.best_error = model.state_dict(), error
            if self.on_best is not None and self.parallel.leads:
                self.on_best(self, model)
        changes = origin_changes_px(model, self.data.valid.images[:_WATCHED])
        return error, None if changes is None else round(changes.median().item(), 2)

    def _plan(self) -> None:
        """Shortens the run if its validation error stalls or its time is limited; the learning rate then falls."""
        recipe = self.recipe
        if recipe.schedule.kind != "hold" or self.epoch >= HOLD * self.epochs:
            return
        if recipe.patience and self._stalls():
            self.epochs = min(self.epochs, math.ceil(self.epoch / HOLD))
        if recipe.max_seconds is not None:
            possible = int(recipe.max_seconds * self.epoch / max(self.seconds, 1e-9))
            self.epochs = min(self.epochs, max(possible, self.epoch + 1))
        self.epochs = self.parallel.agree(self.epochs)  # times and, on CPUs, validation errors differ

    def _stalls(self) -> bool:
        """True if the validation error is well below that of chance and has not improved for `patience` epochs."""
        assert self.data.valid is not None
        errors = [epoch["valid_error"] for epoch in self.history]
        best = min(errors)
        rates = [epoch["lr"] for epoch in self.history]
        risen = max((index for index in range(1, len(rates)) if rates[index] > rates[index - 1]), default=0)
        waited = self.epoch - 1 - max(errors.index(best), risen)  # the rate rises when a finished run is continued
        return best < 0.9 * chance_error(self.data.valid) and waited >= self.recipe.patience

    def _copy(self) -> Model:
        """Returns a copy of the model without fused blocks or synchronized norms, in evaluation mode."""
        self._synchronize()
        model = copy.deepcopy(self.template)
        model.load_state_dict(self.model.state_dict())
        return model

    def _synchronize(self) -> None:
        if self.cuda_stream is not None:
            self.cuda_stream.synchronize()


def chance_error(data: AnyDataset) -> float:
    """Returns the error in % of predicting the most frequent class."""
    return 100 * (1 - data.labels.bincount().max().item() / len(data))


def check_data(path: Path, before: Sequence[str], now: Sequence[str]) -> None:
    """Raises `InputError` unless the hashes of the data and the class names of a run are those of `path`."""
    if list(before) != list(now):
        raise InputError(
            f"{path} is of other images or classes than the data has now: restore them, or use --fresh"
        )


def check_machine(path: Path, before: tuple[str, str], now: tuple[str, str]) -> None:
    """Warns if the version of torch or the device, with its number of threads, are not those of `path`."""
    if before != now:
        words = "{} is of torch {} on {}, this is torch {} on {}: results may differ by rounding"
        LOG.warning(words.format(path, *before, *now))


def _describe(progress: Progress) -> dict[str, Any]:
    return {key: value for key, value in vars(progress).items() if value is not None}


def build_model(recipe: Recipe, train: AnyDataset) -> Model:
    """Returns the model of a recipe for a training set, initialized by the seed, with the set's normalization."""
    options = dict(recipe.model.options)
    for option in options:  # the other arguments of create_model are decided by the data
        check_choice(f"option of {recipe.model.name}", option, list_options(recipe.model.name))
    if recipe.origin_jitter_px is not None and "origin_jitter_px" in list_options(recipe.model.name):
        options["origin_jitter_px"] = recipe.origin_jitter_px
    if recipe.dropout:
        options["dropout"] = recipe.dropout
    channels, height, width, *_ = train.image_shape
    if crop := recipe.augment.crop_px:
        if crop > min(height, width):
            raise InputError(f"{recipe.name}: augment.crop_px {crop} is more than the images' {min(height, width)}")
        height, width = crop, crop
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        sizes: Any = {"num_classes": len(train.classes), "image_size": (height, width), "in_chans": channels}
        model = create_model(recipe.model.name, **sizes, **options)
    if isinstance(train, Dataset) and isinstance(model, Network):
        model.set_normalization(*channel_statistics(train.images))
    return model


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation of each channel of uint8 images (N, C, H, W), on the scale of [0, 1]."""
    counts = torch.stack([torch.bincount(images[:, c].flatten(), minlength=256) for c in range(images.shape[1])])
    values = torch.arange(256, dtype=torch.float64) / 255
    share = counts.double() / counts.sum(dim=1, keepdim=True)
    mean = share @ values
    deviation = (share @ values.square() - mean.square()).clamp(min=1e-8).sqrt()
    return mean.float(), deviation.float()
