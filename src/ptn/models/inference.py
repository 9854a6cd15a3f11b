"""Copies of networks that are optimized for inference."""

import copy
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..config import checked
from ..device import placement
from ..errors import InputError
from ..layers import ConvBlock, ResidualBlock
from .networks import Ensemble, Explanation, Model, Network

# On a CPU a batch is processed in chunks whose largest feature map has about this size and stays in the cache.
_CHUNK_BYTES = 2**23


@checked
def for_inference(model: Model) -> "InferenceModel":
    """Returns a copy of a network optimized for inference; the network itself is unchanged.

    Batch norms are folded into the preceding convolutions, which changes the logits by rounding only. On a CPU the
    convolutions use channels-last memory, and large batches are processed in chunks.

    Args:
        model: A trained network or an ensemble.
    """
    return InferenceModel(model)


def prepare_for_inference(model: nn.Module) -> Any:
    """Returns `for_inference(model)` for a network of ptn on a CPU, and any other module unchanged."""
    if isinstance(model, Network | Ensemble) and placement(model)[0].type == "cpu":
        return for_inference(model)
    return model


class InferenceModel(nn.Module):
    """Result of `for_inference`: called like the network, always in evaluation mode and without gradients.

    Attributes:
        chunk: The largest number of images that are processed at once; None for all.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = fold_norms(model).requires_grad_(False)
        self.input_shape, self.classes, self.metadata = model.input_shape, model.classes, model.metadata
        if hasattr(model, "config"):
            self.config = model.config
        self.chunk: int | None = None
        example = next(self.model.parameters())
        if example.device.type == "cpu":
            put_channels_last(self.model)
            image = torch.zeros(1, *self.input_shape, dtype=example.dtype)
            self.chunk = max(1, _CHUNK_BYTES // _largest_output_bytes(self.model, image))
        self.train(False)

    def train(self, mode: bool = True) -> "InferenceModel":
        """Raise `InputError` unless `mode` is False."""
        if mode:
            raise InputError("a model for inference cannot be trained: train the network it was copied from")
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor, origin: Tensor | None = None) -> Tensor:
        """Logits (N, num_classes); `origin` (N, 2) replaces the predicted origin."""
        if self.chunk is None or len(images) <= self.chunk:
            return self._logits(images, origin)
        origins = repeat(None) if origin is None else origin.split(self.chunk)
        return torch.cat([self._logits(*part) for part in zip(images.split(self.chunk), origins, strict=False)])

    def _logits(self, images: Tensor, origin: Tensor | None) -> Tensor:
        return self.model(images) if origin is None else self.model(images, origin=origin)

    def explain(self, images: Tensor) -> Explanation:
        """Logits and intermediate results."""
        return self.model.explain(images)


def fold_norms(model: Model) -> Model:
    """Returns a copy in evaluation mode with the batch norms of all blocks folded into their convolutions."""
    folded = copy.deepcopy(model).eval()
    for parent in list(folded.modules()):
        for name, block in parent.named_children():
            if isinstance(block, ConvBlock):
                setattr(parent, name, nn.Sequential(_fold(block.conv, block.norm), nn.ReLU(inplace=True)))
            elif isinstance(block, ResidualBlock):
                for conv, norm in (("conv1", "norm1"), ("conv2", "norm2")):
                    block.add_module(conv, _fold(getattr(block, conv), getattr(block, norm)))
                    block.add_module(norm, nn.Identity())
    return folded


def _fold(conv: nn.Conv2d | nn.Conv3d, norm: _BatchNorm) -> nn.Module:
    dtype = conv.weight.dtype
    return fuse_conv_bn_eval(conv.double(), norm.double()).to(dtype)


def put_channels_last(model: nn.Module) -> None:
    """Convert the weights of all convolutions to channels-last memory, so that their outputs have it too."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d):
            last = torch.channels_last if isinstance(layer, nn.Conv2d) else torch.channels_last_3d
            layer.to(memory_format=last)  # type: ignore[call-overload]


def _largest_output_bytes(model: nn.Module, images: Tensor) -> int:
    """Size of the largest tensor that a layer of `model(images)` returns."""
    sizes = [images.nbytes]

    def record(layer: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.nbytes)

    with register_module_forward_hook(record), torch.no_grad():
        model(images)
    return max(sizes)
