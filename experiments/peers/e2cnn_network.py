"""E(2)-steerable CNN (Weiler & Cesa 2019) for rotated MNIST, by the package e2cnn."""

import math
import sys
import warnings
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ptn.errors import optional_module
from ptn.layers import ChannelDropout

FIELDS = (24, 32, 36, 36, 64, 96)
KERNELS = (9, 7, 7, 7, 7, 5)
PADDINGS = (0, 3, 3, 3, 3, 0)
RESTRICTED = 4  # index of the layer after which D16 is restricted to C16
# strength of the penalty |w| + w²/2 on the filters; a tenth of it is used for the linear layers
_PENALTY = 1e-7


class E2CNN(nn.Module):
    """D16|5C16: regular fields of the dihedral group in five layers, of its rotations in the last.

    28×28 images, or larger ones -> logits (N, 10). Bases of filters, their initialization and the restriction are
    those of e2cnn. The layers are plain torch: they can be copied and captured in a CUDA graph.

    Args:
        flips: False for C16 throughout.
        fields: Fields of each layer in C16; in D16, which has twice the elements, divided by √2.
    """

    def __init__(self, *, order: int = 16, flips: bool = True, fields: tuple[int, ...] = FIELDS) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, source = 1, "image"
        for index, (width, kernel, padding) in enumerate(zip(fields, KERNELS, PADDINGS, strict=True)):
            flipped = flips and index <= RESTRICTED
            count = int(width / math.sqrt(2)) if flipped else width
            layers.append(SteerableConv(before, count, _basis(order, flipped, source, kernel), padding))
            before, size, source = count, 2 * order if flipped else order, "field"
            if flipped and index == RESTRICTED:
                layers.append(Restriction(_restricted(order)[1]))
                source = "restricted field"
            layers.append(FieldNorm(before, size))
            layers.append(FieldMax() if index == len(fields) - 1 else nn.Flatten(1, 2))
            if index in (1, 3):
                layers.append(nn.MaxPool2d(2))
            layers.append(nn.ELU(inplace=True))
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(before, 96),
            nn.BatchNorm1d(96),
            nn.ELU(inplace=True),
            ChannelDropout(96, 0.3),
            nn.Linear(96, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).flatten(2).amax(dim=2))
        if not self.training:
            return logits
        filters = [layer.weights for layer in self.features if isinstance(layer, SteerableConv)]
        linear = [layer.weight for layer in self.head if isinstance(layer, nn.Linear)]
        strengths = [_PENALTY] * len(filters) + [_PENALTY / 10] * len(linear)
        penalized: Tensor = _Penalty.apply(logits, strengths, *filters, *linear)  # type: ignore[no-untyped-call]
        return penalized


class SteerableConv(nn.Module):
    """Convolution of fields of one group: (N, fields·size, H, W) -> (N, fields·size, H, W).

    Args:
        basis: Filters (basis, size_out, size_in, k, k) and the initial standard deviation of their weights.
    """

    def __init__(self, before: int, after: int, basis: tuple[Tensor, Tensor], padding: int) -> None:
        super().__init__()
        filters, std = basis
        self.register_buffer("basis", filters, persistent=False)
        self.weights = nn.Parameter(torch.randn(after, before, len(filters)) * std / math.sqrt(before))
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        basis: Tensor = self.basis  # type: ignore[assignment]
        filters = torch.einsum("pqb,boikl->poqikl", self.weights, basis)
        return F.conv2d(x, filters.flatten(0, 1).flatten(1, 2), padding=self.padding)


class Restriction(nn.Module):
    """Fields of a dihedral group as fields of its rotations: a change of basis of each field."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        matrix: Tensor = self.matrix  # type: ignore[assignment]
        return torch.einsum("oi,nfihw->nfohw", matrix, x.unflatten(1, (-1, len(matrix)))).flatten(1, 2)


class FieldNorm(nn.BatchNorm3d):
    """Batch norm by field: (N, fields·size, H, W) -> (N, fields, size, H, W)."""

    def __init__(self, fields: int, size: int) -> None:
        super().__init__(fields)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(1, (-1, self.size)))


class FieldMax(nn.Module):
    """Maximum over each field: (N, fields, size, H, W) -> (N, fields, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.max(dim=2).values


class _Penalty(torch.autograd.Function):
    """The identity of logits, which adds the gradients of strength·(|w| + w²/2) to those of the weights."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, strengths: list[float], *weights: Tensor) -> Tensor:
        ctx.strengths = strengths
        ctx.save_for_backward(*weights)
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        pairs = zip(ctx.strengths, ctx.saved_tensors, strict=True)
        return grad_output, None, *(strength * (weight.sign() + weight) for strength, weight in pairs)


@cache
def _basis(order: int, flips: bool, source: str, kernel: int) -> tuple[Tensor, Tensor]:
    """Returns the filters from an image or a field to a field, and the deviation of their initial weights."""
    e2, e2nn = _import()
    space = e2.FlipRot2dOnR2(order) if flips else e2.Rot2dOnR2(order)
    field = e2nn.FieldType(space, [space.regular_repr])
    sources = {"image": lambda: e2nn.FieldType(space, [space.trivial_repr]), "field": lambda: field}
    before = sources.get(source, lambda: _restricted(order)[0])()
    with warnings.catch_warnings(action="ignore"):  # about bytes as masks
        conv = e2nn.R2Conv(before, field, kernel, bias=False, initialize=False)
    (expansion,) = conv.basisexpansion.children()
    filters = expansion.sampled_basis.unflatten(3, (kernel, kernel))
    return filters, e2nn.init._generalized_he_init_variances(conv.basisexpansion)


@cache
def _restricted(order: int) -> tuple[Any, Tensor]:
    """Returns a field of the dihedral group as one of its rotations, and the change of basis to it."""
    e2, e2nn = _import()
    space = e2.FlipRot2dOnR2(order)
    restriction = e2nn.RestrictionModule(e2nn.FieldType(space, [space.regular_repr]), (None, order))
    disentangled = e2nn.DisentangleModule(restriction.out_type)
    (matrix,) = (buffer for buffer in disentangled.buffers() if buffer.dim() == 2)
    return disentangled.out_type, matrix


class _Loader(SourceFileLoader):
    """Loads a module of e2cnn, with what it uses of numpy 1 replaced by its equivalent in numpy 2."""

    def get_code(self, fullname: str) -> Any:
        source = self.get_data(self.path).decode()
        source = source.replace(".tostring()", ".tobytes()").replace("copy=False", "copy=None")
        with warnings.catch_warnings(action="ignore"):  # of escapes in strings
            return self.source_to_code(source.encode(), self.path)


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        spec = super().find_spec(fullname, path, target) if fullname.split(".")[0] == "e2cnn" else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def _import() -> tuple[Any, Any]:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    optional_module("e2cnn", "e2cnn")
    from e2cnn import gspaces
    from e2cnn import nn as e2nn

    return gspaces, e2nn
