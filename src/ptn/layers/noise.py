"""Layers that are random in training, and where their randomness comes from."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..errors import InputError


class RandomLayer(nn.Module, ABC):
    """A layer that needs uniform random numbers for each sample in training.

    They are drawn from torch's global generator, unless `noise` holds them: whoever trains many networks in one
    process, in a captured graph or over several processes fills it before each step from a source of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise: Tensor | None = None

    @abstractmethod
    def noise_shape(self, count: int) -> tuple[int, ...]:
        """The shape of the random numbers for `count` samples, samples first."""

    def uniform(self, count: int, device: torch.device) -> Tensor:
        """Random numbers in [0, 1) for `count` samples."""
        if self.noise is not None:
            return self.noise[:count]
        return torch.rand(self.noise_shape(count), device=device)


class StreamDropout(RandomLayer):
    """Logits of two streams to those of both: their sum, in training for a share of samples just one of the two.

    Where one stream learns sooner than the other, little is left to teach that one. A stream that answers alone at
    times, each of them for half of `rate`, has gradients of its own.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise InputError(f"stream_dropout must be at least 0 and less than 1; got {rate}")
        self.rate = rate

    def noise_shape(self, count: int) -> tuple[int, ...]:
        return (count, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        if not self.training:
            return first + second
        drawn = self.uniform(first.shape[0], first.device)
        alone = torch.where(drawn < self.rate / 2, first, second)
        return torch.where(drawn < self.rate, alone, first + second)


def random_layers(model: nn.Module) -> list[RandomLayer]:
    """The random layers of a model, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, RandomLayer)]
