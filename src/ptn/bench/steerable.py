"""A peer for training: an escnn network equivariant to eight rotations, of the shape of escnn's own tutorial."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .report import PeerMissing
from .samplers import need
from .timing import Work

# fields of the regular representation, kernel, padding, and the stride of the pooling that follows
_LAYERS = ((24, 7, 1, None), (48, 5, 2, 2), (48, 5, 2, None), (96, 5, 2, 2), (96, 5, 2, None), (64, 5, 1, 1))
# odd, so that strides of 2 keep the middle in the middle
_SIZE = 29


class SteerableNetwork(nn.Module):
    """(N, 1, 29, 29) -> (N, classes)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: Any = need("escnn.nn", "")
        turns = need("escnn.gspaces", "").rot2dOnR2(N=8)
        self.wrap = layers.GeometricTensor
        self.input_type = field = layers.FieldType(turns, [turns.trivial_repr])
        stack = [layers.MaskModule(field, _SIZE, margin=1)]
        for count, kernel, padding, stride in _LAYERS:
            before, field = field, layers.FieldType(turns, count * [turns.regular_repr])
            stack.append(layers.R2Conv(before, field, kernel_size=kernel, padding=padding, bias=False))
            stack += [layers.InnerBatchNorm(field), layers.ReLU(field, inplace=True)]
            if stride is not None:
                edge = {"padding": 0} if stride == 1 else {}
                stack.append(layers.PointwiseAvgPoolAntialiased(field, sigma=0.66, stride=stride, **edge))
        stack.append(layers.GroupPooling(field))
        self.features = layers.SequentialModule(*stack)
        width = _LAYERS[-1][0]
        self.head = nn.Sequential(nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ELU(), nn.Linear(64, classes))

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(self.wrap(images, self.input_type)).tensor
        return self.head(features.flatten(1))


def make_builder() -> Work:
    """What constructs the network, if escnn is here."""
    need("escnn.nn", "")
    return SteerableNetwork


def make_step(batch: int, device: torch.device) -> Work:
    """A plain training step of the network."""
    if device.type != "cpu":
        raise PeerMissing("it is measured on CPUs only")
    model = SteerableNetwork().train()
    images, labels = torch.rand(batch, 1, _SIZE, _SIZE), torch.arange(batch) % 10
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def work() -> None:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return work
