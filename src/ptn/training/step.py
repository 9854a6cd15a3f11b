"""One optimisation step: batch, augmentation, loss, gradients, weights. On a GPU, one captured CUDA graph."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.augment import augment, noise_per_image
from ..layers import OriginJitter, random_layers
from .batches import Batches
from .optimise import AveragedWeights, learning_rates, make_optimizer
from .recipe import Recipe


@dataclass(frozen=True)
class Shard:
    """This process's part of every batch, where several share the work."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class Parallel:
    """What sharing a run takes: this process's shard and device, how network and optimizer are wrapped, how
    gradients flow, how to wait for the others, whether any of them says yes, and how this process ends."""

    shard: Shard
    device: torch.device
    wrap: Callable[[nn.Module, torch.optim.Optimizer], tuple[nn.Module, Any]]
    backward: Callable[[Tensor], None]
    wait: Callable[[], None]
    anyone: Callable[[bool], bool]
    end: Callable[[int], NoReturn]


class TrainingStep:
    """All that one step reads and writes, at fixed places in memory; calling it does the step.

    Randomness comes from `generator` alone: every step it draws the numbers for the whole batch, of which a shard
    takes its part, so that neither other runs nor the number of processes change what a sample gets.
    `fused` compiles what stands between the large kernels.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        batches: Batches,
        batch: int,
        device: torch.device,
        *,
        parallel: Parallel | None = None,
        fused: bool = False,
    ) -> None:
        self.recipe = recipe
        self.batches = batches
        self.device = device
        self.shard = parallel.shard if parallel else Shard()
        self.model = model
        rates = learning_rates(recipe.schedule, recipe.optimizer.lr, recipe.epochs * batches.steps)
        self.rates, self.planned_rates = rates.to(device), rates.tolist()
        self.lr = torch.tensor(recipe.optimizer.lr, device=device)
        self.delay = round(recipe.schedule.origin_delay * len(self.rates))
        self.origin_lr = torch.zeros_like(self.lr) if self.delay else None
        self.optimizer = make_optimizer(model, recipe.optimizer, self.lr, self.origin_lr)
        self._allocate_optimizer_state()
        self.average = AveragedWeights(model, recipe.ema) if recipe.ema else None
        # what they are called through: themselves, or wrapped for several processes
        self.network, self.stepper = model, self.optimizer
        if parallel:
            self.network, self.stepper = parallel.wrap(model, self.optimizer)
        self.backward: Callable[[Tensor], None] = parallel.backward if parallel else torch.Tensor.backward
        self.generator = torch.Generator(device).manual_seed(recipe.seed)
        self.noise = self._make_noise(batch)
        jitters = [layer.noise for layer in self.model.modules() if isinstance(layer, OriginJitter)]
        self.fading = [noise for noise in jitters if noise is not None] if recipe.schedule.jitter_fade else []
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        # of one number, not of none: compiled for a CPU, what is added to a float64 without dimensions is lost
        self.loss_sum = torch.zeros(1, dtype=torch.float64, device=device)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((1,), -1, dtype=torch.int64, device=device)
        # functions, not methods: a step that held itself would outlive its last use, its graph and memory with it
        parts: list[Callable[..., Any]] = [begin, classify, tally]
        self._begin, self._classify, self._tally = map(compiled, parts) if fused else parts
        self.graph: torch.cuda.CUDAGraph | None = None
        self.cost = 1.0

    def __call__(self) -> None:
        self.batches.prepare()
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()

    def capture(self) -> None:
        """Record the step as a CUDA graph. What warming up and timing it changes is put back.

        `cost` becomes how many seconds a step takes alone: in a fleet, runs share the time in these proportions.
        """
        kept = {key: value.clone() for key, value in self.tensors().items()}
        state = self.generator.get_state()
        stream = torch.cuda.current_stream(self.device)
        for _ in range(3):
            self._step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        # cuBLAS keeps a workspace for each stream and drops it with any graph captured there, others that use it
        # notwithstanding; made anew while capturing, it lies in the memory of this graph, and nobody may keep it
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._step()
        torch._C._cuda_clearCublasWorkspaces()
        self.graph = graph
        self.cost = self._time_replays()
        for key, value in self.tensors().items():
            value.copy_(kept[key])
        self.generator.set_state(state)

    def _time_replays(self, count: int = 5) -> float:
        assert self.graph is not None
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000 / count

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step changes, by name: what a checkpoint holds."""
        held = {f"model.{key}": value for key, value in self.model.state_dict().items()}
        if self.average is not None:
            held |= {f"average.{key}": value for key, value in self.average.shadow.items()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, parameter in enumerate(parameters):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                held[f"optimizer.{index}.{key}"] = value
        loss_sum = self.loss_sum[0]  # without dimensions, as checkpoints have always had it
        held |= {"count": self.count, "loss_sum": loss_sum, "wrong": self.wrong, "first_bad": self.first_bad}
        return held

    def _allocate_optimizer_state(self) -> None:
        """Let the optimizer make what it keeps, which it does at its first step: one that changes nothing."""
        self.lr.zero_()
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def _make_noise(self, batch: int) -> Tensor | None:
        """Room for all random `numbers` of a step, of which layers take theirs; and the part for augmentation."""
        shapes: list[tuple[int, ...]] = []
        if self.recipe.augment.active:
            shapes.append((batch, noise_per_image(self.batches.shape, self.recipe.augment)))
        layers = random_layers(self.model)
        shapes += [layer.noise_shape(batch) for layer in layers]
        self.numbers = torch.zeros(sum(math.prod(shape) for shape in shapes), device=self.device)
        parts = self.numbers.split([math.prod(shape) for shape in shapes])
        wholes = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        shares = [whole.chunk(self.shard.world)[self.shard.rank] for whole in wholes]
        for layer, share in zip(reversed(layers), reversed(shares), strict=False):
            layer.noise = share
        return shares[0] if self.recipe.augment.active else None

    def _step(self) -> None:
        self.numbers.uniform_(generator=self.generator)
        images, labels = self._begin(self)
        loss, wrong = self._classify(self.network, images, labels, self.noise, self.recipe)
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(loss)
        self.stepper.step()
        if self.average is not None:
            self.average.update()
        self._tally(self, loss.detach(), wrong)


def begin(step: TrainingStep) -> tuple[Tensor, Tensor]:
    """Set the learning rate and how far origins are moved, and get the batch."""
    step.lr.copy_(step.rates.index_select(0, step.count.clamp(max=len(step.rates) - 1))[0])
    if step.origin_lr is not None:
        step.origin_lr.copy_(torch.where(step.count[0] < step.delay, 0.0, step.lr))
    for noise in step.fading:
        steps = len(step.rates)
        left = ((steps - step.count) / (step.recipe.schedule.jitter_fade * steps)).clamp(max=1)
        noise.copy_(0.5 + left * (noise - 0.5))
    return step.batches.load()


def tally(step: TrainingStep, loss: Tensor, wrong: Tensor) -> None:
    """Count the step, its loss and its mistakes."""
    bad = ~torch.isfinite(loss) & (step.first_bad < 0)
    step.first_bad.copy_(torch.where(bad, step.count, step.first_bad))
    step.loss_sum.add_(loss)
    step.wrong.add_(wrong)
    step.count.add_(1)


def classify(
    network: nn.Module, images: Tensor, labels: Tensor, noise: Tensor | None, recipe: Recipe
) -> tuple[Tensor, Tensor]:
    """The loss of `network` on a batch, augmented by `noise`, and how many it got wrong."""
    if noise is not None:
        images = augment(images, noise, recipe.augment)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        logits = network(images)
    loss = F.cross_entropy(logits.float(), labels, label_smoothing=recipe.label_smoothing)
    return loss, (logits.argmax(dim=1) != labels).sum()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with what stands between its large kernels fused; one compilation serves all runs of a kind."""
    # a fleet may have many kinds of networks, each of which is compiled for itself
    torch._dynamo.config.recompile_limit = max(256, torch._dynamo.config.recompile_limit)
    return torch.compile(function, fullgraph=True, dynamic=False)
