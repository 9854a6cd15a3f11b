"""torch.compile(model) gives the eager answer, forward and backward."""

import pytest
import torch

import ptn


def check(name, **options):
    torch._dynamo.reset()
    torch.manual_seed(2)
    model = ptn.create_model(name, image_size=20, num_classes=4, **options).eval()
    images = torch.rand(2, *model.input_shape)
    compiled = torch.compile(model, fullgraph=True)
    expected, actual = model(images), compiled(images)
    assert torch.allclose(actual, expected, atol=1e-4)
    gradients = []
    for logits in (expected, actual):
        model.zero_grad()
        logits.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-2, atol=1e-3)


@pytest.mark.filterwarnings("default")
def test_compiled_ptn_s_gives_the_eager_answer():
    check("ptn_s")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", [name for name in ptn.list_models() if name != "ptn_s"])
def test_every_compiled_model_gives_the_eager_answer(name):
    check(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_two_streams_compile_into_one_graph():
    check("ptn_s", two_stream=True)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["ptn_s", "stn_s", "ccnn_s"])
def test_exported_with_a_free_batch_it_gives_the_eager_answer(name):
    model = ptn.create_model(name, image_size=20).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.rand(4, 1, 20, 20),), dynamic_shapes=({0: batch},))
    for count in (1, 7):
        images = torch.rand(count, 1, 20, 20)
        assert torch.allclose(program.module()(images), model(images), atol=1e-5)
