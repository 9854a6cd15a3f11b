"""A network made ready to answer: the same numbers sooner, and no more training."""

import copy
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..device import placement
from ..errors import InputError
from ..geometry import runs_eagerly, wrap_angle
from ..layers import Blocks, ConvBlock, ResidualBlock, WrapConv2d
from .networks import Ensemble, Explanation, Model, Network

if TYPE_CHECKING:
    from .zoo import ModelConfig

# Larger feature maps leave a CPU's cache, and are fetched from the system and given back every time.
_MAP_BYTES = 2**23
# Rows of a map beside which a wrapped one costs less to compute than the map to copy.
_ROWS_PER_MARGIN = 24


def for_inference(model: Model) -> "InferenceModel":
    """A copy of `model` that answers sooner and learns no more; the model itself stays as it is.

    Called like the model, with `origin=` and `explain`. Batch norms are folded into the convolutions before them,
    which changes the logits by rounding alone. On a CPU feature maps have their channels last, and a large batch
    passes through a part at a time.
    """
    if not isinstance(model, Network | Ensemble):
        raise InputError(f"for_inference takes a network of this package; got {type(model).__name__}")
    return InferenceModel(model)


class InferenceModel(nn.Module):
    """What `for_inference` returns: always in evaluation mode and without gradients.

    `at_once` is how many images pass through together, None for all.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = fold_norms(model).requires_grad_(False)
        self.at_once: int | None = None
        example = next(self.model.parameters())
        if example.device.type == "cpu":
            put_channels_last(self.model)
            images = torch.zeros(1, *self.input_shape, dtype=example.dtype)
            self.at_once = max(1, _MAP_BYTES // _largest_map_bytes(self.model, images))
        self.train(False)

    @property
    def config(self) -> "ModelConfig":
        return self.model.config

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.model.input_shape

    def train(self, mode: bool = True) -> "InferenceModel":
        """Evaluation mode is all there is."""
        if mode:
            raise InputError("a model for inference cannot be trained: train the one it was made from")
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor, origin: Tensor | None = None) -> Tensor:
        """Logits; `origin` (N, 2) overrides the predicted one where there is one."""
        answers = []
        for part in self._parts(images):
            given = {} if origin is None else {"origin": origin[part]}
            answers.append(self.model(images[part], **given))
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def explain(self, images: Tensor) -> Explanation:
        """How the network comes to its answer for `images`."""
        seen = [self.model.explain(images[part]) for part in self._parts(images)]
        if len(seen) == 1:
            return seen[0]
        parts = {field.name: [getattr(one, field.name) for one in seen] for field in fields(Explanation)}
        joined: dict[str, Any] = {
            name: None if held[0] is None else torch.cat(held) for name, held in parts.items()
        }
        return Explanation(**joined)

    def _parts(self, images: Tensor) -> Iterator[slice]:
        """Slices of equal length, none longer than `at_once`."""
        count = len(images)
        pieces = 1 if self.at_once is None else max(1, -(-count // self.at_once))
        step = max(1, -(-count // pieces))
        return (slice(start, start + step) for start in range(0, max(1, count), step))


def fold_norms(model: Model) -> Model:
    """A copy of `model` in evaluation mode, the batch norms of its blocks folded into their convolutions."""
    folded = copy.deepcopy(model).eval()
    for parent in list(folded.modules()):
        for name, block in parent.named_children():
            if isinstance(block, ConvBlock):
                setattr(parent, name, _FoldedBlock(_fold(block.conv, block.norm)))
            elif isinstance(block, ResidualBlock):
                block.add_module("conv1", _fold(block.conv1, block.norm1))
                block.add_module("conv2", _fold(block.conv2, block.norm2))
                block.add_module("norm1", nn.Identity())
                block.add_module("norm2", nn.Identity())
    for parent in list(folded.modules()):
        for name, blocks in parent.named_children():
            if isinstance(blocks, Blocks) and _can_chain(blocks):
                setattr(parent, name, _FoldedChain(*blocks))
    return folded


class _FoldedBlock(nn.Module):
    """A `ConvBlock` whose batch norm is part of its convolution."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.conv(x))


def _can_chain(blocks: Blocks) -> bool:
    """Whether all of `blocks` are folded and wrap around the angle of images."""
    convs = [block.conv for block in blocks if isinstance(block, _FoldedBlock)]
    return len(blocks) > 1 and len(convs) == len(blocks) and all(_wraps_plainly(conv) for conv in convs)


def _wraps_plainly(conv: nn.Module) -> bool:
    return isinstance(conv, WrapConv2d) and not conv.zeros


class _FoldedChain(nn.Sequential):
    """Folded blocks that wrap around the angle. Each leaves a tall map where the next reads it, among wrapped rows,
    so that padding takes no pass over memory of its own.

    Called block by block where somebody watches them (hooks), may want a gradient, or compiles or transforms them.
    """

    def forward(self, x: Tensor) -> Tensor:
        blocks: list[Any] = list(self)
        if torch.is_grad_enabled() or not runs_eagerly() or _is_watched(self):
            for block in blocks:
                x = block(x)
            return x
        padded = wrap_angle(x, blocks[0].conv.wrapped)
        for block, following in pairwise(blocks):
            padded = _respond(block.conv, padded, following.conv.wrapped)
        return F.relu_(_convolved(blocks[-1].conv, padded))


def _is_watched(module: nn.Module) -> bool:
    """Whether anybody waits for `module` or a part of it to be called."""
    if _global_forward_hooks or _global_forward_pre_hooks:
        return True
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def _respond(conv: WrapConv2d, padded: Tensor, margins: tuple[int, int]) -> Tensor:
    """ReLU of `conv` of maps that have their wrapped rows already, with `margins` wrapped rows of its own.

    A tall map is computed with its margins: a few rows too many, overwritten by those they stand for, are cheaper
    than a second map to copy it to.
    """
    above, below = margins
    height = (padded.shape[2] - conv.dilation[0] * (conv.kernel_size[0] - 1) - 1) // conv.stride[0] + 1
    if above != below or height < _ROWS_PER_MARGIN * above:
        return wrap_angle(F.relu_(_convolved(conv, padded)), margins)
    x = F.relu_(_convolved(conv, padded, rows=above))
    x[:, :, :above] = x[:, :, height : height + above]
    x[:, :, height + above :] = x[:, :, above : above + below]
    return x


def _convolved(conv: WrapConv2d, padded: Tensor, *, rows: int = 0) -> Tensor:
    """`conv` of maps that have their wrapped rows already, between so many `rows` that mean nothing."""
    padding = (rows * conv.stride[0], int(conv.padding[1]))
    return F.conv2d(padded, conv.weight, conv.bias, conv.stride, padding, conv.dilation, conv.groups)


def _fold(conv: nn.Conv2d | nn.Conv3d, norm: _BatchNorm) -> nn.Module:
    """`conv` with the affine map that `norm` is in evaluation, worked out in double precision."""
    dtype = conv.weight.dtype
    return fuse_conv_bn_eval(conv.double(), norm.double()).to(dtype)


def put_channels_last(model: nn.Module) -> None:
    """Lay a model's convolutions out so that its feature maps have their channels last in memory."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d):
            flat = isinstance(layer, nn.Conv2d)
            layer.to(memory_format=torch.channels_last if flat else torch.channels_last_3d)  # type: ignore[call-overload]


def _largest_map_bytes(model: nn.Module, images: Tensor) -> int:
    """The size of the largest tensor that a layer makes of `images`."""
    sizes = [images.nbytes]

    def note(layer: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.nbytes)

    hooks = [layer.register_forward_hook(note) for layer in model.modules()]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return max(sizes)


def prepare_for_inference(model: nn.Module) -> Any:
    """`for_inference(model)` for networks of this package on a CPU; any other module unchanged."""
    if isinstance(model, Network | Ensemble) and placement(model)[0].type == "cpu":
        return for_inference(model)
    return model
