"""The catalog: names, splits and options."""

import pytest
import torch

from ptn.data import Dataset, dataset_info, list_datasets, load_dataset
from ptn.data.store import remotes_of
from ptn.errors import InputError

NAMES = [info.name for info in list_datasets()]


@pytest.mark.parametrize("name", NAMES)
def test_missing_files_are_named_with_a_command_that_exists(store, name):
    info = dataset_info(name)
    if name == "quickstart":
        return
    assert remotes_of(name)
    assert remotes_of(info.command.removeprefix("ptn data fetch "))
    for split in info.splits:
        with pytest.raises(InputError, match=r"get it with: ptn data fetch \w+"):
            load_dataset(name, split)


@pytest.mark.parametrize(
    ("name", "split", "options", "words"),
    [
        ("rotmnits", "train", {}, "did you mean 'rotmnist'"),
        ("rotmnist", "train+validation", {}, "did you mean 'valid'"),
        ("rotmnist", "train+train", {}, "twice"),
        ("rotmnist", "test", {"source": "orginal"}, "did you mean 'original'"),
        ("sim2mnist", "test", {"cluter": 0}, "did you mean 'clutter'"),
        ("sim2mnist", "test", {"clutter": 2.5}, "clutter must be an integer"),
        ("mnist-r", "test", {"clutter": 3}, "unknown option of mnist-r 'clutter'"),
        ("quickstart", "test", {"seed": "1"}, "seed must be an integer"),
        ("svhn", "test", {"scale": [0.5, 1.0]}, "unknown option of svhn 'scale'"),
        ("modelnet40", "test", {"occupancy": "volume"}, "unknown value of occupancy 'volume'"),
    ],
)
def test_wrong_names_and_options_are_explained(store, name, split, options, words):
    with pytest.raises(InputError, match=words):
        load_dataset(name, split, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"modelnet10"}))
def test_real_data_has_the_counts_and_shapes_of_the_catalog(real_data, name):
    info = dataset_info(name)
    for split in set(info.splits) - set(info.optional):
        dataset = load_dataset(name, split)
        assert len(dataset) == info.splits[split]
        assert len(dataset.classes) == info.classes
        assert dataset.labels.bincount(minlength=info.classes).min() > 0
        sample = torch.stack([dataset[index][0] for index in range(100)])
        assert sample.shape[1:] == info.shape
        assert (float(sample.min()), float(sample.max())) == (0, 1)


@pytest.mark.slow
def test_the_real_minus_sets_are_without_6_and_9(real_data):
    histogram = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    for name in ("svhn", "rotsvhn"):
        whole, minus = load_dataset(name, "test"), load_dataset(f"{name}-minus", "test")
        assert isinstance(whole, Dataset)
        assert whole.labels.bincount().tolist() == histogram
        assert minus.classes == tuple("01234578")
        assert minus.labels.bincount().tolist() == [histogram[int(digit)] for digit in minus.classes]
