"""Device, precision, batch size and processes: where and how a model computes."""

import os
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .errors import InputError, check_choice

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS = ("fp32", "tf32", "bf16")

_LARGEST_BATCH = 1000
_BATCH_PIXELS = 2**22

# Not `fp32_precision`, the newer form: torch.export fails where that was set to "ieee".
_TF32_SWITCHES: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)


def choose_device(name: str) -> torch.device:
    """`torch.device(name)`, checked to exist; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:1")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"no device {name!r} on this machine: torch reports {torch.cuda.device_count()} GPUs")
    return device


def default_batch(shape: Sequence[int]) -> int:
    """Batch size for images of `shape` (C, ...): at most 1000 images and 4 million pixels."""
    return max(1, min(_LARGEST_BATCH, _BATCH_PIXELS // max(1, prod(shape[1:]))))


def set_float32(precision: Precision) -> None:
    """Enable TF32 matrix products and convolutions unless `precision` is "fp32"."""
    for switch in _TF32_SWITCHES:
        switch.allow_tf32 = precision != "fp32"


@contextmanager
def precision_of(precision: Precision, device: torch.device) -> Iterator[None]:
    """Context manager: TF32 for "tf32", bfloat16 autocast (and TF32) for "bf16"; restores the settings on exit."""
    check_choice("precision", precision, PRECISIONS)
    before = [switch.allow_tf32 for switch in _TF32_SWITCHES]
    try:
        set_float32(precision)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        for switch, value in zip(_TF32_SWITCHES, before, strict=True):
            switch.allow_tf32 = value


def prepare_device(precision: Precision) -> None:
    """Sets the global options of torch for training: TF32 and deterministic algorithms."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    set_float32(precision)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # grid_sample warns of its gradient to the image, which is not deterministic on a GPU and not used here
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.filterwarnings("ignore", message="grid_sampler_2d_backward_cuda")
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    # costs a tenth of the time, for memory that is written before it is read
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


# The global options of torch that `prepare_device` sets.
GLOBAL_OPTIONS: tuple[tuple[Any, str], ...] = (
    *((switch, "allow_tf32") for switch in _TF32_SWITCHES),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "benchmark"),
    (torch.utils.deterministic, "fill_uninitialized_memory"),
)


@contextmanager
def restored_settings() -> Iterator[None]:
    """Context manager: restores the global options of torch that `prepare_device` sets on exit."""
    before = [getattr(*option) for option in GLOBAL_OPTIONS]
    mode = torch.get_deterministic_debug_mode()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for (owner, name), value in zip(GLOBAL_OPTIONS, before, strict=True):
            setattr(owner, name, value)
        torch.set_deterministic_debug_mode(mode)


def placement(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the first floating-point parameter or buffer; CPU and float32 without one."""
    tensors: Iterator[Tensor] = (t for group in (model.parameters(), model.buffers()) for t in group)
    first = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    return (torch.device("cpu"), torch.float32) if first is None else (first.device, first.dtype)


def describe_device(device: torch.device) -> str:
    """Name of the hardware: "NVIDIA H200", "AMD EPYC (CPU, 2 threads)"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{_processor()} (CPU, {torch.get_num_threads()} threads)"
    return f"{_processor()} ({device.type})"


def _processor() -> str:
    details = Path("/proc/cpuinfo")
    if details.exists():
        for line in details.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# Data-parallel training: one run over several processes that `torchrun` started. On GPUs, two processes compute
# what one does. On CPUs, torch has no synchronized batch norm: each process normalizes by the statistics of its own
# part of a batch, and the running statistics are those of the first process.


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

    def agree(self, number: int) -> int:
        """Returns the number of the first process in all processes."""
        if self.world == 1:
            return number
        numbers = torch.tensor(number, device=self.device)
        dist.broadcast(numbers, 0)
        return int(numbers)

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
