"""`for_inference`: the same answers, sooner, from a copy."""

import copy

import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

import ptn
from ptn import InputError
from ptn.layers import ConvBlock
from ptn.layers.blocks import Blocks
from ptn.models import InferenceModel, for_inference
from ptn.models.inference import fold_norms


def trained(name, **settings):
    """A model whose batch norms have seen something."""
    torch.manual_seed(3)
    model = ptn.create_model(name, num_classes=4, **settings)
    model.set_normalization([0.2], [0.4])
    for _ in range(3):
        model(torch.rand(8, *model.input_shape))
    for norm in model.modules():
        if isinstance(norm, _BatchNorm):
            torch.nn.init.normal_(norm.weight, 1, 0.2)
            torch.nn.init.normal_(norm.bias, 0, 0.2)
    return model.eval()


def same(one, other, tolerance=1e-5):
    return one.shape == other.shape and (one - other).abs().max() <= tolerance * max(1.0, other.abs().max())


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_gives_the_same_logits_and_explanation(name):
    model = trained(name, image_size=16)
    quick = for_inference(model)
    quick.at_once = 2  # so that five images pass in three parts
    images = torch.rand(5, *model.input_shape)
    with torch.no_grad():
        logits = model(images)
    assert same(quick(images), logits)
    ours, theirs = quick.explain(images), model.explain(images)
    for field in ("logits", "feature_maps", "origins", "heatmaps", "polar_images"):
        one, other = getattr(ours, field), getattr(theirs, field)
        assert (one is None) == (other is None)
        assert one is None or same(one, other), field


def test_no_batch_norm_is_left_in_any_network():
    for name in ptn.list_models():
        quick = for_inference(ptn.create_model(name, image_size=16))
        assert not [module for module in quick.modules() if isinstance(module, _BatchNorm)], name


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("rows", [12, 101])
def test_a_chain_that_wraps_is_its_blocks_one_by_one(rows, kernel, channels_last):
    """Where maps are tall, and at the far end, where they have fewer rows than a kernel reaches over."""
    blocks = Blocks(*(ConvBlock(4, 4, kernel=kernel, stride=stride, wrap=True) for stride in (1, 2, 2, 2, 2)))
    model = torch.nn.Sequential(blocks).eval()
    chain = fold_norms(model)[0]
    images = torch.randn(2, 4, rows, 16)
    if channels_last:
        images = images.to(memory_format=torch.channels_last)
    given, seen = images.clone(), []
    with torch.no_grad():
        together = chain(images)
        for block in chain:
            block.register_forward_hook(lambda block, inputs, output: seen.append(output))
        assert same(chain(images), together, 1e-6)
        assert same(together, model(images))
    assert len(seen) == 5
    assert torch.equal(images, given)


def test_who_watches_a_part_of_a_chain_sees_it():
    chain = fold_norms(torch.nn.Sequential(Blocks(*(ConvBlock(2, 2, wrap=True) for _ in range(3)))))[0]
    seen = []
    for block in chain:
        block.conv.register_forward_hook(lambda conv, inputs, output: seen.append(output))
        block.register_forward_pre_hook(lambda block, inputs: seen.append(inputs))
    with torch.no_grad():
        chain(torch.randn(1, 2, 8, 8))
    assert len(seen) == 6


def test_a_chain_can_be_mapped():
    chain = fold_norms(torch.nn.Sequential(Blocks(*(ConvBlock(2, 2, wrap=True) for _ in range(2)))))[0]
    images = torch.randn(3, 1, 2, 8, 8)
    with torch.no_grad():
        assert same(torch.func.vmap(chain)(images), torch.stack([chain(each) for each in images]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_answered_in_half_precision(dtype):
    model = trained("ptn_s").to(dtype)
    images = torch.rand(2, 1, 28, 28, dtype=dtype)
    logits = for_inference(model)(images)
    assert logits.dtype == dtype
    with torch.no_grad():
        assert same(logits, model(images), tolerance=0.1)


def test_a_chain_gives_gradients_to_who_asks_for_them():
    chain = fold_norms(torch.nn.Sequential(Blocks(*(ConvBlock(2, 2, wrap=True) for _ in range(2)))))[0]
    images = torch.randn(1, 2, 8, 8, requires_grad=True)
    chain(images).sum().backward()
    assert images.grad.abs().sum() > 0


def test_in_double_precision_it_is_the_same_to_its_rounding():
    model = trained("ptn_b").double()
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    assert same(for_inference(model)(images), model(images), 1e-13)


def test_a_given_origin_goes_with_its_image():
    model = trained("ptn_s")
    quick = for_inference(model)
    quick.at_once = 2
    images, origin = torch.rand(5, 1, 28, 28), torch.rand(5, 2) - 0.5
    assert same(quick(images, origin=origin), model(images, origin=origin))


def test_the_model_itself_stays_as_it_is():
    model = trained("ptn_s").train()
    before = copy.deepcopy(model.state_dict())
    quick = for_inference(model)
    quick(torch.rand(2, 1, 28, 28))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with torch.no_grad():
        model.classifier.head.bias.add_(1)
    assert not torch.equal(quick.model.classifier.head.bias, model.classifier.head.bias)


def test_parts_are_of_equal_length_and_none_is_too_long():
    quick = for_inference(ptn.create_model("ptn_s"))
    quick.at_once = 100
    lengths = [part.stop - part.start for part in quick._parts(torch.empty(256, 1, 28, 28))]
    assert lengths == [86, 86, 86]
    assert len(list(quick._parts(torch.empty(100, 1, 28, 28)))) == 1


def test_no_images_give_no_answers():
    quick = for_inference(ptn.create_model("ptn_s", num_classes=7))
    assert quick(torch.empty(0, 1, 28, 28)).shape == (0, 7)


def test_large_images_pass_fewer_at_a_time():
    small, large = (for_inference(ptn.create_model("ptn_s", image_size=size)).at_once for size in (28, 224))
    assert small > 8 * large >= 8


def test_gradients_and_training_are_over():
    quick = for_inference(ptn.create_model("ptn_s"))
    assert not quick(torch.rand(2, 1, 28, 28)).requires_grad
    with pytest.raises(InputError, match="train the one it was made from"):
        quick.train()
    assert isinstance(quick.eval(), InferenceModel)


def test_what_is_not_a_network_of_ours_is_refused():
    with pytest.raises(InputError, match="got Linear"):
        for_inference(torch.nn.Linear(2, 2))
