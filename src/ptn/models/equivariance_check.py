"""Numerical check that a network is equivariant to rolling its polar input."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..layers.convert import is_wrapped
from .networks import inferring

# Differences are relative to the difference between two random images. Rounding in float64 is far below
# the tolerance of outputs; a seam at the first row is far above the tolerance of feature maps.
OUTPUT_TOLERANCE = 1e-5
FEATURE_TOLERANCE = 1e-3
# Relative to the values: some layers compute in float32 even for float64 input.
ROUNDING = 1e-7

Examine = Callable[[str, nn.Module, Any, Any], None]
"""Called with the name of a layer, the layer, its inputs and its output."""


class EquivarianceCheck:
    """Runs a network on an image, the image rolled by `rows`, and another image, as one batch.

    The network is a float64 copy with noise added to its parameters, so that layers initialized with zeros count.

    Args:
        channels: Channels of the polar images.
        size: (angles, radii).
    """

    def __init__(self, network: nn.Module, channels: int, size: tuple[int, int], rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = copy.deepcopy(network).cpu().double()
        for parameter in self.network.parameters():
            spread = float(parameter.detach().std(correction=0)) or 0.1
            parameter.data += spread * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        self.images = torch.randn(3, channels, *size, dtype=torch.float64, generator=generator)
        self.images[1] = self.images[0].roll(rows, dims=1)
        self.fraction = Fraction(rows, size[0])

    def feature_layer(self) -> str | None:
        """Name of the layer with the last feature maps (N, C, angles, radii) that roll with the input.

        None if a part of the output, or the output of a wrapped layer, neither rolls nor stays the same.
        """
        last, equivariant = None, True

        def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            nonlocal last, equivariant
            if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] > 1 and _is_batch(output):
                mean = output.mean(dim=1, keepdim=True)  # faster than all channels
                if _is_rolled(mean, self.fraction, 2, FEATURE_TOLERANCE):
                    last = name
                elif is_wrapped(layer) and not self._passes(mean, FEATURE_TOLERANCE):
                    equivariant = False

        output = run_layers(self.network, self.images, examine)
        return last if equivariant and self._passes(output) else None

    def failing_layer(self) -> str:
        """Description of the first layer whose inputs roll or stay the same, and whose output does not."""
        failures: list[str] = []

        def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            if not failures and not self._passes(output) and self._passes(inputs):
                kind = type(layer).__name__
                failures.append(f"layer {name} ({kind})" if name else f"the forward of {kind}")

        run_layers(self.network, self.images, examine)
        return failures[0] if failures else "its first layer"

    def _passes(self, values: Any, tolerance: float = OUTPUT_TOLERANCE) -> bool:
        """Whether all tensors of the second image equal those of the first, rolled along some axis or unchanged."""
        return all(
            any(_is_rolled(tensor, self.fraction, axis, tolerance) for axis in (None, *range(tensor.dim())))
            for tensor in _tensors(values)
            if _is_batch(tensor)
        )


def measure_stride(network: nn.Module, layers: Collection[nn.Module], images: Tensor) -> int:
    """Total stride along the rows of `images` (N, C, rows, columns), from the output sizes of `layers`."""
    rows, chosen = images.shape[2], set(layers)
    heights: set[int] = set()

    def examine(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
        if layer in chosen and isinstance(output, Tensor) and output.dim() == 4:
            heights.add(output.shape[2])

    run_layers(network, images, examine)
    return math.lcm(*(rows // height for height in heights if height > 1 and rows % height == 0))


def run_layers(network: nn.Module, images: Tensor, examine: Examine) -> Any:
    """Returns `network(images)` in evaluation mode and calls `examine` after every layer.

    Raises:
        InputError: The network fails; the message names the layer.
    """
    active: list[tuple[str, Any]] = []

    def enter(name: str) -> Any:
        return lambda layer, args, kwargs: active.append((name, (args, kwargs)))

    def leave(layer: nn.Module, args: Any, output: Any) -> None:
        name, inputs = active.pop()
        examine(name, layer, inputs, output)

    handles = []
    for name, layer in network.named_modules():
        # before the hooks that wrap the input
        handles.append(layer.register_forward_pre_hook(enter(name), prepend=True, with_kwargs=True))
        handles.append(layer.register_forward_hook(leave))
    try:
        with inferring(network):
            return network(images)
    except Exception as error:
        where = f"layer {active[-1][0]}" if active and active[-1][0] else "its forward"
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        kind, shape = type(network).__name__, tuple(images.shape[1:])
        raise InputError(
            f"cannot polarize {kind}: polar images {shape} fail in {where}: {reason}; "
            "use other angles, radii or in_chans, or a backbone that takes images of any size"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def _is_rolled(values: Tensor, fraction: Fraction, axis: int | None, tolerance: float) -> bool:
    """Whether values of the second image equal those of the first, rolled along `axis` or, for None, unchanged."""
    first, second, other = values.reshape(3, -1, *values.shape[1:])
    bound = tolerance * (other - first).abs().max() + ROUNDING * first.abs().max()
    if axis is not None:
        shift = fraction * first.shape[axis]
        if shift.denominator != 1:
            return False
        first = first.roll(int(shift), dims=axis)
    return bool((first - second).abs().max() <= bound)


def _is_batch(values: Tensor) -> bool:
    """Whether values can belong to the three images."""
    return values.is_floating_point() and values.dim() > 0 and values.shape[0] % 3 == 0 and values.numel() > 0


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and mappings."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)
