"""measure_shift finds shifts that were put there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError
from ptn.geometry import measure_shift


@given(rows=st.floats(-7.5, 7.5), columns=st.floats(-8, 8))
@settings(max_examples=40, deadline=None)
def test_fractional_shifts_of_a_smooth_image_are_found(rows, columns):
    def draw(row, column):
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(32.0), indexing="ij")
        around = (y - row + 8) % 16 - 8
        return torch.exp(-(around**2 / 6 + (x - column) ** 2 / 12))[None, None].double()

    found = measure_shift(draw(5, 15), draw(5 + rows, 15 + columns))[0]
    assert found[0].item() == pytest.approx(rows, abs=0.1)
    assert found[1].item() == pytest.approx(columns, abs=0.1)


def test_what_enters_from_below_does_not_bias_the_shift():
    reference = torch.rand(1, 1, 8, 40)
    moved = torch.cat((torch.ones(1, 1, 8, 6), reference[..., :-6]), dim=-1)
    assert measure_shift(reference, moved)[0].tolist() == pytest.approx([0, 6], abs=0.2)


def test_shapes_must_agree():
    with pytest.raises(InputError, match="shapes differ"):
        measure_shift(torch.rand(1, 1, 8, 8), torch.rand(1, 1, 8, 9))
