"""Kept until the two-stream network goes."""

import torch
from torch import Tensor

from ..errors import InputError
from .conv import RandomLayer


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
