"""How equivariant the inside of a network is: the feature maps of a transformed image beside transformed maps."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError, unknown_name
from ..geometry import Mode, PolarGrid, interpolate, wrap_angle
from ..layers import CylindricalTransformer, PolarTransformer, SpatialTransformer
from ..models.networks import inferring
from .transforms import Similarity, disc, plane_size

Relation = Literal["image", "polar", "same"]
OUTPUT = "(output)"
"""The name of the network's scores among the layers."""

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_TRANSFORMERS = (PolarTransformer, CylindricalTransformer, SpatialTransformer)
# images at a time: every map of all of them is held
_BATCH = 16
# strides along the two axes of a map of the image differ by less than this factor
_SKEW = 1.5
_KERNEL_REACH = 2


@dataclass(frozen=True)
class LayerError:
    """How far the map that a layer gives for transformed images is from the transformed map, in relative L2.

    ‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ over all images x. What T′ is depends on what the layer's map is:

    - "image": it lies over the image, and is turned and scaled about its middle like the image, inside a disc;
    - "polar": its rows are angles and its columns radii around an origin that moves with the image; it is rolled
      along the angle, and shifted along the radius, where it was within the columns before;
    - "same": it should not change, as scores, vectors and what follows a spatial transformer.

    `resampling` is the same error where image and map are transformed there and back, so that nothing but
    resampling has happened. None: the map is zero. `shape` is that of one map, channels first.
    """

    layer: str
    shape: tuple[int, ...]
    relation: Relation
    kind: str
    amount: float
    error: float | None
    resampling: float | None


@dataclass(frozen=True)
class _Layer:
    """A layer to look at; polar maps have the grid of their transformer."""

    name: str
    shape: tuple[int, ...]
    relation: Relation
    grid: PolarGrid | None


def layer_errors(
    model: nn.Module,
    images: Tensor,
    transforms: Sequence[tuple[str, float, Similarity]],
    *,
    names: Sequence[str] | None = None,
    mode: Mode = "bicubic",
) -> list[LayerError]:
    """The errors of inner layers on images (N, C, H, W) in [0, 1], layer by layer in the order in which they run.

    Args:
        transforms: each with its kind ("rotation") and amount (90 degrees).
        names: as `model.named_modules` has them; None is the outermost blocks of the network that give maps.
            The output is always among the layers.
    """
    layers = _choose(model, images, names)
    sums: dict[tuple[str, str, float], Tensor] = {}
    with inferring(model), _recording(model, [layer.name for layer in layers]) as maps:

        def record(pictures: Tensor) -> dict[str, Tensor]:
            maps.clear()
            maps[OUTPUT] = model(pictures)
            return dict(maps)

        for start in range(0, len(images), _BATCH):
            for kind, amount, transform in transforms:
                # what is enlarged is taken from a smaller disc, so that all of it stays in view
                seen = images[start : start + _BATCH]
                seen = seen * disc(seen, share=1 / max(1.0, transform.scale))
                still = record(seen)
                moved = record(transform.warp(seen, mode=mode, padding_mode="border").clamp(0, 1))
                back = record(transform.there_and_back(seen, mode=mode).clamp(0, 1))
                for layer in layers:
                    key = (layer.name, kind, amount)
                    there, inside = _carry(layer, still[layer.name], transform, seen, mode)
                    again, within = _carry(layer, there, transform.inverse(), seen, mode)
                    found = [
                        *_squares(moved[layer.name], there, inside),
                        *_squares(back[layer.name], again, within),
                    ]
                    sums[key] = sums.get(key, torch.zeros(4, dtype=torch.float64)) + torch.stack(found).cpu()
    return [
        LayerError(layer.name, layer.shape, layer.relation, kind, amount, *_ratios(sums[layer.name, kind, amount]))
        for layer in layers
        for kind, amount, _ in transforms
    ]


def _squares(found: Tensor, expected: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The squared length of the difference, and of what was expected."""
    gap = (found.double() - expected.double()) * inside
    return gap.square().sum(), (expected.double() * inside).square().sum()


def _ratios(sums: Tensor) -> tuple[float | None, float | None]:
    gap, size, gap_still, size_still = sums.tolist()
    return (
        (gap / size) ** 0.5 if size > 0 else None,
        (gap_still / size_still) ** 0.5 if size_still > 0 else None,
    )


def _carry(layer: _Layer, maps: Tensor, transform: Similarity, images: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
    """Maps transformed as the layer's relation to the image says, and where that is known: 1 or 0."""
    if layer.relation == "same":
        return maps, maps.new_ones(())
    if layer.grid is None:
        carried = transform.warp(maps, mode=mode, padding_mode="border")
        return carried, disc(maps, share=min(1.0, transform.scale))
    return _carry_polar(maps, transform, layer.grid, plane_size(images), mode)


def _carry_polar(
    maps: Tensor, transform: Similarity, grid: PolarGrid, size: tuple[int, int], mode: Mode
) -> tuple[Tensor, Tensor]:
    """Polar maps (N, C, angles, radii) or (N, C, angles, radii, Z) of images of `size` that were transformed."""
    folded = maps.movedim(-1, 2).flatten(1, 2) if maps.dim() == 5 else maps
    angles, radii = folded.shape[-2:]
    rows = (torch.arange(angles, device=maps.device) - transform.degrees / 360 * angles) % angles
    columns = torch.arange(radii, device=maps.device, dtype=torch.float32)
    source = columns
    if transform.scale != 1:
        stride = max(1, round(grid.radii / radii))
        source = grid.column_at(grid.radius_at(columns * stride, size) / transform.scale, size) / stride
    y, x = torch.broadcast_tensors(rows[:, None] + _KERNEL_REACH, source[None, :])
    wrapped = wrap_angle(folded, (_KERNEL_REACH, _KERNEL_REACH))
    points = (x.expand(len(maps), -1, -1), y.expand(len(maps), -1, -1))
    carried = interpolate(wrapped, *points, mode=mode, padding_mode="border")
    inside = ((source >= 0) & (source <= radii - 1)).to(maps.dtype)
    if maps.dim() == 5:
        return carried.unflatten(1, (maps.shape[1], -1)).movedim(2, -1), inside[:, None]
    return carried, inside


def _choose(model: nn.Module, images: Tensor, names: Sequence[str] | None) -> list[_Layer]:
    """The layers to look at, in the order in which they run, the output last."""
    modules = {name: module for name, module in model.named_modules() if name}
    for name in names or ():
        if name not in modules:
            raise unknown_name("layer", name, modules)
    ran: list[tuple[str, Any]] = []
    with inferring(model), _watching(model, modules, lambda name, output: ran.append((name, output))):
        scores = model(images[:2])
    order = [name for name, _ in ran]
    outputs = dict(ran)
    maps = {name for name, output in ran if isinstance(output, Tensor) and output.dim() > 3}
    wanted = set(_blocks(model, maps) if names is None else names)
    layers = []
    for name in dict.fromkeys(order):
        if name not in wanted:
            continue
        output = outputs[name]
        problem = _problem(output, times=order.count(name))
        if problem is None:
            relation, grid = _relation(name, modules, order)
            if output.dim() == 2 or relation == "same":
                relation, grid = "same", None
            elif relation == "image" and not _lies_over(output, images):
                problem = f"its output {tuple(output.shape[1:])} is no map of the image"
        if problem is None and (names is not None or output.dim() > 2):
            layers.append(_Layer(name, tuple(output.shape[1:]), relation, grid))
        elif problem is not None and names is not None:
            raise InputError(f"the layer {name} cannot be compared: {problem}")
    for name in names or ():
        if name not in outputs:
            raise InputError(f"the layer {name} cannot be compared: it does not run")
    return [*layers, _Layer(OUTPUT, tuple(scores.shape[1:]), "same", None)]


def _problem(output: Any, *, times: int) -> str | None:
    """Why a layer's output cannot be compared, if so."""
    if times > 1:
        return f"it runs {times} times for an image"
    if not isinstance(output, Tensor):
        return f"it gives a {type(output).__name__}, not one tensor"
    if output.dim() not in (2, 4, 5):
        return f"its output {tuple(output.shape[1:])} is neither a map nor a vector"
    return None


def _lies_over(output: Tensor, images: Tensor) -> bool:
    """Whether a layer's output is a map of the image: scaled by about the same factor along both axes."""
    down, right = (side / part for side, part in zip(plane_size(images), plane_size(output), strict=True))
    return max(down, right) < _SKEW * min(down, right)


def _blocks(model: nn.Module, maps: Collection[str], prefix: str = "") -> Iterator[str]:
    """The names of what a network is made of, `maps` being those that give feature maps.

    The elements of its lists of layers, the outermost that give maps; transformers; and what has weights of its
    own beside them.
    """
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        # a list that somebody gave a name, such as a dense block, counts as one
        listed = type(child) in _CONTAINERS or isinstance(child, _TRANSFORMERS)
        element = isinstance(model, _CONTAINERS) and not listed
        if element and path in maps:
            yield path
            continue
        weighty = any(parameter.dim() > 1 for parameter in child.parameters(recurse=False))
        # the polar half of a cylindrical transformer gives the same values as the whole
        if weighty or (isinstance(child, _TRANSFORMERS) and not isinstance(model, CylindricalTransformer)):
            yield path
        yield from _blocks(child, maps, f"{path}.")


def _relation(name: str, modules: dict[str, nn.Module], order: list[str]) -> tuple[Relation, PolarGrid | None]:
    """What the map of a layer is, from the transformer that it belongs to or runs behind."""
    for path, transformer in modules.items():
        if not isinstance(transformer, _TRANSFORMERS):
            continue
        within = f"{name}.".startswith(f"{path}.")
        beside = f"{name}.".startswith(path.rpartition(".")[0] + "." if "." in path else "")
        last = max((i for i, other in enumerate(order) if f"{other}.".startswith(f"{path}.")), default=-1)
        behind = beside and not within and order.index(name) > last
        if name == path or behind:
            if isinstance(transformer, SpatialTransformer):
                return "same", None
            polar = transformer.polar if isinstance(transformer, CylindricalTransformer) else transformer
            return "polar", polar.grid
    return "image", None


@contextmanager
def _recording(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """The outputs of these layers, by name, filled anew whenever the model runs."""
    maps: dict[str, Tensor] = {}
    chosen = {name: module for name, module in model.named_modules() if name in names}
    with _watching(model, chosen, maps.__setitem__):
        yield maps


@contextmanager
def _watching(model: nn.Module, modules: dict[str, nn.Module], tell: Any) -> Iterator[None]:
    """Inside the block, `tell(name, output)` is called whenever one of the modules has run."""
    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: tell(name, output))
        for name, module in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
