"""Golden tests run torch on one thread: the order of sums depends on the number of threads."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
