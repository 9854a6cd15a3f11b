"""Layers that are random in training, and where their randomness comes from."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


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


def random_layers(model: nn.Module) -> list[RandomLayer]:
    """The random layers of a model, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, RandomLayer)]
