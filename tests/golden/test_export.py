"""Exported, saved and optimised networks give the logits of the original network."""

from pathlib import Path

import adapter
import cases
import comparison
import pytest
import torch
from torch import nn

NETWORKS = ("ptn_s", "ptn_b.sim2mnist", "cylindrical.modelnet40")


def _network(name: str) -> nn.Module:
    return adapter.load_released(name) if "." in name else cases.seeded(name)


@pytest.mark.parametrize("form", ["onnx", "torch"])
@pytest.mark.parametrize(
    "name", [NETWORKS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS[1:])]
)
def test_exported_file_gives_the_logits(name: str, form: str, tmp_path: Path) -> None:
    model = _network(name)
    images = comparison.fixed_images(adapter.input_shape(model))
    actual = adapter.export_and_run(model, tmp_path, form, images)
    torch.testing.assert_close(actual, adapter.logits(model, images), rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["file", "folder"])
@pytest.mark.parametrize("name", NETWORKS)
def test_saved_network_is_bit_identical(name: str, form: str, tmp_path: Path, one_thread: None) -> None:
    model = _network(name)
    images = comparison.fixed_images(adapter.input_shape(model))
    loaded = adapter.save_and_load(model, tmp_path, form)
    state = model.state_dict()
    assert loaded.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())
    assert torch.equal(adapter.logits(loaded, images), adapter.logits(model, images))


@pytest.mark.parametrize("name", NETWORKS)
def test_network_for_inference_gives_the_logits(name: str) -> None:
    model = _network(name)
    images = comparison.fixed_images(adapter.input_shape(model))
    actual = adapter.logits(adapter.for_inference(model), images)
    torch.testing.assert_close(actual, adapter.logits(model, images), rtol=0, atol=1e-4)
