"""Convolutions that wrap: equivariant to turns, compatible with torch's own, for any kernel."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ptn import InputError, WrapConv2d, WrapConv3d, wrap_pad
from ptn.layers import ChannelDropout, ConvBlock, ResidualBlock, make_conv


@given(
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    dilation=st.integers(1, 2),
    stride=st.integers(1, 3),
    turn=st.integers(0, 11),
)
@settings(max_examples=40, deadline=None)
def test_turning_the_input_turns_the_output(kernel, dilation, stride, turn):
    conv = WrapConv2d(2, 3, kernel, stride, dilation=dilation).double()
    x = torch.rand(1, 2, 12, 9, dtype=torch.float64)
    out = conv(x)
    assert torch.allclose(conv(x.roll(turn * stride, 2)), out.roll(turn, 2))
    if stride == 1:
        assert out.shape[2:] == x.shape[2:]


@pytest.mark.parametrize("padding", [0, 1, (3, 1), None])
def test_it_is_torchs_convolution_of_the_padded_image(padding):
    conv = WrapConv2d(4, 6, (7, 3), 2, padding, groups=2)
    plain = nn.Conv2d(4, 6, (7, 3), 2, groups=2)
    plain.load_state_dict(conv.state_dict())
    x = torch.rand(2, 4, 14, 10)
    pad = {0: (0, 0), 1: (1, 1), None: (3, 1)}.get(padding, padding)
    assert torch.allclose(conv(x), plain(wrap_pad(x, pad)), atol=1e-5)


def test_three_dimensions_wrap_the_angle_only():
    conv = WrapConv3d(1, 2, 3).double()
    plain = nn.Conv3d(1, 2, 3).double()
    plain.load_state_dict(conv.state_dict())
    x = torch.rand(1, 1, 6, 5, 4, dtype=torch.float64)
    assert torch.allclose(conv(x), plain(wrap_pad(x, 1)))
    assert torch.allclose(conv(x.roll(2, 2)), conv(x).roll(2, 2))


@pytest.mark.parametrize(
    "block",
    [
        lambda: ConvBlock(4, 6, stride=2, wrap=True),
        lambda: ConvBlock(4, 6, kernel=5, stride=(2, 1), wrap=True),
        lambda: ResidualBlock(4, 6, stride=2, wrap=True),
    ],
)
def test_blocks_are_equivariant_to_turns(block):
    layer = block().double().eval()
    x = torch.rand(2, 4, 16, 10, dtype=torch.float64)
    assert torch.allclose(layer(x.roll(6, 2)), layer(x).roll(3, 2), atol=1e-12)


def test_without_wrapping_a_turn_shows_at_the_seam():
    layer = ConvBlock(4, 6).double().eval()
    x = torch.rand(2, 4, 16, 10, dtype=torch.float64)
    assert (layer(x.roll(6, 2)) - layer(x).roll(6, 2)).abs().max() > 1e-3


def test_residual_shortcut_keeps_what_the_convolutions_do_not_change():
    block = ResidualBlock(2, 4, stride=2).eval()
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(1, 2, 6, 6)
    out = block(x)
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])
    assert out[:, [0, 3]].abs().max() == 0


def test_residual_blocks_of_volumes_shorten_every_axis_and_wrap_the_first():
    block = ResidualBlock(2, 4, stride=2, wrap=True, dims=3).double().eval()
    x = torch.rand(1, 2, 8, 6, 4, dtype=torch.float64)
    out = block(x)
    assert out.shape == (1, 4, 4, 3, 2)
    assert torch.allclose(block(x.roll(2, 2)), out.roll(1, 2), atol=1e-12)
    nn.init.zeros_(block.norm2.weight)
    assert torch.equal(block(x)[:, 1:3], x[:, :, ::2, ::2, ::2])


def test_convolutions_start_as_he_says():
    weight = make_conv(64, 256).weight
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_even_kernels_are_refused_where_the_size_must_stay():
    with pytest.raises(InputError, match="kernel must be an odd number"):
        make_conv(1, 1, kernel=4)


def test_dropout_drops_whole_maps_in_training_only():
    layer = ChannelDropout(20, 0.25)
    x = torch.ones(200, 20, 3, 3)
    out = layer(x)
    per_map = out.flatten(2)
    assert ((per_map == 0).all(2) | torch.isclose(per_map, torch.tensor(4 / 3)).all(2)).all()
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(layer.eval()(x), x)


def test_dropout_takes_the_noise_it_is_given():
    layer = ChannelDropout(3, 0.5)
    layer.noise = torch.tensor([[0.1, 0.6, 0.5], [0.9, 0.2, 0.49]])
    out = layer(torch.ones(2, 3, 2, 2))
    assert out[:, :, 0, 0].tolist() == [[0, 2, 2], [2, 0, 0]]


def test_dropout_of_everything_is_refused():
    with pytest.raises(InputError, match="dropout must be at least 0 and less than 1"):
        ChannelDropout(4, 1.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: WrapConv2d(1, 1, 3)(torch.rand(1, 8, 6)), "expected a batch of 2-D images"),
        (lambda: WrapConv3d(1, 1, 3)(torch.rand(1, 1, 8, 6)), "expected a batch of 3-D images"),
        (lambda: WrapConv2d(1, 1, 3, padding=(1,)), "padding must be a number or 2 numbers"),
        (lambda: WrapConv2d(1, 1, 3, padding="same"), "padding must be a number or 2 numbers"),
        (lambda: WrapConv2d(1, 1, 3, padding_mode="reflect"), "leave padding_mode out"),
    ],
)
def test_what_a_wrapping_convolution_cannot_do_is_an_error(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_its_padding_shows_when_it_is_printed():
    assert "wrapped=(2, 2)" in repr(WrapConv2d(1, 1, 5))
