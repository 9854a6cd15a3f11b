"""One run over several processes, on many GPUs or machines: the same recipe under `torchrun`.

Data-parallel, through Lightning Fabric. Every process takes its part of each batch; batch norm sees the whole.
"""

import os
import sys
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import InputError
from .step import Parallel, Shard


def launched_together() -> bool:
    """Whether this process is one of several that `torchrun` started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join(device: torch.device) -> Parallel:
    """Meet the other processes and agree to share every batch."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError("several processes need Lightning Fabric: pip install 'ptn[distributed]'") from None
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    machines = int(os.environ["WORLD_SIZE"]) // here
    fabric = Fabric(accelerator=device.type, devices=here, num_nodes=machines, strategy="ddp")
    fabric.launch()
    shard = Shard(fabric.global_rank, fabric.world_size)

    def wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        return fabric.setup(model, optimizer)

    def anyone(says_yes: bool) -> bool:
        votes = torch.tensor(float(says_yes), device=fabric.device)
        dist.all_reduce(votes)
        return bool(votes > 0)

    return Parallel(shard, fabric.device, wrap, fabric.backward, fabric.barrier, anyone, _end)


def _end(code: int) -> NoReturn:
    """End this process with `code` once all are here, without taking anything down.

    Torch's threads may still let go of tensors, which needs Python, while Python waits for those threads to end:
    an orderly exit sometimes aborts or never comes.
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class SumOverProcesses(torch.autograd.Function):
    """The sum of a tensor over all processes; on the way back, the sum of what each of them wants of it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def sum_over_processes(tensor: Tensor) -> Tensor:
    """`tensor` added up over all processes, differentiably."""
    total: Tensor = SumOverProcesses.apply(tensor)  # type: ignore[no-untyped-call]
    return total


class SynchronisedBatchNorm(nn.Module):
    """Batch norm over the batches of all processes, on any device, with the state dict of torch's own.

    torch.nn.SyncBatchNorm refuses CPU tensors. Mean and variance are sums that all processes add up, and the
    gradients of those sums are added up on the way back.
    """

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
            values = x.float() if x.dtype != torch.float64 else x
            mean = sum_over_processes(values.sum(axes)) / count
            variance = sum_over_processes((values - mean.view(shape)).square().sum(axes)) / count
            self._remember(mean.detach(), variance.detach() * (count / max(1, count - 1)))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return ((x - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.num_batches_tracked += 1


def synchronise_batch_norm(model: nn.Module) -> None:
    """Replace every batch norm in `model` by one that sees the whole batch. Parameters stay the same objects."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d | nn.BatchNorm3d):
            if type(child) not in (nn.BatchNorm2d, nn.BatchNorm3d):
                kind = type(child).__name__
                raise InputError(f"{name} ({kind}) does more than normalise: train this model in one process")
            setattr(model, name, SynchronisedBatchNorm(child))
        else:
            synchronise_batch_norm(child)
