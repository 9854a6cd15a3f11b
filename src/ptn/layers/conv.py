"""Convolutions that wrap around the angle, blocks of them, and layers that are random in training."""

import math
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import check, checked
from ..errors import InputError
from ..geometry import wrap_angle

Size = int | tuple[int, ...]
Dims = Literal[2, 3]
_MAX_KERNEL = 1024


class _Wrapping:
    """Mixin of a convolution: circular padding along the first spatial axis, zeros along the others."""

    padding: str | tuple[int, ...]

    @checked
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, **options: Any
    ) -> None:
        if options.keys() & {"padding", "padding_mode"}:
            raise InputError("the padding is fixed: circular along the angle, zeros along the other axes")
        check("channels", (in_channels, out_channels), min(in_channels, out_channels) >= 0, "at least 0")
        axes = 3 if isinstance(self, nn.Conv3d) else 2
        kernels = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size,) * axes
        valid = all(isinstance(side, int) and 1 <= side <= _MAX_KERNEL for side in kernels)
        if not valid or len(kernels) != axes:
            raise InputError(f"kernel_size must be integers from 1 to {_MAX_KERNEL}; got {kernel_size!r}")
        super().__init__(in_channels, out_channels, kernel_size, stride, **options)  # type: ignore[call-arg]
        windows = zip(self.kernel_size, self.dilation, strict=True)  # type: ignore[attr-defined]
        totals = [dilation * (kernel - 1) for kernel, dilation in windows]
        self.wrapped, *others = [(total // 2, total - total // 2) for total in totals]
        # The convolution adds symmetric zeros without a copy; only an even kernel needs F.pad.
        symmetric = all(before == after for before, after in others)
        self.padding = (0, *(before if symmetric else 0 for before, _ in others))
        self.zeros = [] if symmetric else [side for pair in reversed(others) for side in pair]

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != len(self.padding) + 2:
            raise InputError(f"expected a batch of {len(self.padding)}-D images; got shape {tuple(x.shape)}")
        x = wrap_angle(x, self.wrapped)
        return super().forward(F.pad(x, self.zeros) if self.zeros else x)  # type: ignore[misc]


class WrapConv2d(_Wrapping, nn.Conv2d):
    """Convolution over polar images: circular along the angle, zero-padded along the radius.

    (N, in, angles, radii) -> (N, out, angles', radii'). Equivariant to rolling the input by any number of rows that
    is a multiple of the angular stride, if the stride divides the number of angles. The size is kept at stride 1.
    The state dict and the options are those of `nn.Conv2d`, except for the padding, which is fixed.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: numbers along angle and radius, or one for both.
        stride: along angle and radius, or one for both.
        options: those of `nn.Conv2d`, such as `bias`.
    """


class WrapConv3d(_Wrapping, nn.Conv3d):
    """`WrapConv2d` over cylindrical images: circular along the angle, zero-padded along radius and z.

    (N, in, angles, radii, Z) -> (N, out, angles', radii', Z'). The state dict is that of `nn.Conv3d`.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: numbers along angle, radius and z, or one for all.
        stride: along angle, radius and z, or one for all.
        options: those of `nn.Conv3d`, such as `bias`.
    """


_PLAIN: dict[int, Any] = {2: nn.Conv2d, 3: nn.Conv3d}
_WRAPPING: dict[int, Any] = {2: WrapConv2d, 3: WrapConv3d}
_NORM: dict[int, Any] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def make_conv(
    in_channels: int,
    out_channels: int,
    *,
    kernel: Size = 3,
    stride: Size = 1,
    wrap: bool = False,
    dims: Dims = 2,
    bias: bool = True,
) -> nn.Conv2d | nn.Conv3d:
    """Returns a He-initialised convolution that keeps the size at stride 1, with or without wrapping."""
    sides = kernel if isinstance(kernel, tuple) else (kernel,) * dims
    if any(side < 1 or side % 2 == 0 for side in sides):
        raise InputError(f"kernel must be odd numbers of at least 1; got {kernel}")
    conv: nn.Conv2d | nn.Conv3d
    if wrap:
        conv = _WRAPPING[dims](in_channels, out_channels, kernel, stride, bias=bias)
    else:
        conv = _PLAIN[dims](
            in_channels, out_channels, kernel, stride, padding=tuple(side // 2 for side in sides), bias=bias
        )
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


def mean_response(conv: nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """Returns the mean of `conv(x)` over all positions without computing `conv(x)`: (N, in, …) -> (N, out).

    A convolution is linear, so its mean is the sum over the taps of the kernel of the weight times the mean of the
    values that the tap reads. For stride 1 and padding that keeps the size.
    """
    pixels = math.prod(x.shape[2:])
    sums = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    for axis, kernel in enumerate(conv.kernel_size):
        sums = _tap_sums(sums, kernel, wrapped=isinstance(conv, _Wrapping) and axis == 0)
    weight, bias = conv.weight.flatten(1).to(sums.dtype), None if conv.bias is None else conv.bias.to(sums.dtype)
    return F.linear(sums.flatten(1) / pixels, weight, bias).to(conv.weight.dtype)


def _tap_sums(x: Tensor, kernel: int, *, wrapped: bool) -> Tensor:
    """Sums of the values that each tap reads along the first spatial axis: (N, C, n, …) -> (N, C, …, kernel)."""
    if wrapped:
        return x.sum(dim=2)[..., None].expand(*x.shape[:2], *x.shape[3:], kernel)
    size = x.shape[2]
    starts = [tap - (kernel - 1) // 2 for tap in range(kernel)]
    return torch.stack([x[:, :, max(0, start) : max(0, size + start)].sum(dim=2) for start in starts], dim=-1)


class ConvBlock(nn.Module):
    """The paper's block: convolution with bias, batch norm, ReLU. (N, in, …) -> (N, out, …/stride)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel: Size = 3,
        stride: Size = 1,
        wrap: bool = False,
        dims: Dims = 2,
    ) -> None:
        super().__init__()
        self.conv = make_conv(in_channels, out_channels, kernel=kernel, stride=stride, wrap=wrap, dims=dims)
        self.norm = _NORM[dims](out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


class ResidualBlock(nn.Module):
    """Two 3×3 or 3×3×3 convolutions and a shortcut without parameters (He et al. 2016, option A)."""

    def __init__(
        self, in_channels: int, out_channels: int, *, stride: int = 1, wrap: bool = False, dims: Dims = 2
    ) -> None:
        super().__init__()
        self.stride = stride
        self.extra_channels = out_channels - in_channels
        self.conv1 = make_conv(in_channels, out_channels, stride=stride, wrap=wrap, dims=dims, bias=False)
        self.norm1 = _NORM[dims](out_channels)
        self.conv2 = make_conv(out_channels, out_channels, wrap=wrap, dims=dims, bias=False)
        self.norm2 = _NORM[dims](out_channels)

    def forward(self, x: Tensor) -> Tensor:
        dims = x.dim() - 2
        shortcut = x[(slice(None), slice(None), *(slice(None, None, self.stride),) * dims)]
        if self.extra_channels:
            before = self.extra_channels // 2
            shortcut = F.pad(shortcut, (*(0, 0) * dims, before, self.extra_channels - before))
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + shortcut)


class Blocks(nn.Sequential):
    """A sequence of blocks, which runs as a few Triton kernels on a GPU if `fused` is set (see `fuse_blocks`)."""

    fused = False

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and x.is_cuda:
            from . import fused_ops

            blocks: list[Any] = list(self)
            if fused_ops.can_run(blocks, x):
                return fused_ops.run_blocks(blocks, x)
        for block in self:
            x = block(x)
        return x


def fuse_blocks(model: nn.Module) -> None:
    """Runs every `Blocks` of `model` as a few Triton kernels on a GPU; outputs are equal up to rounding.

    Raises:
        InputError: Triton is not installed.
    """
    if find_spec("triton") is None:
        raise InputError("fused blocks need Triton, which comes with torch for GPUs: pip install triton")
    from . import fused_ops

    for module in model.modules():
        if isinstance(module, Blocks):
            module.fused = fused_ops.can_fuse(module)


class RandomLayer(nn.Module):
    """A layer that uses `numbers` uniform random numbers for each sample in training.

    They come from torch's global generator unless `noise` is set. The trainer sets it before each step, so that
    runs in one process, in a captured graph or over several processes have random numbers of their own.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers = numbers
        self.noise: Tensor | None = None

    def noise_shape(self, count: int) -> tuple[int, ...]:
        """Shape of the random numbers for `count` samples."""
        return (count, self.numbers)

    def uniform(self, count: int, device: torch.device) -> Tensor:
        """Returns random numbers in [0, 1) for `count` samples."""
        if self.noise is not None:
            return self.noise[:count]
        return torch.rand(self.noise_shape(count), device=device)


def random_layers(model: nn.Module) -> list[RandomLayer]:
    """Returns the random layers of a model, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, RandomLayer)]


class ChannelDropout(RandomLayer):
    """Drops whole feature maps in training, each with probability `rate`, and scales the others by 1/(1 - rate)."""

    def __init__(self, channels: int, rate: float) -> None:
        super().__init__(channels)
        if not 0 <= rate < 1:
            raise InputError(f"dropout must be at least 0 and less than 1; got {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        kept = self.uniform(x.shape[0], x.device) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.dtype).view(*x.shape[:2], *(1,) * (x.dim() - 2))
