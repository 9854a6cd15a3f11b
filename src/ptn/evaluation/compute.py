"""Where a model runs, and how exactly: device, precision, batch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from ..errors import InputError, check_choice
from ..models import InferenceModel, Model, Network, OnnxModel, ScoreSum, for_inference

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS = ("fp32", "tf32", "bf16")

# Batches have at most this many images, and fewer where together they would have more pixels than that.
_LARGEST_BATCH = 1000
_BATCH_PIXELS = 2**22

# not `fp32_precision`, their newer form: torch.export refuses to run where that was set to "ieee"
_TF32_SWITCHES: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"no device {name!r} here: torch sees {torch.cuda.device_count()} GPUs")
    return device


def default_batch(shape: Sequence[int]) -> int:
    """How many images of this shape, channels first, are a batch that needs no more memory than most have."""
    return max(1, min(_LARGEST_BATCH, _BATCH_PIXELS // max(1, prod(shape[1:]))))


def set_float32(precision: Precision) -> None:
    """From now on a GPU multiplies float32 numbers in full for "fp32", in TF32 for the others."""
    for switch in _TF32_SWITCHES:
        switch.allow_tf32 = precision != "fp32"


@contextmanager
def precision_of(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute in this precision inside the block: "tf32" speeds up a GPU's float32, "bf16" autocasts as well."""
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
    """Where a model's floating-point numbers are and of which kind; CPU and float32 if it has none."""
    tensors: Iterator[Tensor] = (t for group in (model.parameters(), model.buffers()) for t in group)
    first = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    return (torch.device("cpu"), torch.float32) if first is None else (first.device, first.dtype)


@overload
def made_ready(model: Model) -> Model | InferenceModel: ...
@overload
def made_ready(model: Model | OnnxModel) -> Model | InferenceModel | OnnxModel: ...
@overload
def made_ready(model: nn.Module) -> nn.Module: ...
def made_ready(model: nn.Module) -> nn.Module:
    """`model` as it answers soonest: on a CPU our own networks `for_inference`, all others as they are."""
    if isinstance(model, Network | ScoreSum) and placement(model)[0].type == "cpu":
        return for_inference(model)
    return model
