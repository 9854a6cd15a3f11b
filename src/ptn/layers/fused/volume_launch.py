"""Launching the kernels of 3-D blocks; their convolutions are left to torch, which has none better."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from . import volume_kernels as kernels
from .launch import Relu, Sums, apply_norm
from .layer import width_of

Size3 = tuple[int, int, int]

# elements of one tile, and programs at most: a norm adds up what all of them found
_ELEMENTS, _PROGRAMS = 4096, 2048


@dataclass(frozen=True)
class VolumeLayer:
    """A 3-D convolution: its weights (C', C, K, K, K), in memory channels last, and the size of what it reads."""

    weight: Tensor
    stride: Size3
    wrap: bool
    size: Size3

    @property
    def channels(self) -> int:
        return self.weight.shape[0]

    @property
    def in_channels(self) -> int:
        return self.weight.shape[1]

    @property
    def out_size(self) -> Size3:
        return cast(Size3, tuple(-(-n // step) for n, step in zip(self.size, self.stride, strict=True)))

    @property
    def rows(self) -> int:
        """How many rows its input is wrapped by on either side; all other padding it adds by itself."""
        return self.weight.shape[2] // 2 if self.wrap else 0

    @property
    def padded_size(self) -> Size3:
        return (self.size[0] + 2 * self.rows, *self.size[1:])

    @property
    def keeps(self) -> bool:
        """Whether its output has the shape of its input."""
        return self.stride == (1, 1, 1) and self.channels == self.in_channels

    @property
    def numbers(self) -> tuple[object, ...]:
        """Stride, padding, dilation, transposed, its padding, groups."""
        kernel = self.weight.shape[2:]
        padding = [0 if self.wrap and axis == 0 else k // 2 for axis, k in enumerate(kernel)]
        return list(self.stride), padding, [1, 1, 1], False, [0, 0, 0], 1


def make_layers(
    size: Sequence[int],
    dtype: torch.dtype,
    weights: Sequence[Tensor],
    strides: Sequence[int],
    wraps: Sequence[bool],
) -> list[VolumeLayer]:
    """The convolutions of a chain over maps of `size`, to be computed in `dtype`."""
    layers: list[VolumeLayer] = []
    for i, (weight, wrap) in enumerate(zip(weights, wraps, strict=True)):
        before = layers[-1].out_size if layers else cast(Size3, tuple(size))
        laid_out = weight.to(dtype, memory_format=torch.channels_last_3d)
        layers.append(VolumeLayer(laid_out, cast(Size3, tuple(strides[3 * i : 3 * i + 3])), wrap, before))
    return layers


def flat(maps: Tensor) -> Tensor:
    """(N, A, R, Z, C) as the (N, A, R·Z, C) that kernels take."""
    return maps.flatten(2, 3)


def channels_inside(x: Tensor) -> Tensor:
    """(N, C, A, R, Z) as a contiguous (N, A, R, Z, C)."""
    return x.permute(0, 2, 3, 4, 1).contiguous()


def channels_first(maps: Tensor) -> Tensor:
    """(N, A, R, Z, C) as torch sees it: (N, C, A, R, Z), in memory channels last."""
    return maps.permute(0, 4, 1, 2, 3)


def activate(y: Tensor, norm: Tensor | None, rows: int, shortcut: tuple[Tensor, int] | None = None) -> Tensor:
    """The ReLU of norm(y), wrapped by `rows`; with a `shortcut`, of that and of maps wrapped by so many."""
    y2, padding = flat(y), (rows, 0)
    if shortcut is None:
        z = apply_norm(y2, norm, padding, rows > 0)
    else:
        x, wrapped = shortcut
        shape = {"CX": y2.shape[3], "HX": y2.shape[1], "WX": y2.shape[2], "STRIDE": 1, "PYX": wrapped, "PXX": 0}
        z = apply_norm(y2, norm, padding, rows > 0, flat(x), shape)
    return z.unflatten(2, y.shape[2:4])


def convolve(layer: VolumeLayer, x: Tensor) -> Tensor:
    """The convolution of maps that are wrapped for it."""
    y = torch.ops.aten.convolution(channels_first(x), layer.weight, None, *layer.numbers)
    return channels_inside(y)


def sum_channels(y: Tensor) -> Sums:
    """The sums that batch norm needs."""
    tile, programs = _tile(y)
    sums = y.new_empty(2, y.shape[-1], programs, dtype=torch.float32)
    kernels.sum_channels[(programs,)](y, sums, _pixels(y), C=y.shape[-1], **tile)
    return Sums(sums, tile["STEPS"] * tile["BLOCK_M"])


def skip(layer: VolumeLayer, x: Tensor) -> tuple[Tensor, int]:
    """The shortcut around the block that `layer` begins, from what that reads, and the rows it is wrapped by."""
    if layer.keeps:
        return x, layer.rows
    a, r, z = layer.stride
    taken = x[:, layer.rows : layer.rows + layer.size[0] : a, ::r, ::z]
    before = (layer.channels - layer.in_channels) // 2
    return F.pad(taken, (before, layer.channels - layer.in_channels - before)).contiguous(), 0


def skip_gradient(layer: VolumeLayer, du: Tensor) -> Tensor:
    """The gradient of what `layer` reads, of the shortcut alone."""
    if layer.keeps:
        return du
    before = (layer.channels - layer.in_channels) // 2
    a, r, z = layer.stride
    whole = du.new_zeros(du.shape[0], *layer.size, layer.in_channels)
    whole[:, ::a, ::r, ::z] = du[..., before : before + layer.in_channels]
    return whole


def pass_relu(dz: Tensor, rows: int, relu: Relu, around: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradient before a ReLU whose output was wrapped by `rows`, and the sums that its norm needs."""
    y, norm, joined = relu
    du, (tile, programs) = torch.empty_like(y), _tile(y)
    _, angles, *others, channels = y.shape
    sums = y.new_empty(2, channels, programs, dtype=torch.float32)
    kernels.fold_gradient[(programs,)](
        dz, dz if around is None else around, y if joined is None else joined, y, norm, du, sums, _pixels(y),
        C=channels, H=angles, W=others[0] * others[1], PY=rows, AROUND=around is not None,
        JOINED=joined is not None, **tile,
    )  # fmt: skip
    return du, sums


def convolve_backward(
    layer: VolumeLayer, dy: Tensor, x: Tensor, *, input_too: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of a convolution's weights and of its input, wrapped as that is."""
    dx, dweight, _ = torch.ops.aten.convolution_backward(
        channels_first(dy), channels_first(x), layer.weight, None, *layer.numbers, [input_too, True, False]
    )
    return dweight, channels_inside(dx) if input_too else None


def unwrap(dx: Tensor, rows: int) -> Tensor:
    """The gradient of maps from that of the same, wrapped by `rows`."""
    if not rows:
        return dx
    whole = dx[:, rows:-rows].clone()
    whole[:, :rows] += dx[:, -rows:]
    whole[:, -rows:] += dx[:, :rows]
    return whole


def _pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[-1]


def _tile(maps: Tensor) -> tuple[dict[str, int], int]:
    """How maps are cut up, and among how many programs."""
    width = width_of(maps.shape[-1], least=1)
    pixels = max(1, _ELEMENTS // width)
    steps = triton.cdiv(_pixels(maps), pixels * _PROGRAMS)
    return {"STEPS": steps, "BLOCK_M": pixels, "BLOCK_N": width}, triton.cdiv(_pixels(maps), pixels * steps)
