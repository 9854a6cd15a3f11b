"""Networks of other papers have their published sizes and are equivariant."""

import pytest
import torch

from experiments.peers.networks import P4CNN, RICCNN, Z2CNN, HNet, TIPooling


@pytest.mark.parametrize(
    ("network", "parameters"),
    [(Z2CNN, 21_750), (P4CNN, 24_680), (HNet, 34_066), (TIPooling, 13_308_170), (RICCNN, 288_618)],
)
def test_sizes_are_those_published(network, parameters):
    assert sum(parameter.numel() for parameter in network().parameters()) == parameters


@pytest.mark.parametrize("network", [P4CNN, HNet, TIPooling, RICCNN])
def test_rotations_by_90_degrees_do_not_change_the_logits(network):
    torch.manual_seed(0)
    model, images = network().eval(), torch.rand(2, 1, 28, 28)
    logits = model(images)
    # the first angle of RIC-CNN is rounded differently
    tolerance = (1e-2 if network is RICCNN else 1e-5) * logits.std()
    assert (model(images.rot90(1, (2, 3))) - logits).abs().max() < tolerance


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_e2cnn_is_equivariant():
    from experiments.peers.e2cnn_network import E2CNN

    torch.manual_seed(0)
    model, images = E2CNN(order=4, fields=(2, 2, 2, 2, 2, 2)).eval(), torch.rand(2, 1, 28, 28)
    assert torch.allclose(model(images.rot90(1, (2, 3))), model(images), atol=1e-4)
