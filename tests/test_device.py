"""Devices, precisions and batches: what they are called, and that they leave nothing behind."""

import pytest
import torch
from torch import nn

import ptn
from ptn.device import (
    choose_device,
    default_batch,
    placement,
    precision_of,
    set_float32,
)
from ptn.errors import InputError
from ptn.models import InferenceModel
from ptn.models.inference import prepare_for_inference
from ptn.models.networks import inferring

CPU = torch.device("cpu")


def switches():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("precision", "inside"), [("fp32", False), ("tf32", True), ("bf16", True)])
def test_a_precision_holds_inside_the_block_and_not_after_it(precision, inside):
    before = switches()
    with precision_of(precision, CPU):
        assert switches() == (inside, inside)
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    assert switches() == before
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_model_can_be_exported_after_training_set_the_precision(precision):
    set_float32(precision)
    program = torch.export.export(nn.Conv2d(1, 1, 1), (torch.rand(1, 1, 2, 2),))
    assert program.module()(torch.rand(1, 1, 2, 2)).shape == (1, 1, 2, 2)


def test_every_module_gets_its_own_mode_back():
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Sequential(nn.Dropout(), nn.ReLU()))
    model.train()
    model[0].eval()  # a frozen norm in a model that trains
    modes = [module.training for module in model.modules()]
    assert modes == [True, False, True, True, True]
    with inferring(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == modes


def test_what_fails_inside_leaves_modes_and_precision_as_they_were():
    model, before = nn.ReLU().train(), switches()
    with pytest.raises(KeyError), inferring(model), precision_of("tf32", CPU):
        raise KeyError
    assert model.training
    assert not torch.is_inference_mode_enabled()
    assert switches() == before


def test_a_model_says_where_it_is_and_what_numbers_it_has():
    assert placement(nn.ReLU()) == (CPU, torch.float32)
    assert placement(nn.Linear(1, 1).double()) == (CPU, torch.float64)
    assert placement(nn.BatchNorm2d(1, affine=False).half()) == (CPU, torch.float16)
    with torch.device("meta"):
        assert placement(nn.Linear(1, 1))[0].type == "meta"


def test_large_images_come_in_smaller_batches():
    assert default_batch((1, 28, 28)) == 1000
    assert default_batch((3, 32, 32)) == 1000
    assert default_batch((1, 32, 32, 32)) == 128
    assert default_batch((3, 4000, 6000)) == 1


def test_a_device_that_is_not_there_is_named():
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        choose_device("gpu")
    with pytest.raises(InputError, match="no device 'cuda:99' here: torch sees"):
        choose_device("cuda:99")


def test_an_unknown_precision_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'bf16'"), precision_of("fp16", CPU):
        pass


def test_on_a_cpu_our_networks_are_made_ready_and_others_left_alone():
    assert isinstance(prepare_for_inference(ptn.create_model("ptn_s")), InferenceModel)
    assert isinstance(prepare_for_inference(ptn.create_model("ptn_cnn_b")), InferenceModel)
    other, elsewhere = nn.Linear(2, 2), ptn.create_model("ptn_s").to("meta")
    assert prepare_for_inference(other) is other
    assert prepare_for_inference(elsewhere) is elsewhere
