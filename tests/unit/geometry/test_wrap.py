"""wrap_pad: circular along the angle, zeros elsewhere, for any amount."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError, wrap_pad
from ptn.geometry import wrap_angle

amounts = st.tuples(st.integers(0, 9), st.integers(0, 9))


@given(angles=st.integers(1, 5), radii=st.integers(1, 5), angle=amounts, radius=amounts)
@settings(max_examples=50, deadline=None)
def test_it_equals_numpys_wrap_and_zero_padding(angles, radii, angle, radius):
    x = torch.rand(2, 3, angles, radii)
    expected = np.pad(x.numpy(), ((0, 0), (0, 0), angle, (0, 0)), mode="wrap")
    expected = np.pad(expected, ((0, 0), (0, 0), (0, 0), radius))
    assert np.array_equal(wrap_pad(x, (angle, radius)).numpy(), expected)


def test_volumes_wrap_only_the_angle():
    x = torch.rand(1, 2, 4, 3, 5)
    padded = wrap_pad(x, (2, 1, (0, 3)))
    assert padded.shape == (1, 2, 8, 5, 8)
    assert torch.equal(padded[:, :, 2:6, 1:4, :5], x)
    assert torch.equal(padded[:, :, :2, 1:4, :5], x[:, :, 2:])
    assert padded[:, :, :, 0].abs().max() == 0
    assert padded[..., 5:].abs().max() == 0


def test_a_negative_amount_crops():
    x = torch.rand(1, 2, 5, 3)
    assert torch.equal(wrap_angle(x, (2, -2)), x.roll(2, dims=2))
    assert torch.equal(wrap_angle(x, (-1, 1)), x.roll(-1, dims=2))
    assert torch.equal(wrap_angle(x, (1, -3)), x[:, :, [4, 0, 1]])


@pytest.mark.parametrize("angle", [(2, 0), (0, 3), (4, 4), (6, 1)])
def test_first_and_second_gradients_are_correct(angle):
    x = torch.rand(2, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: wrap_pad(x, (angle, 1)), x)
    assert torch.autograd.gradgradcheck(lambda x: wrap_pad(x, (angle, 1)).square(), x)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # from torch, at its first jvp
def test_transforms_of_torch_func_and_compile_agree_with_autograd():
    x, weight = torch.rand(3, 2, 4, 3), torch.rand(2, 7, 3)

    def loss(one):
        return (wrap_pad(one[None], ((2, 1), 0))[0] * weight).sum()

    x.requires_grad_()
    sum(map(loss, x)).backward()
    assert torch.allclose(torch.vmap(torch.func.grad(loss))(x.detach()), x.grad)
    _, pushed = torch.func.jvp(loss, (x[0].detach(),), (torch.ones(2, 4, 3),))
    assert torch.allclose(pushed, x.grad[0].sum())
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    one = x[0].detach().requires_grad_()
    compiled(one).backward()
    assert torch.allclose(one.grad, x.grad[0])


@pytest.mark.parametrize(("shape", "pad", "word"), [((4, 3), 1, "angles"), ((1, 1, 4, 3), (1, 1, 1), "2 amounts")])
def test_bad_padding_is_refused(shape, pad, word):
    with pytest.raises(InputError, match=word):
        wrap_pad(torch.rand(shape), pad)
