"""Launches of the kernels of `block_chain`: the steps of a chain, forward and backward.

Maps are (N, …, C) tensors, of images with two spatial axes or of volumes with three.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import fused_kernels as kernels

Tensors = Sequence[Tensor]
Ints = Sequence[int]
Options = dict[str, int]
Shortcut = tuple[Tensor, Options]
"""Maps to add before a ReLU, and the constants of `apply_norm` for them."""

# elements per program of elementwise kernels
_ELEMENTS = 2048
# of the kernels that sum over volumes: elements per step, and the largest number of programs
_VOLUME_ELEMENTS, _VOLUME_PROGRAMS = 4096, 2048
# number of pixels from which larger tiles still fill a GPU
_MANY_PIXELS = 100_000
# of `sum_splits`: weights per program, and splits added per step
_SUM_WIDTH, _SUM_STEP = 64, 32


class Layer:
    """A convolution with weights (C', *kernel, C) over maps of `size`, two or three axes."""

    def __init__(self, weight: Tensor, size: tuple[int, ...], joined: int, wrap: int, *stride: int) -> None:
        self.weight, self.size, self.stride = weight, size, stride
        self.joined, self.wrap, self.is_volume = bool(joined), bool(wrap), len(size) == 3
        self.channels, *kernel, self.in_channels = weight.shape
        self.kernel = tuple(kernel)
        self.out_size = tuple(-(-n // step) for n, step in zip(size, stride, strict=True))
        # whether the stride does not divide the number of rows that it wraps around
        self.is_uneven = self.wrap and size[0] % stride[0] > 0
        # padding with which the input and the gradient of the output are stored: wrapped rows for volumes, else all
        self.padding = tuple(k // 2 for k in kernel)
        self.gradient_padding = tuple(-(-p // step) for p, step in zip(self.padding, stride, strict=True))
        if self.is_volume:
            self.padding, self.gradient_padding = (self.padding[0] if wrap else 0, 0, 0), (0, 0, 0)
        self.padded_size = tuple(n + 2 * p for n, p in zip(size, self.padding, strict=True))

    @property
    def constants(self) -> dict[str, Any]:
        """Constants of all kernels for convolutions of images."""
        (height, width), (kernel_y, kernel_x), (stride_y, stride_x) = self.out_size, self.kernel, self.stride
        return {
            "CIN": self.in_channels, "COUT": self.channels, "HO": height, "WO": width, "KH": kernel_y,
            "KW": kernel_x, "SY": stride_y, "SX": stride_x,
            "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
        }  # fmt: skip

    @property
    def volume_options(self) -> tuple[Any, ...]:
        """Weight and, after the bias, the options of `aten.convolution` for volumes."""
        zeros = [0 if self.wrap and axis == 0 else k // 2 for axis, k in enumerate(self.kernel)]
        return self.weight.movedim(-1, 1), None, list(self.stride), zeros, [1, 1, 1], False, [0, 0, 0], 1


def make_layers(size: Ints, dtype: torch.dtype, weights: Tensors, layout: Ints) -> list[Layer]:
    """The convolutions of a chain over maps of `size`, computed in `dtype`; see `block_chain`."""
    rows = [weight.movedim(1, -1) for weight in weights]
    if not all(row.dtype == dtype and row.is_contiguous() for row in rows):
        converted = [torch.empty(row.shape, dtype=dtype, device=row.device) for row in rows]
        torch._foreach_copy_(converted, rows)
        rows = converted
    length = 2 + len(size)
    layers: list[Layer] = []
    for i, weight in enumerate(rows):
        before = layers[-1].out_size if layers else tuple(size)
        layers.append(Layer(weight, before, *layout[i * length : (i + 1) * length]))
    return layers


class Relu(NamedTuple):
    """A ReLU over norm(y), or over norm(y) plus a shortcut; then `joined` is its output."""

    y: Tensor
    norm: Tensor
    joined: Tensor | None = None


class Sums(NamedTuple):
    """Sum and squared deviation per channel, (2, C, programs), of the `pixels` of each program."""

    values: Tensor
    pixels: int


def make_shortcut(first: Layer, x: Tensor) -> Shortcut:
    """The shortcut of the residual block that begins with `first`, which reads `x`."""
    padding, size, stride = first.padding, first.size, first.stride[0]
    if first.is_volume and stride > 1:  # the kernel treats the last two axes as one, which has no stride
        rows = padding[0]
        x = x[:, rows : rows + size[0] : stride, ::stride, ::stride].contiguous()
        padding, size, stride = (0, 0, 0), first.out_size, 1
    constants = {"HX": size[0], "WX": math.prod(size[1:]), "STRIDE": stride, "PYX": padding[0], "PXX": padding[1]}
    return x, {"CX": first.in_channels, **constants}


_NO_SHORTCUT = {"CX": 0, "HX": 1, "WX": 1, "STRIDE": 1, "PYX": 0, "PXX": 0}


def apply_norm(y: Tensor, norm: Tensor | None, following: Layer | None, shortcut: Shortcut | None = None) -> Tensor:
    """The ReLU of norm(y) plus `shortcut`, or y without a norm, with the padding of the `following` convolution."""
    padding = following.padding if following else (0,) * (y.dim() - 2)
    z, shape = _new_padded(y, padding)
    x, constants = shortcut or (y, _NO_SHORTCUT)
    tile, programs = _tile(z)
    kernels.apply_norm[(programs,)](
        y, y if norm is None else norm, x, z, _pixels(z), **shape,
        WRAP=following is not None and following.wrap, NORMALIZE=norm is not None, **constants, **tile,
    )  # fmt: skip
    return z


def convolve(layer: Layer, x: Tensor, *, with_sums: bool) -> tuple[Tensor, Sums | None]:
    """The convolution of a padded input, and the sums that batch norm needs."""
    if layer.is_volume:
        y = channels_last(torch.ops.aten.convolution(x.movedim(-1, 1), *layer.volume_options))
        if not with_sums:
            return y, None
        tile, programs = _sum_tile(y)
        sums = _new_sums(y, programs)
        kernels.sum_channels[(programs,)](y, sums, _pixels(y), C=y.shape[-1], **tile)
        return y, Sums(sums, tile["STEPS"] * tile["BLOCK_M"])
    y = x.new_empty(x.shape[0], *layer.out_size, layer.channels)
    tile = _conv_tile(layer.kernel[1] * layer.in_channels, layer.channels, _pixels(y), y.dtype)
    programs = triton.cdiv(_pixels(y), tile["BLOCK_M"])
    sums = _new_sums(y, programs)
    kernels.conv_forward[(programs,)](
        x, layer.weight, y, sums, _pixels(y), **layer.constants, H=x.shape[1], W=x.shape[2],
        **tile, SUMS=with_sums, BLOCK_N=_width(layer.channels),
    )  # fmt: skip
    return y, Sums(sums, tile["BLOCK_M"]) if with_sums else None


def batch_norm(y: Tensor, sums: Sums, scale: Tensor, offset: Tensor, eps: float) -> Tensor:
    """The norm (5, C) of a convolution's output: gain, shift, mean, 1/deviation, unbiased variance."""
    channels, programs = sums.values.shape[1:]
    norm = sums.values.new_empty(5, channels)
    kernels.norm_forward[(channels,)](
        sums.values, scale, offset, norm, _pixels(y), programs, eps,
        C=channels, BLOCK_M=sums.pixels, BLOCK_P=triton.next_power_of_2(programs),
    )  # fmt: skip
    return norm


def relu_backward(dz: Tensor, relu: Relu, rows: int = 0, around: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradient before a ReLU whose output is wrapped by `rows`, and the sums that its norm needs.

    `around` is the gradient of a shortcut that begins at the output of the ReLU.
    """
    y, norm, joined = relu
    du, (tile, programs) = torch.empty_like(y), _sum_tile(y)
    sums = _new_sums(y, programs)
    _, height, *others, channels = y.shape
    kernels.relu_backward[(programs,)](
        dz, dz if around is None else around, y if joined is None else joined, y, norm, du, sums, _pixels(y),
        C=channels, H=height, W=math.prod(others), PY=rows, AROUND=around is not None, JOINED=joined is not None,
        **tile,
    )  # fmt: skip
    return du, sums


def norm_backward(norm: Tensor, du: Tensor, sums: Tensor) -> Tensor:
    """The gradient (4, C) of a norm: two rows for `output_gradient`, and the gradients of scale and offset."""
    _, channels, programs = sums.shape
    dnorm = sums.new_empty(4, channels)
    kernels.norm_backward[(channels,)](
        sums, norm, dnorm, _pixels(du), programs, C=channels, BLOCK_P=triton.next_power_of_2(programs)
    )
    return dnorm


def output_gradient(layer: Layer, du: Tensor, y: Tensor, norm: Tensor, dnorm: Tensor) -> Tensor:
    """The gradient of a convolution's output y from that of norm(y), padded for `conv_backward_input`."""
    dy, shape = _new_padded(y, layer.gradient_padding)
    tile, programs = _tile(dy)
    kernels.output_gradient[(programs,)](
        du, y, norm, dnorm, dy, _pixels(dy), **shape, WRAP=layer.wrap and not layer.is_uneven, **tile
    )
    return dy


def input_gradient(
    layer: Layer, dy: Tensor, x: Tensor, relu: Relu | None, shortcut: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient before the `relu` whose output a convolution of images reads, and the sums that its norm needs.

    Without a `relu` it is the gradient of the convolution's input. `shortcut` is the gradient at the end of the
    residual block that the convolution begins.
    """
    offsets = layer.stride[0] * layer.stride[1]
    pixels = dy.shape[0] * math.prod(layer.out_size)
    tile = _conv_tile(layer.channels, layer.in_channels, pixels * offsets, dy.dtype)
    programs = triton.cdiv(pixels, tile["BLOCK_M"])
    dx = dy.new_empty(dy.shape[0], *layer.size, layer.in_channels)
    sums = _new_sums(dx, programs * offsets)
    (rows, columns), (grad_rows, grad_columns) = layer.padding, layer.gradient_padding
    kernels.conv_backward_input[(programs, offsets)](
        dy, layer.weight, dy if shortcut is None else shortcut,
        x, relu.y if relu else x, relu.norm if relu else sums, dx, sums, pixels,
        **layer.constants, H=layer.size[0], W=layer.size[1], PY=rows, PX=columns, DPY=grad_rows, DPX=grad_columns,
        PERIODS=3 if layer.is_uneven else 1, SHORTCUT=0 if shortcut is None else shortcut.shape[-1],
        CHAINED=relu is not None, JOINED=relu is not None and relu.joined is not None,
        **tile, BLOCK_N=_width(layer.in_channels),
    )  # fmt: skip
    return dx, sums


def volume_gradients(layer: Layer, dy: Tensor, x: Tensor, *, input_grad: bool) -> tuple[Tensor | None, Tensor]:
    """The gradients of a 3-D convolution's wrapped input, if needed, and of its weights (C', K, K, K, C)."""
    weight, bias, *options = layer.volume_options
    dx, dweight, _ = torch.ops.aten.convolution_backward(
        dy.movedim(-1, 1), x.movedim(-1, 1), weight, bias, *options, [input_grad, True, False]
    )
    return channels_last(dx) if input_grad else None, channels_last(dweight)


def volume_relu_backward(
    layer: Layer, dx: Tensor, relu: Relu | None, shortcut: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`input_gradient` for volumes, from the gradient `dx` of the wrapped input."""
    if shortcut is not None and (max(layer.stride) > 1 or layer.channels != layer.in_channels):
        before = (layer.channels - layer.in_channels) // 2
        a, r, z = layer.stride
        spread = shortcut.new_zeros(shortcut.shape[0], *layer.size, layer.in_channels)
        spread[:, ::a, ::r, ::z] = shortcut[..., before : before + layer.in_channels]
        shortcut = spread
    rows = layer.padding[0]
    if relu is not None:
        return relu_backward(dx, relu, rows, shortcut)
    if rows:
        wrapped, dx = dx, dx[:, rows:-rows].clone()
        dx[:, :rows] += wrapped[:, -rows:]
        dx[:, -rows:] += wrapped[:, :rows]
    return dx if shortcut is None else dx + shortcut, dx


class WeightGradients:
    """The gradients of all weights in one tensor.

    For images, programs split the pixels between them, and one kernel sums the splits of all layers.
    """

    def __init__(self, layers: Sequence[Layer], count: int, like: Tensor) -> None:
        self.layers = layers
        self.pixels = [count * math.prod(layer.out_size) for layer in layers]
        self.tiles = [_weight_tile(layer, pixels) for layer, pixels in zip(layers, self.pixels, strict=True)]
        self.sizes = tuple(layer.weight.numel() for layer in layers)
        self.splits = tuple(splits for _, splits in self.tiles)
        parts = [splits * size for splits, size in zip(self.splits, self.sizes, strict=True)]
        self.partial = like.new_empty(sum(parts))
        self.parts = self.partial.split(parts)

    def launch(self, index: int, dy: Tensor, x: Tensor) -> None:
        """Computes the gradient of one layer's weights."""
        layer, (tile, splits), pixels = self.layers[index], self.tiles[index], self.pixels[index]
        rows, columns = layer.gradient_padding
        chunks = triton.cdiv(layer.kernel[1] * layer.in_channels, tile["BLOCK_K"])
        kernels.conv_backward_weight[(splits, layer.kernel[0], chunks)](
            x, dy, self.parts[index], pixels,
            **layer.constants, H=x.shape[1], W=x.shape[2], DPY=rows, DPX=columns, **tile,
            STEPS=triton.cdiv(pixels, splits * tile["BLOCK_M"]), BLOCK_N=_width(layer.channels),
        )  # fmt: skip

    def set(self, index: int, dweight: Tensor) -> None:
        """Stores the gradient of one layer's weights, as a single split."""
        self.parts[index].copy_(dweight.flatten())

    def sum(self) -> Tensor:
        """Returns all gradients, see `weight_places`."""
        table = _sum_table(self.sizes, self.splits, self.partial.device)
        total = self.partial.new_empty(len(table) * _SUM_WIDTH)
        kernels.sum_splits[(len(table),)](
            self.partial, table, total, SPLITS=max(self.splits), BLOCK_S=_SUM_STEP, BLOCK=_SUM_WIDTH
        )
        return total


@lru_cache(maxsize=256)
def _sum_table(sizes: tuple[int, ...], splits: tuple[int, ...], device: torch.device) -> Tensor:
    """The table of `sum_splits`. Cached: a copy to the GPU is not allowed while a CUDA graph is captured."""
    rows = []
    begin = 0
    for size, count in zip(sizes, splits, strict=True):
        for first in range(0, size, _SUM_WIDTH):
            rows.append((begin + first, min(_SUM_WIDTH, size - first), size, count))
        begin += size * count
    return torch.tensor(rows, dtype=torch.int32, device=device)


def weight_places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where the gradient of each weight begins in the tensor of all gradients, and the length of that tensor."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + triton.cdiv(size, _SUM_WIDTH) * _SUM_WIDTH)
    return ends[:-1], ends[-1]


def _conv_tile(products: int, channels: int, pixels: int, dtype: torch.dtype) -> Options:
    """The tile of a convolution, or its transpose, that sums `products` into `channels` for each of `pixels`."""
    depth = min((16, 32, 64), key=lambda tile: triton.cdiv(products, tile) * (tile + 8))
    if channels > 64:
        return _fit(64, depth, 3, dtype)
    stages = 2 if products <= depth == 64 and channels <= 32 else 3
    return _fit(256 if channels <= 16 and pixels >= _MANY_PIXELS else 128, depth, stages, dtype)


def _weight_tile(layer: Layer, pixels: int) -> tuple[Options, int]:
    """The tile of the gradient of one row of a kernel over `pixels`, and the number of splits.

    Splits have to be summed, so there are only as many as several runs at once need; a single run on small images
    leaves part of a GPU idle.
    """
    if layer.is_volume:
        return {}, 1
    depth = min(128 if layer.channels <= 32 else 64, _width(layer.kernel[1] * layer.in_channels))
    tile = _fit(128 if depth == 16 else 64, depth, 3, layer.weight.dtype)
    splits = triton.next_power_of_2(int(pixels**0.5 / 7) or 1)
    steps = triton.cdiv(pixels, splits * tile["BLOCK_M"])
    return tile, triton.cdiv(pixels, tile["BLOCK_M"] * steps)


def _fit(pixels: int, depth: int, stages: int, dtype: torch.dtype) -> Options:
    """A tile for two-byte values, adapted to `dtype`: half the pixels for four bytes."""
    if dtype.itemsize != 2:
        pixels, stages = max(32, pixels // 2), 2
    return {"BLOCK_M": pixels, "BLOCK_K": depth, "num_warps": 4, "num_stages": stages}


def _width(channels: int, least: int = 16) -> int:
    """Width of a tile that holds all channels."""
    return max(least, triton.next_power_of_2(channels))


def _tile(maps: Tensor, elements: int = _ELEMENTS) -> tuple[Options, int]:
    """The tile of elementwise kernels, and the number of programs."""
    width = _width(maps.shape[-1], least=1)
    pixels = max(1, elements // width)
    return {"BLOCK_M": pixels, "BLOCK_N": width}, triton.cdiv(_pixels(maps), pixels)


def _sum_tile(maps: Tensor) -> tuple[Options, int]:
    """The tile of kernels that sum over pixels, and the number of programs; several steps each for volumes."""
    if maps.dim() == 4:
        tile, programs = _tile(maps)
        return {"STEPS": 1, **tile}, programs
    tile, programs = _tile(maps, _VOLUME_ELEMENTS)
    steps = triton.cdiv(programs, _VOLUME_PROGRAMS)
    return {"STEPS": steps, **tile}, triton.cdiv(programs, steps)


def channels_last(x: Tensor) -> Tensor:
    """(N, C, …) as a contiguous (N, …, C)."""
    return x.movedim(1, -1).contiguous()


def _new_padded(maps: Tensor, padding: tuple[int, ...]) -> tuple[Tensor, Options]:
    """Memory for padded (N, …, C) maps, and the constants of the maps, with all axes but the first merged."""
    count, *size, channels = maps.shape
    padded = maps.new_empty(count, *(n + 2 * p for n, p in zip(size, padding, strict=True)), channels)
    merged = {"H": size[0], "W": math.prod(size[1:]), "PY": padding[0], "PX": padding[1]}
    return padded, {"C": channels, **merged}


def _pixels(maps: Tensor) -> int:
    return maps.numel() // maps.shape[-1]


def _new_sums(maps: Tensor, programs: int) -> Tensor:
    """Memory for two sums per channel and program."""
    return maps.new_empty(2, maps.shape[-1], programs, dtype=torch.float32)
