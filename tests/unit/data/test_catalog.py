"""The catalog: names, splits and options."""

import pytest

from ptn.data import dataset_info, list_datasets, load_dataset
from ptn.data.store import remotes_of
from ptn.errors import InputError

NAMES = [info.name for info in list_datasets() if info.name != "quickstart"]


@pytest.mark.parametrize("name", NAMES)
def test_missing_files_are_named_with_a_command_that_exists(store, name):
    info = dataset_info(name)
    assert remotes_of(info.command.removeprefix("ptn data fetch "))
    for split in info.splits:
        with pytest.raises(InputError, match=r"ptn data fetch \w+|get http://ufldl.* by hand"):
            load_dataset(name, split)


@pytest.mark.parametrize(
    ("name", "split", "options", "words"),
    [
        ("rotmnits", "train", {}, "did you mean 'rotmnist'"),
        ("rotmnist", "train+validation", {}, "did you mean 'valid'"),
        ("rotmnist", "valid+valid", {}, "a sum of different ones"),
        ("rotmnist", "test", {"source": "orginal"}, "did you mean 'original'"),
        ("sim2mnist", "test", {"cluter": 0}, "did you mean 'clutter'"),
        ("sim2mnist", "test", {"clutter": 2.5}, "clutter must be an integer"),
        ("sim2mnist", "test", {"clutter": -1}, "clutter must be from 0"),
        ("mnist-r", "test", {"seed": 2**63}, "seed must be"),
        ("rotsvhn", "test", {"scale": [0.6, 1.2]}, "scale must be"),
        ("mnist-r", "test", {"clutter": 3}, "unknown option of mnist-r 'clutter'"),
        ("mnist-anywhere", "test", {"poses": "rotatd"}, "did you mean 'rotated'"),
        ("quickstart", "test", {"seed": "1"}, "seed must be an integer"),
        ("svhn", "test", {"scale": [0.5, 1.0]}, "unknown option of svhn 'scale'"),
        ("svhn", "test", {"size": 40}, "value of size"),
        ("modelnet40", "test", {"occupancy": "volume"}, "unknown value of occupancy 'volume'"),
    ],
)
def test_wrong_names_and_options_are_explained(store, name, split, options, words):
    with pytest.raises(InputError, match=words):
        load_dataset(name, split, **options)
