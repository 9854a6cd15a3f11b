"""Data-parallel training: one run over several processes that `torchrun` started.

On GPUs, two processes compute what one does. On CPUs, torch has no synchronized batch norm: each process normalizes
by the statistics of its own part of a batch, and the running statistics are those of the first process.
"""

import os
import sys
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import InputError


@dataclass(frozen=True)
class Parallel:
    """This process among the `world` processes of a run. Each takes an equal part of every batch."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """True in the process that writes files and reports progress."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Returns a module that averages gradients over all processes."""
        if self.world == 1:
            return model
        return DistributedDataParallel(model, device_ids=[self.device] if self.device.type == "cuda" else None)

    def wait(self) -> None:
        """Blocks until all processes reach this call."""
        if self.world > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """True in all processes if `flag` is true in any of them."""
        if self.world == 1:
            return flag
        flags = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(flags)
        return bool(flags > 0)

    def end(self, code: int) -> None:
        """Exits with `code` if there are several processes, once all reach this call.

        Skips the interpreter's shutdown, which can abort or deadlock with the threads of a process group.
        """
        if self.world > 1:
            dist.barrier()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def join(device: torch.device) -> Parallel:
    """Joins the process group that `torchrun` started: NCCL with a GPU for each process, or gloo on CPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Parallel(device=device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    return Parallel(dist.get_rank(), dist.get_world_size(), device)


def synchronize_batch_norm(model: nn.Module) -> None:
    """Replaces every batch norm, in place, by one over the whole batch of all processes; for GPUs only."""
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d) and type(module) is not nn.BatchNorm2d:  # conversion loses its code
            kind = type(module).__name__
            raise InputError(f"{name} ({kind}) cannot be synchronized: train this model in one process")
    nn.SyncBatchNorm.convert_sync_batchnorm(model)
