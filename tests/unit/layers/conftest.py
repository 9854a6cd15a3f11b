from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def _nan_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fills new memory with NaN, so that reading it before it is written shows."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
