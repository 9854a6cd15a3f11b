"""Logits and origins of every released network, and of every network initialised with a seed."""

from typing import Any

import adapter
import cases
import comparison
import pytest
from torch import nn

RELEASED, RELEASED_ON = comparison.read("released")
SEEDED, SEEDED_ON = comparison.read("seeded")


def _check(model: nn.Module, expected: dict[str, Any], same_machine: bool) -> None:
    facts = cases.state_facts(model)
    assert facts["state"] == expected["state"]
    assert facts["parameters"] == expected["parameters"]
    actual = cases.network_tensors(model)
    assert set(actual) == {"logits", "origins"} & set(expected)
    for name, tensor in actual.items():
        comparison.check(tensor, expected[name], same_machine)


@pytest.mark.parametrize("tag", RELEASED)
def test_released_network_gives_the_recorded_logits(tag: str, one_thread: None) -> None:
    model = adapter.load_released(tag)
    assert cases.state_facts(model)["sha256"] == RELEASED[tag]["sha256"]
    _check(model, RELEASED[tag], comparison.fingerprint() == RELEASED_ON)


@pytest.mark.parametrize("name", SEEDED)
def test_seeded_network_gives_the_recorded_logits(name: str, one_thread: None) -> None:
    """The seed gives the same initial weights, so the order of random numbers is unchanged."""
    model = cases.seeded(name)
    same_machine = comparison.fingerprint() == SEEDED_ON
    if same_machine:
        assert cases.state_facts(model)["sha256"] == SEEDED[name]["sha256"]
    _check(model, SEEDED[name], same_machine)
