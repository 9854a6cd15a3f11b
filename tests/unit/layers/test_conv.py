"""Tests of wrapping convolutions, blocks, and layers that are random in training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ptn import InputError, WrapConv2d, WrapConv3d, wrap_pad
from ptn.layers import ChannelDropout, ConvBlock, ResidualBlock, make_conv, mean_response, random_layers


@given(
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    dilation=st.integers(1, 2),
    stride=st.integers(1, 3),
    rows=st.integers(0, 11),
)
@settings(max_examples=40, deadline=None)
def test_rolling_the_input_rolls_the_output(kernel, dilation, stride, rows):
    conv = WrapConv2d(2, 3, kernel, stride, dilation=dilation).double()
    x = torch.rand(1, 2, 12, 9, dtype=torch.float64)
    out = conv(x)
    assert torch.allclose(conv(x.roll(rows * stride, 2)), out.roll(rows, 2))
    if stride == 1:
        assert out.shape[2:] == x.shape[2:]


@pytest.mark.parametrize(
    ("wrapping", "plain", "kernel", "margins"),
    [
        (WrapConv2d, nn.Conv2d, (7, 3), (3, 1)),
        (WrapConv2d, nn.Conv2d, (4, 2), ((1, 2), (0, 1))),
        (WrapConv3d, nn.Conv3d, (3, 5, 1), (1, 2, 0)),
    ],
)
def test_equals_the_convolution_of_the_padded_image(wrapping, plain, kernel, margins):
    conv, reference = wrapping(4, 6, kernel, 2, groups=2), plain(4, 6, kernel, 2, groups=2)
    reference.load_state_dict(conv.state_dict())
    x = torch.rand(2, 4, *(8, 6, 7)[: len(kernel)])
    assert torch.allclose(conv(x), reference(wrap_pad(x, margins)), atol=1e-5)


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        (lambda: ConvBlock(4, 6, stride=2, wrap=True), (16, 10)),
        (lambda: ConvBlock(4, 6, kernel=5, stride=(2, 1), wrap=True), (16, 10)),
        (lambda: ResidualBlock(4, 6, stride=2, wrap=True), (16, 10)),
        (lambda: ResidualBlock(4, 6, stride=2, wrap=True, dims=3), (8, 6, 4)),
    ],
)
def test_blocks_are_equivariant_to_rolls(block, shape):
    layer = block().double().eval()
    x = torch.rand(2, 4, *shape, dtype=torch.float64)
    assert torch.allclose(layer(x.roll(6, 2)), layer(x).roll(3, 2), atol=1e-12)


@pytest.mark.parametrize("dims", [2, 3])
def test_residual_shortcut_is_the_strided_input_in_the_middle_channels(dims):
    block = ResidualBlock(2, 4, stride=2, dims=dims).eval()
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(1, 2, *(6,) * dims)
    out = block(x)
    assert torch.equal(out[:, 1:3], x[(..., *(slice(None, None, 2),) * dims)])
    assert out[:, [0, 3]].abs().max() == 0


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize(("dims", "size"), [(2, (7, 5)), (2, (3, 1)), (3, (6, 5, 4))])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_mean_response_is_the_mean_of_the_convolution(dims, size, kernel, wrap):
    conv = make_conv(3, 4, kernel=kernel, wrap=wrap, dims=dims).double()
    nn.init.normal_(conv.bias)
    x = torch.rand(2, 3, *size, dtype=torch.float64)
    assert torch.allclose(mean_response(conv, x), conv(x).flatten(2).mean(dim=2))


def test_dropout_drops_whole_maps_in_training_only():
    layer = ChannelDropout(20, 0.25)
    x = torch.ones(200, 20, 3, 3)
    out = layer(x)
    per_map = out.flatten(2)
    assert ((per_map == 0).all(2) | torch.isclose(per_map, torch.tensor(4 / 3)).all(2)).all()
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(layer.eval()(x), x)


def test_noise_that_is_set_is_used():
    model = nn.Sequential(nn.Identity(), ChannelDropout(3, 0.5))
    (layer,) = random_layers(model)
    layer.noise = torch.tensor([[0.1, 0.6, 0.5], [0.9, 0.2, 0.49]])
    out = model(torch.ones(2, 3, 2, 2))
    assert out[:, :, 0, 0].tolist() == [[0, 2, 2], [2, 0, 0]]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: WrapConv2d(1, 1, 3)(torch.rand(1, 8, 6)), "2-D"),
        (lambda: WrapConv2d(1, 1, 3, padding=1), "padding"),
        (lambda: make_conv(1, 1, kernel=4), "odd"),
        (lambda: ChannelDropout(4, 1.0), "dropout"),
    ],
)
def test_invalid_options_and_inputs_are_refused(call, word):
    with pytest.raises(InputError, match=word):
        call()
