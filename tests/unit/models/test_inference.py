"""`for_inference` gives the logits of the network, from a copy."""

import copy
from dataclasses import asdict

import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

import ptn
from ptn.models import prepare_for_inference


def close(actual, expected, tolerance=1e-5):
    scale = max(1.0, expected.abs().max())
    return actual.shape == expected.shape and (actual - expected).abs().max() <= tolerance * scale


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_gives_the_same_logits_and_explanation(name, trained_like):
    model = trained_like(name, image_size=16).eval()
    fast = ptn.for_inference(model)
    assert not any(isinstance(module, _BatchNorm) for module in fast.modules())
    fast.chunk = 2  # five images in three chunks
    images = torch.rand(5, *model.input_shape)
    with torch.no_grad():
        assert close(fast(images), model(images))
    ours, theirs = asdict(fast.explain(images)), asdict(model.explain(images))
    for field, expected in theirs.items():
        assert ours[field] is None if expected is None else close(ours[field], expected), field


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 0.1), (torch.bfloat16, 0.1), (torch.float64, 1e-13)]
)
def test_precision_and_given_origins_are_kept(dtype, tolerance, trained_like):
    model = trained_like("ptn_s").eval().to(dtype)
    fast = ptn.for_inference(model)
    fast.chunk = 2
    images, origin = torch.rand(5, 1, 28, 28, dtype=dtype), torch.rand(5, 2) - 0.5
    with torch.no_grad():
        for options in ({}, {"origin": origin}):
            logits = fast(images, **options)
            assert logits.dtype == dtype
            assert close(logits, model(images, **options), tolerance)


def test_the_network_itself_is_unchanged(trained_like):
    model = trained_like("ptn_s").train()
    model.classes, model.metadata = tuple("0123456789"), {"dataset": "rotmnist"}
    before = copy.deepcopy(model.state_dict())
    fast = ptn.for_inference(model)
    assert not fast(torch.rand(2, 1, 28, 28)).requires_grad
    with pytest.raises(ptn.InputError, match="train the network"):
        fast.train()
    assert (fast.classes, fast.metadata, fast.config) == (model.classes, model.metadata, model.config)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with torch.no_grad():
        model.classifier.head.bias.add_(1)
    assert not torch.equal(fast.model.classifier.head.bias, model.classifier.head.bias)


def test_chunks_are_smaller_for_large_images():
    fast = ptn.for_inference(ptn.create_model("ptn_s"))
    assert fast.chunk > 8 * ptn.for_inference(ptn.create_model("ptn_s", image_size=224)).chunk >= 8
    assert fast(torch.empty(0, 1, 28, 28)).shape == (0, 10)


def test_other_modules_are_passed_through():
    linear = torch.nn.Linear(2, 2)
    assert prepare_for_inference(linear) is linear
