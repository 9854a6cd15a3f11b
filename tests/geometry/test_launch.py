"""A kernel is started through Triton once, and directly from then on, where that is the same."""

import pytest
import torch

pytest.importorskip("triton")

from triton.compiler import CompiledKernel

from ptn.geometry.launch import Plan


class Kernel:
    """Stands for a kernel of Triton: notes what it is started with."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, programs):
        def start(*arguments, num_warps):
            self.seen.append((programs, arguments, num_warps))
            return Compiled()

        return start


class Compiled(CompiledKernel):
    seen = []  # noqa: RUF012

    def __init__(self):
        pass

    def __getitem__(self, programs):
        return lambda *arguments: self.seen.append((programs, arguments))


def test_from_the_second_time_on_addresses_are_handed_over_directly():
    kernel, tensor = Kernel(), torch.zeros(8)
    plan = Plan(kernel, (3, 2), ((1, 2),), {"TAPS": 2}, warps=4)
    Compiled.seen.clear()
    plan.start(tensor, None)
    plan.start(tensor, None)
    assert kernel.seen == [((3, 2), (tensor, None, (1, 2), 2), 4)]
    assert Compiled.seen == [((3, 2, 1), (tensor.data_ptr(), 0, (1, 2), 2))]


def test_a_tensor_that_begins_between_multiples_of_16_bytes_goes_through_triton():
    kernel, tensor = Kernel(), torch.zeros(8)
    plan = Plan(kernel, (1, 1), (), {}, warps=4)
    Compiled.seen.clear()
    plan.start(tensor[1:])
    plan.start(tensor[1:])
    assert len(kernel.seen) == 2
    plan.start(tensor)
    plan.start(tensor)
    plan.start(tensor[1:])
    assert len(kernel.seen) == 4
    assert len(Compiled.seen) == 1


def test_without_programs_nothing_is_started():
    kernel = Kernel()
    Plan(kernel, (0, 1), (), {}, warps=4).start(torch.zeros(0))
    assert kernel.seen == []
