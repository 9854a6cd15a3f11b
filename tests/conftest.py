"""What every test may use: real digits, the folder of real data, and reproducible randomness."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip."""
    folder = os.environ.get("PTN_DATA")
    if not folder:
        pytest.skip("PTN_DATA is not set: no real data at hand")
    return Path(folder)


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """Real photographs that come with an installed package, floats in [0, 1]: (2, 3, 120, 160)."""
    cbook = pytest.importorskip("matplotlib.cbook")
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        from PIL import Image

        picture = np.asarray(Image.open(file).convert("RGB"))
    image = torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255
    return torch.stack((image[:, 60:180, 150:310], image[:, 300:420, 200:360]))
