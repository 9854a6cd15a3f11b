"""Devices, precisions and batch sizes."""

import pytest
import torch
from torch import nn

from ptn import InputError
from ptn.device import choose_device, default_batch, describe_device, placement, precision_of, set_float32

CPU = torch.device("cpu")


def switches():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("tf32", True), ("bf16", True)])
def test_a_precision_holds_inside_the_block_only(precision, tf32):
    before = switches()
    with precision_of(precision, CPU):
        assert switches() == (tf32, tf32)
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    assert switches() == before
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with pytest.raises(KeyError), precision_of(precision, CPU):
        raise KeyError
    assert switches() == before


@pytest.mark.filterwarnings("default")
def test_a_model_can_be_exported_after_tf32_is_disabled():
    before = switches()
    try:
        set_float32("fp32")
        program = torch.export.export(nn.Conv2d(1, 1, 1), (torch.rand(1, 1, 2, 2),))
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    assert program is not None


def test_placement_is_that_of_the_first_floating_point_tensor():
    assert placement(nn.ReLU()) == (CPU, torch.float32)
    assert placement(nn.Linear(1, 1).double()) == (CPU, torch.float64)
    assert placement(nn.BatchNorm2d(1, affine=False).half()) == (CPU, torch.float16)
    with torch.device("meta"):
        assert placement(nn.Linear(1, 1))[0].type == "meta"


def test_large_images_come_in_smaller_batches():
    shapes = [(1, 28, 28), (3, 32, 32), (1, 32, 32, 32), (3, 4000, 6000)]
    assert [default_batch(shape) for shape in shapes] == [1000, 1000, 128, 1]


@pytest.mark.parametrize(("name", "message"), [("gpu", "unknown device 'gpu'"), ("cuda:99", "torch reports")])
def test_a_device_that_does_not_exist_is_named(name, message):
    with pytest.raises(InputError, match=message):
        choose_device(name)


def test_auto_is_the_gpu_if_there_is_one():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu") == CPU
    assert describe_device(CPU).endswith(f"(CPU, {torch.get_num_threads()} threads)")
