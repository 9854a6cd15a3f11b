"""Tests of converted layers: on a circle they equal the original layer on a repetition of the circle."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ptn
from ptn.layers.convert import angular_stride, wrap_layer

ANGLES, RADII = 24, 19


def check_wraps(layer, channels=4, *arguments):
    """Compares a converted layer with the original on a polar image that is repeated along the angle."""
    polar = torch.randn(2, channels, ANGLES, RADII, dtype=torch.float64)
    layer = layer.double().eval()
    whole = layer(torch.cat([polar] * 5, dim=2), *arguments)
    rows = ANGLES // angular_stride(layer)
    state = layer.state_dict()
    assert wrap_layer(layer)
    around = layer(polar, *arguments)
    assert around.shape[2] == rows
    assert torch.allclose(around, whole[:, :, 2 * rows : 3 * rows], atol=1e-12)
    assert list(layer.state_dict()) == list(state)
    for clone in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(clone(polar, *arguments), around)
    assert wrap_layer(layer)
    assert torch.equal(layer(polar, *arguments), around)


@given(
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3])),
    padding=st.one_of(st.just("valid"), st.integers(0, 4), st.tuples(st.integers(0, 5), st.integers(0, 3))),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groups=st.sampled_from([1, 2, 4]),
)
@settings(max_examples=40, deadline=None)
def test_convolutions_wrap(kernel, stride, padding, dilation, groups):
    check_wraps(nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(("kernel", "padding"), [(5, (1, 3)), (4, "same"), (3, "same")])
def test_other_padding_modes_are_kept_along_the_radius(mode, kernel, padding):
    check_wraps(nn.Conv2d(4, 4, kernel, padding=padding, padding_mode=mode, dilation=2))


@given(
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.one_of(st.none(), st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 3))),
    share=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)),
    ceil_mode=st.booleans(),
    counted=st.booleans(),
    maximum=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_poolings_wrap(kernel, stride, share, ceil_mode, counted, maximum):
    if stride is None and ANGLES % kernel[0]:
        kernel = (4, kernel[1])
    padding = tuple(int(k * s) for k, s in zip(kernel, share, strict=True))
    if maximum:
        check_wraps(nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode))
    else:
        check_wraps(nn.AvgPool2d(kernel, stride, padding, ceil_mode, counted))


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(3, 2, 1, dilation=2),
        nn.AvgPool2d(3, 1, 1, divisor_override=5),
        nn.LPPool2d(2, 3, 2),
        nn.LPPool2d(2, 4),
        ptn.WrapConv2d(4, 4, 3, 2),
        nn.ZeroPad2d((-1, 1, -1, 1)),
        nn.ConstantPad2d((1, 2, 3, 0), 0.5),
        nn.ReflectionPad2d((1, 1, 2, 2)),
        nn.ReplicationPad2d((0, 1, 0, 1)),
    ],
    ids=str,
)
def test_other_layers_wrap(layer):
    check_wraps(layer)


def test_parametrized_convolutions_and_subclasses_wrap():
    class Halved(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(x, self.weight / 2, self.bias, self.stride, self.padding, self.dilation, self.groups)

    layer = Halved(4, 4, 3, padding=1).double()
    polar = torch.randn(1, 4, ANGLES, RADII, dtype=torch.float64)
    wrap_layer(layer)
    expected = F.conv2d(ptn.wrap_pad(polar, 1), layer.weight / 2, layer.bias)
    assert torch.allclose(layer(polar), expected)

    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3, padding=1)).double()
    wrap_layer(normed)
    expected = F.conv2d(ptn.wrap_pad(polar, 1), normed.weight, normed.bias)
    assert torch.allclose(normed(polar), expected)


def test_poolings_that_return_indices_are_refused():
    with pytest.raises(ptn.InputError, match="returns indices"):
        wrap_layer(nn.MaxPool2d(2, return_indices=True))


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), (5, 3)])
def test_convolutions_and_poolings_of_timm_wrap(timm, kernel, stride):
    from timm.layers.pool2d_same import AvgPool2dSame, MaxPool2dSame

    layers = timm.layers
    check_wraps(layers.Conv2dSame(4, 4, kernel, stride, dilation=2))
    check_wraps(layers.Conv2dSame(4, 4, (kernel, 3), (stride, 2)))
    check_wraps(layers.StdConv2dSame(4, 4, kernel, stride))
    check_wraps(layers.ScaledStdConv2dSame(4, 4, kernel, stride))
    check_wraps(MaxPool2dSame(kernel, stride))
    check_wraps(AvgPool2dSame(kernel, stride))
    check_wraps(AvgPool2dSame((kernel, 2), (stride, 3), count_include_pad=False))
    check_wraps(layers.BlurPool2d(4, filt_size=kernel, stride=stride))
    check_wraps(layers.BlurPool2d(filt_size=kernel, stride=stride, pad_mode="constant"))
    routing = torch.rand(2, 3, dtype=torch.float64)
    for padding in ("", "same"):
        check_wraps(layers.CondConv2d(4, 6, kernel, stride, padding, num_experts=3), 4, routing)


def test_each_part_of_a_mixed_convolution_of_timm_wraps(timm):
    mixed = timm.layers.MixedConv2d(8, 8, [3, 5, 7], stride=2, depthwise=True, padding="same").double()
    polar = torch.randn(1, 8, ANGLES, RADII, dtype=torch.float64)
    whole = mixed(torch.cat([polar] * 3, dim=2))
    assert sum(wrap_layer(layer) for layer in mixed.modules()) == 3
    assert torch.allclose(mixed(polar), whole[:, :, ANGLES // 2 : ANGLES], atol=1e-12)
