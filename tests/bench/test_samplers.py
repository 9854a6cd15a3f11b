"""The peers do the same work: those that take our points give our polar images."""

import numpy as np
import pytest
import torch

from ptn import polar_sample
from ptn.bench import PeerMissing, samplers, sampling
from ptn.bench.sampling import make_inputs

SHAPE = (3, 1, 20)


@pytest.fixture
def inputs():
    return make_inputs(SHAPE, torch.device("cpu"))


@pytest.mark.parametrize(("module", "make"), [("torch", samplers.grid_sample), ("kornia", samplers.kornia_remap)])
def test_torch_peers_give_our_polar_images_and_gradients(inputs, module, make):
    pytest.importorskip(module)
    images, origin, grid = inputs
    sample = make((20, 20), grid, images.device)
    ours, theirs = origin.clone().requires_grad_(), origin.clone().requires_grad_()
    polar = polar_sample(images, ours, grid)
    other = sample(images, theirs)
    assert torch.allclose(polar, other, atol=1e-4)
    for result in (polar, other):
        result.square().sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("build_maps", [True, False])
def test_opencv_gives_our_polar_images(inputs, build_maps):
    pytest.importorskip("cv2")
    images, origin, grid = inputs
    theirs = samplers.opencv_remap(images, origin, grid, build_maps=build_maps)()
    assert np.abs(theirs - polar_sample(images, origin, grid)[:, 0].numpy()).max() < 1e-4


@pytest.mark.parametrize("make", [samplers.opencv_warp_polar, samplers.skimage_warp_polar])
def test_others_give_polar_images_of_the_same_size(inputs, make):
    pytest.importorskip("cv2" if make is samplers.opencv_warp_polar else "skimage")
    images, origin, grid = inputs
    polar = make(images, origin, grid)()
    assert polar.shape == (3, 20, 20)
    assert np.isfinite(polar).all()
    assert polar.std() > 0.01


def test_a_peer_that_cannot_take_part_says_why(inputs, monkeypatch):
    with pytest.raises(PeerMissing, match=r"nowhere is not installed: pip install 'ptn\[bench\]'"):
        samplers.need("nowhere.at.all")
    images, origin, grid = (value.to("meta") if isinstance(value, torch.Tensor) else value for value in inputs)
    for make in sampling.IMAGE_PEERS.values():
        with pytest.raises(PeerMissing, match=r"CPUs only|is not installed"):
            make(images, origin, grid)
