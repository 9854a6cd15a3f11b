"""The public names, their signatures, and the names in the catalogs of networks and data sets."""

import sys

import adapter
import comparison
import pytest

EXPECTED, _ = comparison.read("api")


def test_public_names_are_those_recorded() -> None:
    assert adapter.public_names() == EXPECTED["names"]


@pytest.mark.parametrize("name", EXPECTED["names"])
def test_parameters_and_defaults_are_those_recorded(name: str) -> None:
    assert adapter.public_signatures(annotations=False)[name] == EXPECTED["parameters"][name]


@pytest.mark.skipif(
    list(sys.version_info[:2]) != EXPECTED["python"], reason="Python writes annotations differently"
)
@pytest.mark.parametrize("name", EXPECTED["names"])
def test_annotations_are_those_recorded(name: str) -> None:
    assert adapter.public_signatures(annotations=True)[name] == EXPECTED["signatures"][name]


def test_data_sets_are_those_recorded() -> None:
    assert adapter.dataset_facts() == EXPECTED["datasets"]


def test_networks_and_their_options_are_those_recorded() -> None:
    assert {name: adapter.model_options(name) for name in adapter.model_names()} == EXPECTED["models"]


def test_released_weights_are_those_recorded() -> None:
    assert adapter.released_tags() == EXPECTED["released"]
