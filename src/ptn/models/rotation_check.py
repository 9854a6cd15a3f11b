"""Numerical check that a network is equivariant to rolling its polar input."""

import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


class NotEquivariantError(InputError):
    """A network that cannot process polar images or is not equivariant to rolling them."""


class RotationCheck:
    """Runs a network on an image, the image rolled by `rows`, and another image, as one batch.

    The network is a float64 copy with noise added to its parameters, so that layers initialized with zeros count.

    Args:
        channels: Channels of the polar images.
        size: (angles, radii).
    """

    def __init__(self, network: nn.Module, channels: int, size: tuple[int, int], rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = copy.deepcopy(network).cpu().double()
        _add_noise(self.network.parameters(), generator)
        self.images = torch.randn(3, channels, *size, dtype=torch.float64, generator=generator)
        self.images[1] = self.images[0].roll(rows, dims=1)
        self.fraction = Fraction(rows, size[0])

    def feature_layer(self) -> str | None:
        """Name of the layer with the last feature maps (N, C, angles, radii) that roll with the input.

        None if a part of the output, or the output of a wrapped layer, neither rolls nor stays the same.
        """
        last, equivariant = None, True

        def examine(name: str, layer: nn.Module, output: Any) -> None:
            nonlocal last, equivariant
            if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] > 1 and _is_batch(output):
                mean = output.mean(dim=1, keepdim=True)  # faster than all channels
                if _rolls_along(mean, self.fraction, 2, FEATURE_TOLERANCE):
                    last = name
                elif is_wrapped(layer) and not _rolls_or_stays(mean, self.fraction, FEATURE_TOLERANCE):
                    equivariant = False

        output = run_layers(self.network, self.images, on_output=examine)
        tensors = list(_tensors(output))
        if not tensors:
            kind = type(self.network).__name__
            raise InputError(f"cannot polarize {kind}: it returns {type(output).__name__}, which has no tensors")
        return last if equivariant and all(_rolls_or_stays(tensor, self.fraction) for tensor in tensors) else None

    def failing_layer(self) -> str:
        """Description of the first layer whose output neither rolls with the input nor stays the same."""
        failures: list[str] = []

        def title(name: str) -> str:
            kind = type(self.network.get_submodule(name)).__name__
            return f"layer {name} ({kind})" if name else f"the forward of {kind}"

        def passes(values: Any) -> bool:
            return bool(failures) or all(_rolls_or_stays(tensor, self.fraction) for tensor in _tensors(values))

        def examine_input(name: str, parent: str, inputs: Any) -> None:
            if not passes(inputs):
                failures.append(f"{title(parent)}, before its layer {name}")

        def examine_output(name: str, layer: nn.Module, output: Any) -> None:
            if not passes(output):
                failures.append(title(name))

        run_layers(self.network, self.images, on_input=examine_input, on_output=examine_output)
        return failures[0] if failures else title("")


def measure_stride(network: nn.Module, layers: Collection[nn.Module], images: Tensor) -> int:
    """Total stride along the rows of `images` (N, C, rows, columns), from the output sizes of `layers`."""
    rows, chosen = images.shape[2], set(layers)
    heights: set[int] = set()

    def examine(name: str, layer: nn.Module, output: Any) -> None:
        if layer in chosen and isinstance(output, Tensor) and output.dim() == 4:
            heights.add(output.shape[2])

    run_layers(network, images, on_output=examine)
    return math.lcm(*(rows // height for height in heights if height > 1 and rows % height == 0))


def can_run(network: nn.Module, images: Tensor) -> bool:
    """Whether a network takes images of this size."""
    try:
        run_layers(network, images)
    except NotEquivariantError:
        return False
    return True


def run_layers(
    network: nn.Module,
    images: Tensor,
    *,
    on_input: Callable[[str, str, Any], None] | None = None,
    on_output: Callable[[str, nn.Module, Any], None] | None = None,
) -> Any:
    """Returns `network(images)` in evaluation mode and calls back for every layer.

    Args:
        on_input: Called with the names of a layer and of the layer that calls it, and the inputs.
        on_output: Called with the name of a layer, the layer and its output.

    Raises:
        NotEquivariantError: The network fails; the message names the layer.
    """
    active: list[str] = []

    def enter(name: str) -> Any:
        def hook(layer: nn.Module, args: Any, kwargs: Any) -> None:
            if on_input is not None and active:
                on_input(name, active[-1], (args, kwargs))
            active.append(name)

        return hook

    def leave(name: str) -> Any:
        def hook(layer: nn.Module, args: Any, output: Any) -> None:
            active.pop()
            if on_output is not None:
                on_output(name, layer, output)

        return hook

    handles = []
    for name, layer in network.named_modules():
        # before the hooks that wrap the input
        handles.append(layer.register_forward_pre_hook(enter(name), prepend=True, with_kwargs=True))
        handles.append(layer.register_forward_hook(leave(name)))
    try:
        with inferring(network):
            return network(images)
    except Exception as error:
        where = f"layer {active[-1]}" if active and active[-1] else "its forward"
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        kind, shape = type(network).__name__, tuple(images.shape[1:])
        raise NotEquivariantError(
            f"cannot polarize {kind}: polar images {shape} fail in {where}: {reason}; "
            "use other angles, radii or in_chans, or a backbone that takes images of any size"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def _rolls_or_stays(values: Tensor, fraction: Fraction, tolerance: float = OUTPUT_TOLERANCE) -> bool:
    """Whether the values of the second image equal those of the first, rolled along some axis or unchanged."""
    if not _is_batch(values):
        return True
    first, second, bound = _split(values, tolerance)
    return _close(first, second, bound) or any(
        _rolls_along(values, fraction, axis, tolerance) for axis in range(values.dim())
    )


def _rolls_along(values: Tensor, fraction: Fraction, axis: int, tolerance: float) -> bool:
    first, second, bound = _split(values, tolerance)
    shift = fraction * first.shape[axis]
    return shift.denominator == 1 and _close(first.roll(int(shift), dims=axis), second, bound)


def _is_batch(values: Tensor) -> bool:
    """Whether values can belong to the three images."""
    return values.is_floating_point() and values.dim() > 0 and values.shape[0] % 3 == 0 and values.numel() > 0


def _split(values: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Values of the first and the second image, and the difference allowed between them."""
    first, second, other = values.reshape(3, -1, *values.shape[1:])
    return first, second, tolerance * (other - first).abs().max() + ROUNDING * first.abs().max()


def _close(first: Tensor, second: Tensor, bound: Tensor) -> bool:
    return bool((first - second).abs().max() <= bound)


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and mappings."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


def _add_noise(parameters: Iterable[nn.Parameter], generator: torch.Generator) -> None:
    """Add noise with the standard deviation of each parameter, or 0.1 for a constant parameter."""
    for parameter in parameters:
        spread = float(parameter.detach().std(correction=0))
        parameter.data += (spread or 0.1) * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
