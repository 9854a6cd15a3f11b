"""Data-parallel training: one run over several processes that `torchrun` started."""

import os
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
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


def synchronize_batch_norm(model: nn.Module, device: torch.device) -> None:
    """Replaces every batch norm by one over the whole batch of all processes; parameters stay the same objects."""
    synchronized: Any = nn.SyncBatchNorm.convert_sync_batchnorm if device.type == "cuda" else SyncBatchNormCPU
    for path, parent in list(model.named_modules()):
        for name, child in parent.named_children():
            if not isinstance(child, nn.BatchNorm2d | nn.BatchNorm3d):
                continue
            if type(child) not in (nn.BatchNorm2d, nn.BatchNorm3d):
                kind = type(child).__name__
                raise InputError(f"{path}.{name} ({kind}) cannot be synchronized: train this model in one process")
            setattr(parent, name, synchronized(child))


class _Sum(torch.autograd.Function):
    """Sum of a tensor over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return _Sum.forward(ctx, grad_output)


class SyncBatchNormCPU(nn.Module):
    """`nn.SyncBatchNorm` for CPU tensors, which torch's does not accept. The state dict is the same."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: nn.BatchNorm2d | nn.BatchNorm3d) -> None:
        super().__init__()
        self.eps, self.momentum = norm.eps, norm.momentum or 0.1
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *(1,) * (x.dim() - 2))
        mean, variance = self.running_mean, self.running_var
        if self.training:
            axes = (0, *range(2, x.dim()))
            count = x.numel() // x.shape[1] * dist.get_world_size()
            values = x.to(torch.promote_types(x.dtype, torch.float32))
            mean = _Sum.apply(values.sum(axes)) / count  # type: ignore[no-untyped-call]
            variance = _Sum.apply((values - mean.view(shape)).square().sum(axes)) / count  # type: ignore[no-untyped-call]
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (count / max(1, count - 1)), self.momentum)
                self.num_batches_tracked += 1
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return ((x - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)).to(x.dtype)
