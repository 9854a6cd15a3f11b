"""Weights, logits and origins of every released network, and of every network initialized with a seed."""

from functools import partial
from typing import Any

import pytest
import torch

import golden
import ptn

COLOUR, VOXELS = ("ptn_resnet32", "resnet32"), ("ccnn_3d", "cylindrical", "cylindrical_l")
SETTINGS = {name: {"image_size": 32} for name in (*COLOUR, *VOXELS)}
SETTINGS |= {name: {"image_size": 32, "in_chans": 3} for name in COLOUR}


def network_facts(model: Any) -> dict[str, Any]:
    """The shapes and the hash of the state, the number of parameters, and the results for fixed images."""
    state = model.state_dict()
    images = golden.fixed_images(model.input_shape)
    with torch.no_grad():
        results = {"logits": model(images), "origins": model.explain(images).origins}
    return {
        "state": {name: list(tensor.shape) for name, tensor in state.items()},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sha256": golden.sha256(torch.cat([tensor.double().flatten() for tensor in state.values()])),
        **{name: golden.measure(tensor) for name, tensor in results.items() if tensor is not None},
    }


def released(tag: str) -> dict[str, Any]:
    return network_facts(ptn.load_model(tag))


def seeded(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    return network_facts(ptn.create_model(name, **SETTINGS.get(name, {})).eval())


RELEASED = {tag: partial(released, tag) for tag in ptn.list_pretrained()}
SEEDED = {name: partial(seeded, name) for name in ptn.list_models()}
CASES: golden.Cases = {"released": RELEASED, "seeded": SEEDED}


@pytest.mark.parametrize("tag", RELEASED)
def test_released_network_gives_the_recorded_logits(tag: str) -> None:
    facts = released(tag)
    assert facts["sha256"] == golden.read("released")[tag]["sha256"]  # weights do not depend on the machine
    golden.check("released", tag, facts)


@pytest.mark.parametrize("name", SEEDED)
def test_seeded_network_gives_the_recorded_logits(name: str) -> None:
    """The seed gives the same initial weights, so the order of random numbers is unchanged."""
    golden.check("seeded", name, seeded(name))
