"""A training step of PTN-B, and making the network: beside a plain loop, and beside an escnn network."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from ..data import Dataset
from ..geometry import Similarity, similarity_warp
from ..models import create_model
from experiments.recipes import find_recipe

from ..config import override
from ..training import Run, RunData
from ..training.step import epoch_order
from ..training.trainer import build_model, prepare_device
from . import steerable
from .report import Bench
from .timing import Effort, Work

RECIPE = "rotmnist/ptn_b/paper+"
# the recipe's own, and one that leaves escnn's network some memory
BATCH, SMALL_BATCH = 200, 16


def measure(
    bench: Bench, *, batch: int = BATCH, small_batch: int = SMALL_BATCH, effort: Effort | None = None
) -> None:
    """Steps as `ptn train` does them: batch, rotation, loss, gradients, optimizer."""
    ours = make_step(batch, bench.device)
    plain = {"plain eager": lambda: make_plain_step(batch, bench.device)}
    # a CUDA graph holds its memory between steps: its peak cannot be compared
    memory = bench.device.type == "cpu"
    bench.compare(f"PTN-B training step, {batch} images of 28×28", ours, plain, memory=memory)
    # escnn takes seconds for a step and longer to construct
    few = Effort(seconds=0, rounds=min(3, bench.effort.rounds))
    peers = {"escnn C8 network of its tutorial": partial(steerable.make_step, small_batch, bench.device)}
    name = f"PTN-B training step, {small_batch} images of 28×28"
    bench.compare(name, make_step(small_batch, bench.device), peers, effort=few)
    built = {"escnn C8 network of its tutorial": steerable.make_builder}
    bench.compare("PTN-B construction", lambda: create_model("ptn_b"), built, effort=few)


def make_data(count: int) -> Dataset:
    """Noise in the shape of rotated MNIST: what is in the images does not change how long a step takes."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator)
    return Dataset("noise", "train", images, torch.arange(count) % 10, tuple("0123456789"))


def make_step(batch: int, device: torch.device) -> Work:
    """The step of our trainer, on a GPU a CUDA graph."""
    recipe = override(find_recipe(RECIPE), {"batch": batch, "epochs": 1, "precision": "fp32"})
    prepare_device(recipe.precision)
    data = make_data(2 * batch)
    run = Run(recipe, RunData(data), device)
    with run.on_stream():
        run.batches.start(epoch_order(len(data), batch, seed=0, epoch=0), 0)

    def work() -> None:
        with run.on_stream():
            run.step()
        if run.cuda_stream is not None:
            torch.cuda.current_stream(device).wait_stream(run.cuda_stream)

    return work


def make_plain_step(batch: int, device: torch.device) -> Work:
    """The same recipe written as a plain loop of torch has it: eager, contiguous, float32."""
    recipe = override(find_recipe(RECIPE), {"batch": batch})
    data = make_data(2 * batch)
    model: nn.Module = build_model(recipe, data).to(device).train()
    pictures, labels = data.images.to(device), data.labels.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.optimizer.lr)

    def work() -> None:
        index = torch.randint(len(pictures), (batch,), device=device)
        images = pictures[index].float() / 255
        turn = math.radians(recipe.augment.rotation_deg) * (2 * torch.rand(batch, device=device) - 1)
        loss = F.cross_entropy(model(similarity_warp(images, Similarity(turn))), labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return work
