"""Training of peers by their own recipes: several runs at once, on a GPU as graphs on streams of their own."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ptn import Similarity, similarity_warp
from ptn.data import Dataset

from .e2cnn_network import E2CNN
from .networks import P4CNN, RICCNN, Z2CNN, HNet, TIPooling

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class PeerRecipe:
    """A network, and how its authors train it.

    Args:
        rate: learning rate in each epoch.
        canvas: side to which images are padded with zeros.
        rotated: rotate each training image by any angle, nearest neighbour.
        phase_factor: factor on the gradients of parameters named "phase".
        penalty: L1 and L2 penalties on the weights of convolutions and of linear layers.
    """

    build: Callable[[], nn.Module]
    epochs: int
    batch: int
    rate: Schedule
    canvas: int = 28
    rotated: bool = False
    phase_factor: float = 1.0
    penalty: tuple[float, float] = (0.0, 0.0)


def constant(rate: float) -> Schedule:
    """The same learning rate in every epoch."""
    return lambda epoch: rate


PEERS: dict[str, PeerRecipe] = {
    "z2cnn": PeerRecipe(Z2CNN, 300, 128, constant(1e-3)),
    "p4cnn": PeerRecipe(P4CNN, 100, 128, constant(1e-3)),
    "hnet": PeerRecipe(HNet, 200, 46, lambda epoch: 0.0076 * 0.1 ** (max(0, epoch - 1) // 50), phase_factor=7.8),
    "ti_pooling": PeerRecipe(TIPooling, 60, 64, constant(1e-4)),
    "ric_cnn": PeerRecipe(RICCNN, 40, 128, constant(1e-3), canvas=32),
    "e2cnn": PeerRecipe(
        E2CNN, 40, 64, lambda epoch: 0.015 * 0.8 ** max(0, epoch - 15), rotated=True, penalty=(1e-7, 1e-8)
    ),
}


@dataclass
class PeerRun:
    """One network in training: `step` trains on the rows of the data in `index`."""

    recipe: PeerRecipe
    seed: int
    images: Tensor
    labels: Tensor
    seconds: float = 0.0
    graph: Any = None
    stream: Any = None
    model: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        device = self.images.device
        self.model = self.recipe.build().to(device).train()
        self.rate = torch.tensor(0.0, device=device)
        self.index = torch.zeros(self.recipe.batch, dtype=torch.int64, device=device)
        self.angles = torch.zeros(self.recipe.batch, device=device)
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.rate, capturable=cuda, fused=True)
        self.generator = torch.Generator().manual_seed(self.seed)
        if cuda:
            self.stream = torch.cuda.Stream(device)
            self._capture()

    def _step(self) -> None:
        images, labels = self.images.index_select(0, self.index), self.labels.index_select(0, self.index)
        if self.recipe.rotated:
            images = similarity_warp(images, Similarity(rotation=self.angles), mode="nearest")
        loss = F.cross_entropy(self.model(images), labels) + self._penalty()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for name, parameter in self.model.named_parameters():
            if "phase" in name and parameter.grad is not None:
                parameter.grad.mul_(self.recipe.phase_factor)
        self.optimizer.step()

    def _penalty(self) -> Tensor:
        total = self.rate.new_zeros(())
        if not any(self.recipe.penalty):
            return total
        for layer in self.model.modules():
            weights = getattr(layer, "weights", getattr(layer, "weight", None))
            if not isinstance(weights, Tensor) or isinstance(layer, nn.modules.batchnorm._BatchNorm):
                continue
            amount = self.recipe.penalty[isinstance(layer, nn.Linear)]
            total = total + amount * (weights.abs().sum() + weights.square().sum())
        return total

    def _capture(self) -> None:
        state = [value.clone() for value in (*self.model.state_dict().values(),)]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._step()
            self.graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self._step()
            for value, saved in zip(self.model.state_dict().values(), state, strict=True):
                value.copy_(saved)
            for values in self.optimizer.state.values():
                for value in values.values():
                    value.zero_()

    def start_epoch(self, epoch: int) -> int:
        """Shuffle the data; returns the number of steps."""
        self.rate.fill_(self.recipe.rate(epoch))
        steps = len(self.images) // self.recipe.batch
        order = torch.randperm(len(self.images), generator=self.generator)[: steps * self.recipe.batch]
        self.order = order.view(steps, -1).to(self.images.device)
        angles = 2 * math.pi * torch.rand(steps, self.recipe.batch, generator=self.generator)
        self.all_angles = angles.to(self.images.device)
        return steps

    def step(self, number: int) -> None:
        """Train on batch `number` of the epoch."""
        self.index.copy_(self.order[number])
        self.angles.copy_(self.all_angles[number])
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()


def to_images(data: Dataset, canvas: int, device: torch.device) -> Tensor:
    """Images in [0, 1], padded with zeros to `canvas`."""
    margin = canvas - data.images.shape[-1]
    pad = (margin // 2, margin - margin // 2) * 2
    return F.pad(data.images.to(device).float() / 255, pad)


def train(recipe: PeerRecipe, seeds: Sequence[int], data: Dataset, device: torch.device) -> list[PeerRun]:
    """Train one network for each seed, side by side."""
    images, labels = to_images(data, recipe.canvas, device), data.labels.to(device)
    runs = [PeerRun(recipe, seed, images, labels) for seed in seeds]
    started = time.perf_counter()
    for epoch in range(recipe.epochs):
        steps = {run.start_epoch(epoch) for run in runs}.pop()
        for number in range(steps):
            for run in runs:
                with torch.cuda.stream(run.stream):
                    run.step(number)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    for run in runs:
        run.seconds = (time.perf_counter() - started) / len(runs)
        run.model.eval()
    return runs


@torch.no_grad()
def error(run: PeerRun, data: Dataset, batch: int = 1000) -> float:
    """Percent of wrong predictions."""
    device = run.images.device
    images, labels = to_images(data, run.recipe.canvas, device), data.labels.to(device)
    predictions = torch.cat([run.model(part).argmax(dim=1) for part in images.split(batch)])
    return 100 * int((predictions != labels).sum()) / len(labels)
