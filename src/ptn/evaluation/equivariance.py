"""Equivariance errors of layers and networks."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..config import check, checked
from ..errors import InputError
from ..geometry import GridPose, Mode, PolarGrid, Similarity, interpolate, similarity_warp, wrap_angle
from ..layers import CylindricalTransformer, PolarTransformer, SpatialTransformer
from ..models import inferring
from .classify import plane_size

Kind = Literal["rotation", "scale", "shift"]
Relation = Literal["image", "polar", "invariant"]

MODE: Mode = "bicubic"
KERNEL_REACH = 2  # pixels on either side of a sample that bicubic interpolation reads
OUTPUT = "(output)"
"""Name of the model's output among the layers."""

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_TRANSFORMERS = (PolarTransformer, CylindricalTransformer, SpatialTransformer)
_BATCH = 16  # all feature maps of a batch are in memory
_MAX_SKEW = 1.5  # ratio of the strides along the two axes of a feature map of the image


class Transform(NamedTuple):
    """A similarity of one kind; `amount` in degrees, as a factor, or in pixels."""

    kind: Kind
    amount: float
    pose: Similarity

    @classmethod
    def of(cls, kind: Kind, amount: float, direction: tuple[float, float] = (1.0, 0.0)) -> "Transform":
        """Returns a rotation about the center, a scaling, or a shift along `direction`."""
        valid = math.isfinite(amount) and (kind != "scale" or amount > 0)
        check(f"the amount of a {kind}", amount, valid, "finite, and that of a scale positive")
        if kind == "rotation":
            return cls(kind, amount, Similarity(math.radians(amount)))
        if kind == "scale":
            return cls(kind, amount, Similarity(scale=amount))
        return cls(kind, amount, Similarity(shift_px=(amount * direction[0], amount * direction[1])))


@dataclass(frozen=True)
class LayerError:
    """Relative equivariance error ‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ of a layer f over all images x.

    T′ depends on how the feature map relates to the image (`relation`):

    - "image": the map covers the image; T′ is T about the center of the map, compared inside a disc;
    - "polar": rows are angles and columns radii around an origin that follows the image; T′ rolls the rows and
      shifts the columns, compared where the source lies within the columns;
    - "invariant": T′ is the identity (logits, vectors, maps after a spatial transformer).

    The error is None where the map is zero. `shape` is that of one map, channels first.
    """

    layer: str
    shape: tuple[int, ...]
    relation: Relation
    kind: Kind
    amount: float
    error: float | None


class _Layer(NamedTuple):
    name: str
    shape: tuple[int, ...]
    relation: Relation
    grid: PolarGrid | None = None


@checked
def equivariance_error(
    layer_or_model: nn.Module,
    images: Tensor,
    *,
    angles: Sequence[float] = (45.0, 90.0),
    scales: Sequence[float] = (1.25,),
    shifts_px: Sequence[float] = (),
    polar: bool = False,
) -> dict[str, dict[float, float]]:
    """Returns the relative equivariance error ‖f(Tx) − T′f(x)‖ / ‖T′f(x)‖ by kind of transform and amount.

    0 is exact equivariance. T′ follows from the output of f: that of a polar map after a polar or cylindrical
    transformer, the identity for vectors such as logits, otherwise that of a map of the image; see `LayerError`.
    Only rotations of square images by multiples of 90° and shifts by whole pixels need no interpolation (bicubic).

    >>> layer, images = nn.Conv2d(1, 8, kernel_size=1), torch.rand(4, 1, 32, 32)
    >>> errors = equivariance_error(layer, images, angles=[90], scales=[])
    >>> max(errors["rotation"].values()) < 1e-5
    True

    Args:
        layer_or_model: f.
        images: (N, C, H, W) or (N, C, X, Y, Z); only the inscribed disc is used.
        angles: rotations about the center, in degrees.
        scales: factors.
        shifts_px: shifts along x.
        polar: the inputs are polar images (N, C, angles, radii), as for `WrapConv2d`: rotations roll their rows,
            and `scales` and `shifts_px` are ignored.
    """
    amounts: dict[Kind, Sequence[float]] = {"rotation": angles}
    if not polar:
        amounts |= {"scale": scales, "shift": shifts_px}
    transforms = [Transform.of(kind, float(amount)) for kind, values in amounts.items() for amount in values]
    with inferring(layer_or_model):
        output = layer_or_model(images[:1])
    if not isinstance(output, Tensor) or output.dim() not in (2, 4, 5):
        raise InputError("the output cannot be compared: it must be a vector or a map for each image")
    layer = _relate(OUTPUT, output, layer_or_model.modules())
    if polar and layer.relation == "image":
        layer = layer._replace(relation="polar")
    result: dict[str, dict[float, float]] = {}
    for error in _measure(layer_or_model, images, transforms, [layer], polar=polar):
        result.setdefault(error.kind, {})[error.amount] = math.nan if error.error is None else error.error
    return result


def layer_errors(model: nn.Module, images: Tensor, transforms: Sequence[Transform]) -> list[LayerError]:
    """Returns the errors of a model's blocks and of its output, by transform and in the order they run.

    Args:
        images: (N, C, H, W) or (N, C, X, Y, Z) in [0, 1].
    """
    modules = {name: module for name, module in model.named_modules() if name}
    calls: list[tuple[str, Any]] = []
    with inferring(model), _hooked(modules, lambda name, output: calls.append((name, output))):
        logits = model(images[:2])
    order = [name for name, _ in calls]
    maps = {
        name: output
        for name, output in calls
        if isinstance(output, Tensor) and output.dim() in (4, 5) and order.count(name) == 1
    }
    blocks = set(_blocks(model, maps))
    transformers = {path: module for path, module in modules.items() if isinstance(module, _TRANSFORMERS)}
    layers = []
    for name, output in maps.items():
        if name in blocks:
            layer = _relate(name, output, [m for path, m in transformers.items() if _follows(name, path, order)])
            if layer.relation != "image" or _covers(output, images):
                layers.append(layer)
    layers.append(_Layer(OUTPUT, tuple(logits.shape[1:]), "invariant"))
    return _measure(model, images, transforms, layers)


def _follows(name: str, path: str, order: Sequence[str]) -> bool:
    """Returns whether the module `name` is `path`, or runs after it within the module that contains `path`."""
    last = max((index for index, other in enumerate(order) if f"{other}.".startswith(f"{path}.")), default=-1)
    parent = path.rpartition(".")[0]
    related = not parent or f"{name}.".startswith(f"{parent}.")
    return name == path or (related and order.index(name) > last)


def _relate(name: str, output: Tensor, modules: Iterable[nn.Module]) -> _Layer:
    """Returns how an output relates to the image, by the first transformer among the modules it depends on."""
    shape = tuple(output.shape[1:])
    transformer = next((module for module in modules if isinstance(module, _TRANSFORMERS)), None)
    if output.dim() == 2 or isinstance(transformer, SpatialTransformer):
        return _Layer(name, shape, "invariant")
    if transformer is None:
        return _Layer(name, shape, "image")
    polar = transformer.polar if isinstance(transformer, CylindricalTransformer) else transformer
    if not (polar.grid.wraps and polar.grid.is_circular(GridPose())):
        raise InputError(f"equivariance needs a polar grid of full circles around the origin; got {polar.grid}")
    return _Layer(name, shape, "polar", polar.grid)


def _covers(output: Tensor, images: Tensor) -> bool:
    """Returns whether `output` may be a map of the image: about the same stride along both axes."""
    down, right = (side / part for side, part in zip(plane_size(images), plane_size(output), strict=True))
    return max(down, right) < _MAX_SKEW * min(down, right)


def _blocks(model: nn.Module, maps: Collection[str], prefix: str = "") -> Iterator[str]:
    """Yields the names of a network's blocks; `maps` are the layers that return feature maps.

    Blocks are the outermost elements of containers that return maps, transformers, and other modules with weights.
    """
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        # A subclass of a container, such as a dense block, is one element.
        nested = type(child) in _CONTAINERS or isinstance(child, _TRANSFORMERS)
        if isinstance(model, _CONTAINERS) and not nested and path in maps:
            yield path
            continue
        has_weights = any(parameter.dim() > 1 for parameter in child.parameters(recurse=False))
        # The polar transformer inside a cylindrical one returns the same values.
        if has_weights or (isinstance(child, _TRANSFORMERS) and not isinstance(model, CylindricalTransformer)):
            yield path
        yield from _blocks(child, maps, f"{path}.")


def _measure(
    model: nn.Module,
    images: Tensor,
    transforms: Sequence[Transform],
    layers: Sequence[_Layer],
    *,
    polar: bool = False,
) -> list[LayerError]:
    """Returns the errors of the layers; with `polar` the inputs are polar images."""
    modules = {layer.name: model.get_submodule(layer.name) for layer in layers if layer.name != OUTPUT}
    source = _Layer("", tuple(images.shape[1:]), "polar" if polar else "image")
    size = plane_size(images)
    low, high = min(0.0, float(images.min())), max(1.0, float(images.max()))
    maps: dict[str, Tensor] = {}

    def record(inputs: Tensor) -> dict[str, Tensor]:
        maps.clear()
        maps[OUTPUT] = model(inputs.clamp(low, high))
        # of several polar images per image, those around the first candidate for the origin
        return {layer.name: maps[layer.name][:: max(1, len(maps[layer.name]) // len(inputs))] for layer in layers}

    errors = []
    with inferring(model), _hooked(modules, maps.__setitem__):
        for kind, amount, pose in transforms:
            sums = {layer.name: torch.zeros(2, dtype=torch.float64) for layer in layers}
            visible = images
            if not polar:  # mask pixels that the transform moves out of view
                visible = images * disc(images, share=_shift_share(pose, size) / max(1.0, float(pose.scale)))
            for inputs in visible.split(_BATCH):
                before, after = record(inputs), record(_carry(source, inputs, pose, size)[0])
                for layer in layers:
                    expected, inside = _carry(layer, before[layer.name], pose, size)
                    both = torch.stack((after[layer.name] - expected, expected)).double()
                    sums[layer.name] += (both * inside).square().flatten(1).sum(dim=1).cpu()
            for layer in layers:
                squared, norm = sums[layer.name].tolist()
                error = (squared / norm) ** 0.5 if norm > 0 else None
                errors.append(LayerError(layer.name, layer.shape, layer.relation, kind, amount, error))
    return errors


def disc(images: Tensor, *, share: float = 1.0) -> Tensor:
    """Returns a mask that broadcasts to `images`: 1 inside the largest inscribed disc, 0 outside.

    Args:
        share: of the radius. The disc contains at least the central pixel, or the central four.
    """
    height, width = plane_size(images)
    y = torch.arange(height, device=images.device) - (height - 1) / 2
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    inside = torch.hypot(y[:, None], x[None, :]) <= max(share * (min(height, width) - 1) / 2, 0.75)
    return (inside.T[..., None] if images.dim() == 5 else inside).to(images.dtype)


def _shift_share(pose: Similarity, size: tuple[int, int]) -> float:
    """Returns the share of the disc's radius that the shift keeps inside images of this size."""
    return max(0.0, 1 - 2 * math.hypot(*map(float, pose.shift_px)) / min(size))


def _carry(layer: _Layer, maps: Tensor, pose: Similarity, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns T′ of the maps of images of this size, and a mask of where it is known."""
    if layer.relation == "invariant":
        return maps, maps.new_ones(())
    if layer.relation == "polar":
        return _carry_polar(maps, pose, layer.grid, size)
    rows, columns = plane_size(maps)
    x, y = pose.shift_px
    scaled = replace(pose, shift_px=(x * columns / size[1], y * rows / size[0]))
    carried = similarity_warp(maps, scaled, mode=MODE, padding_mode="border")
    return carried, disc(maps, share=_shift_share(pose, size) * min(1.0, float(pose.scale)))


def _carry_polar(
    maps: Tensor, pose: Similarity, grid: PolarGrid | None, size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """`_carry` of polar maps (N, C, angles, radii) or (N, C, angles, radii, Z)."""
    folded = maps.movedim(-1, 2).flatten(1, 2) if maps.dim() == 5 else maps
    angles, radii = folded.shape[-2:]
    rows = (torch.arange(angles, device=maps.device) - float(pose.rotation) / (2 * math.pi) * angles) % angles
    source = torch.arange(radii, device=maps.device, dtype=torch.float32)
    if pose.scale != 1 and grid is not None:
        stride = max(1, round(grid.radii / radii))
        source = grid.column_at(grid.radius_at(source * stride, size) / pose.scale, size) / stride
    y, x = torch.broadcast_tensors(rows[:, None] + KERNEL_REACH, source[None, :])
    wrapped = wrap_angle(folded, (KERNEL_REACH, KERNEL_REACH))
    points = (x.expand(len(maps), -1, -1), y.expand(len(maps), -1, -1))
    carried = interpolate(wrapped, *points, mode=MODE, padding_mode="border")
    inside = ((source >= 0) & (source <= radii - 1)).to(maps.dtype)
    if maps.dim() == 5:
        return carried.unflatten(1, (maps.shape[1], -1)).movedim(2, -1), inside[:, None]
    return carried, inside


@contextmanager
def _hooked(modules: dict[str, nn.Module], callback: Callable[[str, Any], None]) -> Iterator[None]:
    """Context manager that calls `callback(name, output)` whenever one of the modules has run."""
    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: callback(name, output))
        for name, module in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
