"""The training loop: the only one. A `Run` is a recipe with a seed on its way; a fleet is several, interleaved."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset, VoxelDataset
from ..device import set_float32
from ..errors import InputError
from ..evaluation import evaluate
from ..layers import fuse_blocks
from ..models import Model, Network, create_model, list_options
from ..models.inference import put_channels_last
from ..models.zoo import build
from .batches import Batches, Resident, Streamed, epoch_order, fits, image_shape
from .checkpoint import load_checkpoint, restore, save_checkpoint
from .distributed import synchronise_batch_norm
from .recipe import Recipe
from .records import timestamp
from .step import Parallel, Shard, TrainingStep


class RunFailedError(RuntimeError):
    """A run that cannot go on; the others of its fleet can. Its last good checkpoint stays."""


@dataclass(frozen=True)
class Progress:
    """How a run stands at the end of an epoch: means over the epoch, error in %."""

    epoch: int
    loss: float
    train_error: float
    lr: float
    valid_error: float | None = None


@dataclass
class RunData:
    """The splits a run needs. `valid` is there if the recipe has one."""

    train: Dataset | VoxelDataset
    valid: Dataset | VoxelDataset | None = None


@dataclass(eq=False)
class Run:
    """A recipe being trained: `steps()` goes on from wherever it stands, one optimisation step at a time.

    Equal recipes with equal seeds on equal hardware give equal weights, alone or in a fleet, interrupted or not.
    `fused` has a step compiled, its blocks as few kernels: the same numbers to rounding. None: where it can be.
    """

    recipe: Recipe
    data: RunData
    device: torch.device
    folder: Path | None = None
    parallel: Parallel | None = None
    stream_data: bool | None = None
    fused: bool | None = None
    checkpoint_every: int = 10
    on_epoch: Callable[["Run", Progress], None] | None = None

    def __post_init__(self) -> None:
        recipe, train = self.recipe, self.data.train
        self.shard = self.parallel.shard if self.parallel else Shard()
        self.batch = min(recipe.batch, len(train))
        if self.batch < 2:
            raise InputError(f"{recipe.name}: {len(train)} training images are too few")
        if self.batch % self.shard.world:
            raise InputError(f"{recipe.name}: batch {self.batch} cannot be shared by {self.shard.world} processes")
        self.model = self._lay_out(build_model(recipe, train).to(self.device)).train()
        if self.parallel:
            synchronise_batch_norm(self.model)
        if self.fused is None:
            self.fused = self.parallel is None and can_fuse(self.model, self.device)
        if self.fused:
            fuse_blocks(self.model)
        self.steps_per_epoch = len(train) // self.batch
        local = self.batch // self.shard.world
        resident = fits(train, self.device) if self.stream_data is None else not self.stream_data
        kind: Any = Resident if resident else Streamed
        self.batches: Batches = kind(train, self.steps_per_epoch, local, self.device)
        self.cuda_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.epoch, self.position = 0, 0
        self.seconds = 0.0
        self.together = 1  # how many runs at most shared the device with this one, itself included
        self.started = timestamp()
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.best_error: float | None = None
        with self.on_stream():
            self.step = TrainingStep(
                self.model,
                recipe,
                self.batches,
                self.batch,
                self.device,
                parallel=self.parallel,
                fused=self.fused,
            )
            if self.device.type == "cuda" and not self.parallel:
                self.step.capture()

    def _lay_out(self, model: Model) -> Model:
        """`model` with feature maps channels last where that is faster: not in float32 on a GPU."""
        if self.device.type == "cpu" or self.recipe.precision == "bf16":
            put_channels_last(model)
        return model

    def on_stream(self) -> AbstractContextManager[Any]:
        """The CUDA stream of this run, where there is one."""
        return torch.cuda.stream(self.cuda_stream) if self.cuda_stream is not None else nullcontext()

    @property
    def done(self) -> bool:
        return self.epoch >= self.recipe.epochs

    def steps(self) -> Iterator[None]:
        """Train to the end, pausing after every step."""
        order = self._order(self.epoch)
        while not self.done:
            with self.on_stream():
                self.batches.start(order, self.position)
            while self.position < self.steps_per_epoch:
                with self.on_stream():
                    self.step()
                self.position += 1
                yield
            order = self._order(self.epoch + 1)  # while a GPU is still busy
            self._finish_epoch()

    def _order(self, epoch: int) -> Tensor:
        """This process's part of the samples of each batch of an epoch."""
        order = epoch_order(len(self.data.train), self.batch, seed=self.recipe.seed, epoch=epoch)
        return order.chunk(self.shard.world, dim=1)[self.shard.rank]

    def finished_model(self) -> Model:
        """The network with the weights that the recipe selects, in evaluation mode."""
        model = self._copy()
        if self.recipe.selection == "valid":
            model.load_state_dict(self.best)
        return model

    def release(self) -> None:
        """Give back the memory of the captured step, with gradients and all between; what was learned stays."""
        self.step.graph = None
        self.step.optimizer.zero_grad(set_to_none=True)

    # --- what survives a stop

    @property
    def checkpoint_path(self) -> Path | None:
        return self.folder / "checkpoint.safetensors" if self.folder else None

    def save(self) -> None:
        """Write a checkpoint of this very moment, unless the loss is broken: then the last good one stays."""
        if self.checkpoint_path is None or self.shard.rank:
            return
        self._synchronise()
        if int(self.step.first_bad) >= 0:
            return
        tensors = {**self.step.tensors(), "generator": self.step.generator.get_state()}
        tensors |= {f"best.{key}": value for key, value in self.best.items()}
        facts = {
            "recipe": self.recipe.to_dict(),
            "epoch": self.epoch,
            "position": self.position,
            "seconds": self.seconds,
            "started": self.started,
            "history": self.history,
            "best_error": self.best_error,
        }
        save_checkpoint(self.checkpoint_path, tensors, facts)

    def resume(self) -> bool:
        """Go back to the last checkpoint, if there is one of this recipe."""
        path = self.checkpoint_path
        if path is None or not path.exists():
            return False
        held, facts = load_checkpoint(path)
        saved = facts["recipe"]
        if (saved["name"], saved["seed"]) != (self.recipe.name, self.recipe.seed):
            raise InputError(f"{path} belongs to {saved['name']} seed {saved['seed']}: choose another folder")
        if saved != _through_json(self.recipe.to_dict()):
            raise InputError(f"{path} was made with other settings of {self.recipe.name}: choose another folder")
        self.step.generator.set_state(held.pop("generator"))
        self.best = {
            k.removeprefix("best."): held.pop(k).to(self.device) for k in list(held) if k.startswith("best.")
        }
        with self.on_stream():
            restore(held, self.step.tensors(), path)
        self.epoch, self.position = facts["epoch"], facts["position"]
        self.seconds, self.started = facts["seconds"], facts["started"]
        self.history, self.best_error = facts["history"], facts["best_error"]
        return True

    # --- the end of an epoch

    def _finish_epoch(self) -> None:
        seen = self.steps_per_epoch
        loss, wrong, first_bad = self._totals()
        self.epoch, self.position = self.epoch + 1, 0
        if first_bad >= 0:
            rate = self.step.planned_rates[first_bad]
            raise RunFailedError(
                f"the loss is not finite at step {first_bad} "
                f"(epoch {first_bad // seen + 1}, learning rate {rate:g}): lower optimizer.lr"
            )
        rate = self.step.planned_rates[self.epoch * seen - 1]
        progress = Progress(self.epoch, loss / seen, 100 * wrong / (seen * self.batch), rate)
        if self.recipe.selection == "valid":
            progress = replace(progress, valid_error=self._validate())
        self.history.append({k: v for k, v in vars(progress).items() if v is not None})
        with self.on_stream():
            self.step.loss_sum.zero_()
            self.step.wrong.zero_()
        if self.epoch % self.checkpoint_every == 0 or self.done:
            self.save()
        if self.on_epoch is not None:
            self.on_epoch(self, progress)

    def _totals(self) -> tuple[float, int, int]:
        """Loss, mistakes and the first bad step, over all processes that share this run."""
        with self.on_stream():
            totals = torch.cat((self.step.loss_sum / self.shard.world, self.step.wrong.double()[None]))
            bad = self.step.first_bad.double()
            if self.parallel:
                torch.distributed.all_reduce(totals)
                torch.distributed.all_reduce(bad, op=torch.distributed.ReduceOp.MAX)
            # asked for once, after all that the device has to do for this run
            loss, wrong, first_bad = torch.cat((totals, bad)).tolist()
        return loss, round(wrong), round(first_bad)

    def _validate(self) -> float:
        assert self.data.valid is not None
        probe = self._copy()
        error = evaluate(probe, self.data.valid, precision=self.recipe.precision).error
        if self.best_error is None or error < self.best_error:
            self.best, self.best_error = probe.state_dict(), error
        return error

    def _copy(self) -> Model:
        """The network as it stands, with averaged weights where the recipe averages, in evaluation mode."""
        model = self._lay_out(build(self.model.config).to(self.device))
        state = {key: value.clone() for key, value in self.model.state_dict().items()}
        model.load_state_dict(state | (self.step.average.shadow if self.step.average else {}))
        return model.eval()

    def _synchronise(self) -> None:
        if self.cuda_stream is not None:
            self.cuda_stream.synchronize()


def can_fuse(model: Model, device: torch.device) -> bool:
    """Whether a step of `model` is known to compile: our own networks, on a GPU with Triton."""
    return isinstance(model, Network) and device.type == "cuda" and find_spec("triton") is not None


def build_model(recipe: Recipe, train: Dataset | VoxelDataset) -> Model:
    """The network of a recipe for its data, initialised by the seed, normalised by the training images."""
    options = dict(recipe.model.options)
    known = list_options(recipe.model.name)
    if recipe.origin_jitter_px is not None and "origin_jitter_px" in known:
        options["origin_jitter_px"] = recipe.origin_jitter_px
    if recipe.dropout:
        options["dropout"] = recipe.dropout
    channels, height, width, *_ = image_shape(train)
    if crop := recipe.augment.crop_px:
        if crop > min(height, width):
            raise InputError(f"{recipe.name}: augment.crop_px {crop} is more than the images' {min(height, width)}")
        height, width = crop, crop
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = create_model(
            recipe.model.name,
            num_classes=len(train.classes),
            image_size=(height, width),
            in_chans=channels,
            **options,
        )
    if isinstance(train, Dataset) and isinstance(model, Network):
        model.set_normalization(*channel_statistics(train.images))
    return model


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel of bytes (N, C, H, W), in the units of [0, 1]."""
    counts = torch.stack([torch.bincount(images[:, c].flatten(), minlength=256) for c in range(images.shape[1])])
    values = torch.arange(256, dtype=torch.float64) / 255
    share = counts.double() / counts.sum(dim=1, keepdim=True)
    mean = share @ values
    deviation = (share @ values.square() - mean.square()).clamp(min=1e-8).sqrt()
    return mean.float(), deviation.float()


def prepare_device(recipe: Recipe, device: torch.device) -> None:
    """Settings of torch that hold for the whole process: TF32, and algorithms that give equal results."""
    set_float32(recipe.precision)
    torch.backends.cudnn.deterministic = recipe.deterministic
    torch.backends.cudnn.benchmark = not recipe.deterministic and device.type == "cuda"
    # grid_sample warns of its gradient to the image, which is not deterministic on a GPU and never asked for here
    torch.use_deterministic_algorithms(recipe.deterministic, warn_only=True)
    warnings.filterwarnings("ignore", message="grid_sampler_2d_backward_cuda")
    # where a recipe says fp32, fp32 is meant
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    # filling what is about to be written costs a tenth of the time
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _through_json(values: Any) -> Any:
    return json.loads(json.dumps(values))
