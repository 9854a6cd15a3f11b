"""torch.compile gives the eager results."""

import pytest
import torch

import ptn


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "options", "backend"),
    [
        ("ptn_s", {}, "aot_eager"),
        ("ptn_s", {"frame": "disc", "mode": "bicubic"}, "aot_eager"),
        *(pytest.param(name, {}, "aot_eager", marks=pytest.mark.slow) for name in ("stn_s", "cylindrical")),
        pytest.param("ptn_s", {}, "inductor", marks=pytest.mark.slow),
    ],
)
def test_a_compiled_network_gives_the_eager_logits_and_gradients(name, options, backend):
    torch._dynamo.reset()
    model = ptn.create_model(name, image_size=20, num_classes=4, **options).eval()
    images = torch.rand(2, *model.input_shape)
    expected, actual = model(images), torch.compile(model, fullgraph=True, backend=backend)(images)
    assert torch.allclose(actual, expected, atol=1e-4)
    gradients = []
    for logits in (expected, actual):
        model.zero_grad()
        logits.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.dist(*gradients) < 1e-4 * gradients[0].norm()
