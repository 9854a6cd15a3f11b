"""E(2)-steerable CNN (Weiler & Cesa 2019) for rotated MNIST, by the package e2cnn."""

import math
import sys
import warnings
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any

from torch import Tensor, nn

from ptn.errors import optional_module

FIELDS = (24, 32, 36, 36, 64, 96)
KERNELS = (9, 7, 7, 7, 7, 5)
PADDINGS = (0, 3, 3, 3, 3, 0)
RESTRICTED = 4  # index of the layer after which D16 is restricted to C16


class E2CNN(nn.Module):
    """D16|5C16: regular fields of the dihedral group in five layers, of its rotations in the last.

    28×28 images -> logits (N, 10). Building it takes about half a minute, in which the basis of filters is solved.

    Args:
        flips: False for C16 throughout.
        fields: Fields of each layer in C16; in D16, which has twice the elements, divided by √2.
    """

    def __init__(self, *, order: int = 16, flips: bool = True, fields: tuple[int, ...] = FIELDS) -> None:
        super().__init__()
        e2, e2nn = _import()
        space = e2.FlipRot2dOnR2(order) if flips else e2.Rot2dOnR2(order)
        self.input_type = e2nn.FieldType(space, [space.trivial_repr])
        kind = self.input_type
        layers: list[Any] = []
        for index, (width, kernel, padding) in enumerate(zip(fields, KERNELS, PADDINGS, strict=True)):
            count = int(width / math.sqrt(2)) if flips and index <= RESTRICTED else width
            out = e2nn.FieldType(space, [space.regular_repr] * count)
            layers.append(e2nn.R2Conv(kind, out, kernel, padding=padding, bias=False))
            if flips and index == RESTRICTED:
                restriction = e2nn.RestrictionModule(out, (None, order))
                layers += [restriction, e2nn.DisentangleModule(restriction.out_type)]
                out = layers[-1].out_type
                space = out.gspace
            layers.append(e2nn.InnerBatchNorm(out))
            if index == len(fields) - 1:
                layers.append(e2nn.GroupPooling(out))
                out = layers[-1].out_type
            if index in (1, 3):
                layers.append(e2nn.PointwiseMaxPool(out, 2))
            layers.append(e2nn.ELU(out, inplace=True))
            kind = out
        self.features = e2nn.SequentialModule(*layers)
        self.head = nn.Sequential(
            nn.Linear(len(kind), 96),
            nn.BatchNorm1d(96),
            nn.ELU(inplace=True),
            nn.Dropout(0.3),
            nn.Linear(96, 10),
        )
        self.wrap = e2nn.GeometricTensor

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(self.wrap(images, self.input_type)).tensor
        return self.head(features.flatten(2).amax(dim=2))


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
