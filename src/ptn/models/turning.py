"""Does a network turn with its polar input? Found out by turning one, whatever its layers do inside."""

import copy
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..layers.convert import is_wrapped
from .networks import inferring

TOLERANCE = 1e-5
"""How much of what another image changes a turn may change: rounding in float64 stays far below."""

ROUNDING = 1e-7
"""And as a share of the values themselves: some layers compute in float32 whatever they are given."""

SEAM = 1e-3
"""How much of what another image changes a turn may change inside: what breaks the seam changes far more."""


# how people call the parameters of positions; those between positions turn with what they are between
_POSITION, _RELATIVE = re.compile(r"pos(ition(s|al)?)?\d*"), re.compile(r"rel(ative)?")


class CannotTurnError(InputError):
    """A network that polar images do not pass through, or that does not turn with them."""


class Turn:
    """A turn of a network's polar input (N, channels, *size) by so many `rows`, and how the network takes it.

    Seen on a float64 copy with disturbed parameters, so that nothing hides behind weights that start at zero.
    Three images go through it together: one, the same one turned, and another one to measure changes by.
    """

    def __init__(self, network: nn.Module, channels: int, size: tuple[int, int], rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.probe = copy.deepcopy(network).cpu().double()
        _disturb(self.probe.parameters(), generator)
        self.images = torch.randn(3, channels, *size, dtype=torch.float64, generator=generator)
        self.images[1] = self.images[0].roll(rows, dims=1)
        self.share = Fraction(rows, size[0])

    def find_features(self) -> str | None:
        """The layer with the last feature maps (N, C, angles, radii) that turn with the input.

        None unless the output of the network in all its parts, and that of every layer that wraps around, turn
        too or stay as they are.
        """
        watch = _FeatureWatch(self.probe, self.share)
        output = watch.run(self.images)
        tensors = list(_tensors(output))
        if not tensors:
            kind = type(self.probe).__name__
            raise InputError(
                f"cannot polarize {kind}: it returns {type(output).__name__}, which has no tensor in it"
            )
        return watch.layer if watch.whole and all(_turns(tensor, self.share) for tensor in tensors) else None

    def find_breach(self) -> str:
        """Where something first does not turn with the input."""
        watch = _BreachWatch(self.probe, self.share)
        watch.run(self.images)
        return watch.breach or watch.title("")


def position_parameter(network: nn.Module) -> str | None:
    """The first parameter that is by its name one of absolute positions, and its layer; None without one."""
    for name, _ in network.named_parameters():
        layer, _, parameter = name.rpartition(".")
        parts = parameter.split("_")
        if any(map(_POSITION.fullmatch, parts)) and not any(map(_RELATIVE.fullmatch, parts)):
            kind = type(network.get_submodule(layer)).__name__
            return f"{parameter} of layer {layer} ({kind})" if layer else f"{parameter} of {kind} itself"
    return None


def measure_stride(network: nn.Module, layers: Collection[nn.Module], images: Tensor) -> int:
    """How many rows of `images` (N, C, rows, columns) become one in all, seen from what `layers` return."""
    watch = _HeightWatch(network, layers)
    watch.run(images)
    rows = images.shape[2]
    return math.lcm(*(rows // height for height in watch.heights if height > 1 and rows % height == 0))


def can_run(network: nn.Module, images: Tensor) -> bool:
    """Whether a network takes images of this size."""
    try:
        _Watch(network).run(images)
    except InputError:
        return False
    return True


class _Watch:
    """A network that is run once while every layer tells what goes in and comes out."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.inside: list[str] = []

    def entering(self, name: str, inputs: Any) -> None:
        pass

    def leaving(self, name: str, layer: nn.Module, output: Any) -> None:
        pass

    def run(self, images: Tensor) -> Any:
        """`network(images)` in evaluation mode, or one line that names the layer in which it failed."""
        handles = []
        for name, layer in self.network.named_modules():
            # first of all hooks: before the input is wrapped around
            handles.append(layer.register_forward_pre_hook(self._enter(name), prepend=True, with_kwargs=True))
            handles.append(layer.register_forward_hook(self._leave(name)))
        try:
            with inferring(self.network):
                return self.network(images)
        except Exception as error:
            where = f"layer {self.inside[-1]}" if self.inside and self.inside[-1] else "its own forward"
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            kind, shape = type(self.network).__name__, tuple(images.shape[1:])
            raise CannotTurnError(
                f"cannot polarize {kind}: polar images {shape} fail in {where}: {reason}; "
                "give other angles, radii or in_chans, or a backbone that takes images of any size"
            ) from error
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str) -> Any:
        def enter(layer: nn.Module, args: Any, kwargs: Any) -> None:
            self.entering(name, (args, kwargs))
            self.inside.append(name)

        return enter

    def _leave(self, name: str) -> Any:
        def leave(layer: nn.Module, args: Any, output: Any) -> None:
            self.inside.pop()
            self.leaving(name, layer, output)

        return leave


class _HeightWatch(_Watch):
    """Collects how many rows the outputs of `layers` have."""

    def __init__(self, network: nn.Module, layers: Collection[nn.Module]) -> None:
        super().__init__(network)
        self.layers = set(layers)
        self.heights: set[int] = set()

    def leaving(self, name: str, layer: nn.Module, output: Any) -> None:
        if layer in self.layers and isinstance(output, Tensor) and output.dim() == 4:
            self.heights.add(output.shape[2])


class _FeatureWatch(_Watch):
    """Finds the last feature maps that turn, and whether all of layers that wrap around do."""

    def __init__(self, network: nn.Module, share: Fraction) -> None:
        super().__init__(network)
        self.share = share
        self.layer: str | None = None
        self.whole = True

    def leaving(self, name: str, layer: nn.Module, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] > 1 and _in_thirds(output):
            mean = output.mean(dim=1, keepdim=True)  # quicker to turn than all channels
            if _turns_along(mean, self.share, 2, SEAM):
                self.layer = name
            elif is_wrapped(layer) and not _turns(mean, self.share, SEAM):
                self.whole = False


class _BreachWatch(_Watch):
    """Finds the first place where something does not turn."""

    def __init__(self, network: nn.Module, share: Fraction) -> None:
        super().__init__(network)
        self.share = share
        self.breach: str | None = None

    def entering(self, name: str, inputs: Any) -> None:
        if self.breach is None and self.inside and not self._turn_all(inputs):
            self.breach = f"{self.title(self.inside[-1])}, before its layer {name}"

    def leaving(self, name: str, layer: nn.Module, output: Any) -> None:
        if self.breach is None and not self._turn_all(output):
            self.breach = self.title(name)

    def title(self, name: str) -> str:
        kind = type(self.network.get_submodule(name)).__name__
        return f"layer {name} ({kind})" if name else f"the forward of {kind} itself"

    def _turn_all(self, values: Any) -> bool:
        return all(_turns(tensor, self.share) for tensor in _tensors(values))


def _turns(values: Tensor, share: Fraction, tolerance: float = TOLERANCE) -> bool:
    """Whether the second third of a batch is the first third, as it is or turned along one of its axes."""
    if not _in_thirds(values):
        return True
    first, second, bound = _thirds(values, tolerance)
    axes = range(values.dim())
    return _within(first, second, bound) or any(_turns_along(values, share, axis, tolerance) for axis in axes)


def _turns_along(values: Tensor, share: Fraction, axis: int, tolerance: float) -> bool:
    first, second, bound = _thirds(values, tolerance)
    shift = share * first.shape[axis]
    return shift.denominator == 1 and _within(first.roll(int(shift), dims=axis), second, bound)


def _in_thirds(values: Tensor) -> bool:
    """Whether values can be of the three images, and not of none of them."""
    return values.is_floating_point() and values.dim() > 0 and values.shape[0] % 3 == 0 and values.numel() > 0


def _thirds(values: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """The first and second third of a batch, and by how much they may differ."""
    first, second, other = values.reshape(3, -1, *values.shape[1:])
    return first, second, tolerance * (other - first).abs().max() + ROUNDING * first.abs().max()


def _within(one: Tensor, other: Tensor, bound: Tensor) -> bool:
    return bool((one - other).abs().max() <= bound)


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and mappings."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


def _disturb(parameters: Iterable[nn.Parameter], generator: torch.Generator) -> None:
    """Add noise as large as the spread of each parameter, 0.1 where all its values are the same."""
    for parameter in parameters:
        spread = float(parameter.detach().std(correction=0))
        parameter.data += (spread or 0.1) * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
