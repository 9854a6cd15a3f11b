"""One optimization step: batch, augmentation, loss, gradients, update. On a GPU, a captured CUDA graph."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import VoxelDataset
from ..data.augment import augment, noise_per_image
from ..data.dataset import AnyDataset, unpack_voxels
from ..device import Parallel
from ..layers import EvidencePredictor, OriginJitter, OriginPredictor, random_layers
from .recipe import OptimizerSpec, Recipe, ScheduleSpec

# --- batches


def epoch_order(count: int, batch: int, *, seed: int, epoch: int) -> Tensor:
    """Returns the sample indices of each batch of an epoch, (steps, batch): a shuffle without the remainder."""
    generator = torch.Generator().manual_seed((seed << 20) + epoch)
    steps = count // batch
    return torch.randperm(count, generator=generator)[: steps * batch].view(steps, -1)


class Batches:
    """Batches of a data set that is kept on the device as bytes."""

    def __init__(self, data: AnyDataset, steps: int, batch: int, device: torch.device) -> None:
        self.steps = steps
        self.shape = data.image_shape
        self.voxels = isinstance(data, VoxelDataset)
        self.images = (data.packed if isinstance(data, VoxelDataset) else data.images).to(device)
        self.labels = data.labels.to(device)
        self.order = torch.zeros(steps, batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def start(self, order: Tensor, position: int) -> None:
        """Sets the samples of an epoch, indices (steps, batch), and the number of steps already done."""
        self.order.copy_(order, non_blocking=True)
        self.position.fill_(position)

    def load(self) -> tuple[Tensor, Tensor]:
        """Returns the next images, floats in [0, 1], and labels; part of the captured step."""
        # the capture runs the step before any epoch starts, perhaps more often than an epoch has steps
        index = self.order.index_select(0, self.position % self.steps)[0]
        self.position.add_(1)
        images = self.images.index_select(0, index)
        images = unpack_voxels(images, self.shape[-1]).float() if self.voxels else images.float() / 255
        return images, self.labels.index_select(0, index)


# --- optimizer and learning rate

HOLD = 0.7
"""Fraction of the steps after which the rate of the schedule "hold" falls."""


def make_optimizer(
    model: nn.Module, spec: OptimizerSpec, lr: Tensor, origin_lr: Tensor | None = None
) -> torch.optim.Optimizer:
    """Returns the optimizer of `spec`, whose rate is the tensor `lr`; that of origin predictors is `origin_lr`.

    Biases, norms and the heatmap layer have no weight decay. That of the heatmap layer would drive the sum of the
    heatmap, by which the origin is divided, to zero.
    """
    predictors = [m for m in model.modules() if isinstance(m, OriginPredictor | EvidencePredictor)]
    heads = {id(p) for m in predictors if isinstance(m, OriginPredictor) for p in m.head.parameters()}
    delayed = {id(p) for predictor in predictors for p in predictor.parameters() if origin_lr is not None}
    members: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for p in model.parameters():
        decays = spec.weight_decay > 0 and p.dim() >= 2 and id(p) not in heads
        members.setdefault((not decays, id(p) in delayed), []).append(p)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "weight_decay": 0.0 if plain else spec.weight_decay, "lr": origin_lr if late else lr}
        for (plain, late), parameters in sorted(members.items())
    ]
    if spec.kind == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=spec.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=lr, fused=True, capturable=lr.is_cuda)


def learning_rate(spec: ScheduleSpec, peak: float, step: int, steps: int) -> float:
    """Returns the learning rate at one of `steps`."""
    warmup = round(spec.warmup * steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    if spec.kind == "cosine":
        fraction = (step - warmup) / (steps - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * fraction))
    if spec.kind == "hold":
        fraction = max(0.0, (step / steps - HOLD) / (1 - HOLD))
        return peak * 0.5 * (1 + math.cos(math.pi * fraction))
    if spec.kind == "decay":
        intervals = round((step / steps - spec.decay_start) / spec.decay_every, 6)
        return peak * spec.decay_factor ** max(0, math.floor(intervals) + 1)
    if spec.kind == "steps":
        return peak * 0.1 ** sum(step / steps >= milestone for milestone in (0.5, 0.75))
    return peak


# --- the step

EVIDENCE_SHARE = 0.9
"""Weight of the evidence loss. At 0.5 the gradient of the other loss to the origin slows down its learning."""


class TrainingStep:
    """An optimization step on tensors at fixed addresses; calling it performs the step.

    All randomness comes from `generator`: every step draws the numbers for the whole batch, of which each process
    takes its part. Neither other runs nor the number of processes change the numbers of a sample. `fused` compiles
    the code between convolutions.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, batches: Batches, parallel: Parallel, *, fused: bool
    ) -> None:
        self.model, self.recipe, self.batches = model, recipe, batches
        self.device = device = batches.labels.device
        self.steps = recipe.epochs * batches.steps
        self.rates = torch.zeros(batches.steps, device=device)  # of an epoch
        self.plan(0, recipe.epochs)
        self.lr = torch.tensor(recipe.optimizer.lr, device=device)
        self.delay = round(recipe.schedule.origin_delay * self.steps)
        separate = self.delay or recipe.optimizer.origin_scale != 1
        self.origin_lr = torch.zeros_like(self.lr) if separate else None
        self.optimizer = make_optimizer(model, recipe.optimizer, self.lr, self.origin_lr)
        self._allocate_optimizer_state()
        self.network = parallel.wrap(model)
        self.has_evidence = any(isinstance(module, EvidencePredictor) for module in model.modules())
        self.generator = torch.Generator(device).manual_seed(recipe.seed)
        self.noise = self._allocate_noise(parallel)
        jitters = [layer.noise for layer in self.model.modules() if isinstance(layer, OriginJitter)]
        self.fading = [noise for noise in jitters if noise is not None] if recipe.schedule.jitter_fade else []
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        # one element, not zero dimensions: compiled CPU code loses in-place additions to a 0-d float64 tensor
        self.loss_sum = torch.zeros(1, dtype=torch.float64, device=device)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((1,), -1, dtype=torch.int64, device=device)
        # functions, not methods: a reference cycle would keep the graph and its memory alive
        parts: list[Callable[..., Any]] = [begin, classify, tally]
        self._begin, self._classify, self._tally = map(compiled, parts) if fused else parts
        self.graph: torch.cuda.CUDAGraph | None = None
        self.cost = 1.0

    def __call__(self) -> None:
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()

    def rate(self, step: int, epochs: int) -> float:
        """Returns the learning rate at a step of a run of `epochs`, rounded to float32."""
        steps = epochs * self.batches.steps
        return float(np.float32(learning_rate(self.recipe.schedule, self.recipe.optimizer.lr, step, steps)))

    def plan(self, epoch: int, epochs: int) -> None:
        """Sets the learning rates of the steps of an epoch of a run of `epochs`."""
        first, count = epoch * self.batches.steps, self.batches.steps
        rates = [self.rate(first + step, epochs) for step in range(count)]
        self.rates.copy_(torch.tensor(rates), non_blocking=True)

    def capture(self) -> None:
        """Captures the step as a CUDA graph, sets `cost` to its time in seconds, and restores all state."""
        saved = {key: value.clone() for key, value in self.tensors().items()}
        state = self.generator.get_state()
        stream = torch.cuda.current_stream(self.device)
        for _ in range(3):
            self._step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        # A cuBLAS workspace belongs to a stream and is freed with any graph captured there, even if other graphs
        # use it. Cleared before and after the capture, it belongs to this graph alone.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._step()
        torch._C._cuda_clearCublasWorkspaces()
        self.graph = graph
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        self.cost = start.elapsed_time(end) / 1000 / 5
        for key, value in self.tensors().items():
            value.copy_(saved[key])
        self.generator.set_state(state)

    def tensors(self) -> dict[str, Tensor]:
        """Returns every tensor that a step changes, by name: the tensors of a checkpoint."""
        state = {f"model.{key}": value for key, value in self.model.state_dict().items()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, parameter in enumerate(parameters):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                state[f"optimizer.{index}.{key}"] = value
        return state | {name: getattr(self, name) for name in ("count", "loss_sum", "wrong", "first_bad")}

    def _allocate_optimizer_state(self) -> None:
        """Creates the state of the optimizer, which it allocates in its first step, by a step with rate zero."""
        self.lr.zero_()
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def _allocate_noise(self, parallel: Parallel) -> Tensor | None:
        """Allocates the random numbers of a step and assigns the layers theirs; returns those of augmentation."""
        batch = self.batches.order.shape[1] * parallel.world
        shapes: list[tuple[int, ...]] = []
        if self.recipe.augment.active:
            shapes.append((batch, noise_per_image(self.batches.shape, self.recipe.augment)))
        layers = random_layers(self.model)
        shapes += [layer.noise_shape(batch) for layer in layers]
        self.numbers = torch.zeros(sum(math.prod(shape) for shape in shapes), device=self.device)
        parts = self.numbers.split([math.prod(shape) for shape in shapes])
        wholes = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        shares = [whole.chunk(parallel.world)[parallel.rank] for whole in wholes]
        for layer, share in zip(reversed(layers), reversed(shares), strict=False):
            layer.noise = share
        return shares[0] if self.recipe.augment.active else None

    def _step(self) -> None:
        self.numbers.uniform_(generator=self.generator)
        images, labels = self._begin(self)
        loss, wrong = self._classify(self.network, images, labels, self.noise, self.recipe, self.has_evidence)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self._tally(self, loss.detach(), wrong)


def begin(step: TrainingStep) -> tuple[Tensor, Tensor]:
    """Sets the learning rates and the amount of origin jitter; returns the batch."""
    step.lr.copy_(step.rates.index_select(0, step.count % len(step.rates))[0])
    if step.origin_lr is not None:
        scaled = step.recipe.optimizer.origin_scale * step.lr
        step.origin_lr.copy_(torch.where(step.count[0] < step.delay, 0.0, scaled))
    for noise in step.fading:
        amount = ((step.steps - step.count) / (step.recipe.schedule.jitter_fade * step.steps)).clamp(max=1)
        noise.copy_(0.5 + amount * (noise - 0.5))
    return step.batches.load()


def classify(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    noise: Tensor | None,
    recipe: Recipe,
    has_evidence: bool = False,
) -> tuple[Any, Tensor]:
    """Returns the loss on an augmented batch and the number of wrong predictions.

    With an `EvidencePredictor`, the evidence loss has the weight `EVIDENCE_SHARE`, the other loss the rest; and the
    distances between the origins of images and of their rotated copies are added.
    """
    if noise is not None:
        images = augment(images, noise, recipe.augment)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        outputs: Any = network(images, with_evidence=True) if has_evidence else (network(images),)

    def cross_entropy(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=recipe.label_smoothing)

    loss = cross_entropy(outputs[0])
    if has_evidence:
        _, evidence, changes = outputs
        loss = loss.lerp(cross_entropy(evidence), EVIDENCE_SHARE) + changes.mean()
    return loss, (outputs[0].argmax(dim=1) != labels).sum()


def tally(step: TrainingStep, loss: Tensor, wrong: Tensor) -> None:
    """Adds the step to the counters of the epoch; remembers the first step whose loss is not finite."""
    bad = ~torch.isfinite(loss) & (step.first_bad < 0)
    step.first_bad.copy_(torch.where(bad, step.count, step.first_bad))
    step.loss_sum.add_(loss)
    step.wrong.add_(wrong)
    step.count.add_(1)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `torch.compile(function)` with room for one compilation for each kind of network in a fleet."""
    torch._dynamo.config.recompile_limit = max(256, torch._dynamo.config.recompile_limit)
    return torch.compile(function, fullgraph=True, dynamic=False)
