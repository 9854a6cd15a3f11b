"""Which code reads the images: torch's own operations, or the Triton kernels of `fused`."""

import importlib.util
import math
import os
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, check_choice

Backend = Literal["auto", "torch", "triton"]
BACKENDS = ("auto", "torch", "triton")

INTERPRETING = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on")
_TRITON_INSTALLED = importlib.util.find_spec("triton") is not None
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def uses_triton(backend: str, images: Tensor, size: tuple[int, int]) -> bool:
    """Whether the Triton kernels read `images`, (N, C, …), to make `size` = (rows, columns) of each channel.

    "auto" takes them on a GPU, except for what they are not made for and for `torch.export`, whose programs are
    to run anywhere. "triton" takes them or says why it cannot; on a CPU they run in Triton's interpreter
    (TRITON_INTERPRET=1 in the environment), slowly.
    """
    check_choice("backend", backend, BACKENDS)
    if backend == "torch" or (backend == "auto" and (not images.is_cuda or _exporting())):
        return False
    problem = _problem(images, size)
    if problem and backend == "triton":
        raise InputError(f"backend 'triton' {problem}")
    return problem is None


def _exporting() -> bool:
    """`torch.compiler.is_exporting`, which up to torch 2.11 says yes whenever `torch.compile` asks."""
    return torch.compiler._is_exporting_flag


def _problem(images: Tensor, size: tuple[int, int]) -> str | None:
    if not _TRITON_INSTALLED:
        return "needs the package triton: pip install triton"
    if not images.is_cuda and not INTERPRETING:
        return f"needs images on a GPU; these are on {images.device.type}: use backend='auto'"
    if images.dtype not in _DTYPES:
        return f"reads float32, bfloat16 and float16 images; got {images.dtype}: use backend='auto'"
    if torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return "cannot be compiled inside a transform of torch.func: use backend='auto'"
    reach = sum((n - 1) * step for n, step in zip(images.shape[1:], images.stride()[1:], strict=True))
    read = math.prod(images.shape[1:])
    written = read // math.prod(images.shape[2:4]) * size[0] * size[1]
    if max(reach, read, written) >= 2**31:
        return "counts the values of one sample in 32 bits, and here are more: use backend='auto'"
    return None
