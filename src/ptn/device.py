"""Device, precision and batch size: where and how a model computes."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

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
