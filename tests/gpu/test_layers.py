"""Tests of layers on a GPU: fused blocks in all precisions, and origins that are not finite."""

import copy

import pytest
import torch

import ptn
from ptn.layers import Blocks, fuse_blocks, random_layers

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

CONVOLUTIONS = torch.nn.Conv2d, torch.nn.Conv3d
NETWORKS = {
    "ptn_b": 28,
    "ptn_s": 42,
    "pcnn_b": 96,
    "ccnn_b": 42,
    "ptn_l": 28,
    "stn_s": 28,
    "resnet32": 32,
    "ptn_resnet32": 32,
}
VOXEL_NETWORKS = {"cylindrical": 16, "cylindrical_l": 24, "ccnn_3d": 15}

CASES = [(name, precision) for name in NETWORKS for precision in ("ieee", "tf32", "bf16")]
CASES += [(name, "bf16") for name in VOXEL_NETWORKS]


def make_model(name):
    return ptn.create_model(name, image_size=(NETWORKS | VOXEL_NETWORKS)[name]).cuda().train()


def chains(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, Blocks)}


def relative_error(result, expected):
    result, expected = result.detach().double(), expected.detach().double()
    return float((result - expected).norm() / expected.norm().clamp(min=1e-12))


def results(chain, images, grad):
    """The output of a chain, its gradients and its running statistics, by name.

    Biases of convolutions are left out: batch norm cancels them, and their gradients are rounding only.
    """
    images = images.clone().requires_grad_()
    output = chain(images)
    output.backward(grad.to(output))
    biases = {f"{name}.bias" for name, module in chain.named_modules() if isinstance(module, CONVOLUTIONS)}
    tensors = {"output": output, "input": images.grad} | dict(chain.named_buffers())
    return tensors | {name: p.grad for name, p in chain.named_parameters() if name not in biases}


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_each_chain_agrees_with_float64(name, precision):
    """At least half as well as PyTorch's own kernels; with TF32, which those may leave unused, as in bfloat16.

    A value near zero that rounding moves to the other side of a ReLU changes gradients by far more than rounding,
    so no fixed tolerance separates errors from chance; a pixel missing at the border would be 3% or more.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    size = (NETWORKS | VOXEL_NETWORKS)[name]
    for where, chain in chains(make_model(name)).items():
        first = next(m for m in chain.modules() if isinstance(m, CONVOLUTIONS))
        exact, plain = copy.deepcopy(chain).double(), copy.deepcopy(chain)
        fuse_blocks(chain)
        images = torch.randn(16, first.in_channels, *(size,) * len(first.kernel_size), device="cuda")
        grad = torch.randn_like(plain.eval()(images).detach())
        plain.train()
        expected = results(exact, images.double(), grad)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            ours = results(chain, images, grad)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision != "ieee"):
            theirs = results(plain, images, grad)
        errors = {n: (relative_error(ours[n], t), relative_error(theirs[n], t)) for n, t in expected.items()}
        assert errors["output"][0] < {"ieee": 1e-5, "tf32": 1e-2, "bf16": 6e-2}[precision], where
        assert {n: pair for n, pair in errors.items() if not pair[0] < max(2 * pair[1], 5e-3)} == {}, where


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_inputs_give_equal_bits_and_evaluation_agrees(name):
    torch.backends.cudnn.allow_tf32 = False
    model = make_model(name)
    fuse_blocks(model)
    images = torch.rand(64, *model.input_shape, device="cuda")
    labels = torch.arange(64, device="cuda") % 10
    for layer in random_layers(model):
        layer.noise = torch.rand(layer.noise_shape(64), device="cuda")
    state = copy.deepcopy(model.state_dict())
    grads = []
    for _ in range(2):
        model.load_state_dict(state)
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images).float(), labels).backward()
        grads.append({n: p.grad for n, p in model.classifier.named_parameters() if p.grad is not None})
    assert [n for n in grads[0] if not torch.equal(grads[0][n], grads[1][n])] == []
    model.eval()
    with torch.no_grad():
        fused = model(images)
        for chain in chains(model).values():
            chain.fused = False
        assert relative_error(fused, model(images)) < 1e-3


@pytest.mark.filterwarnings("default")
def test_a_fused_network_compiles_into_one_graph_and_stays_fused():
    model = make_model("ptn_b")
    fuse_blocks(model)
    images = torch.rand(32, 1, 28, 28, device="cuda")
    for layer in random_layers(model):
        layer.noise = torch.rand(layer.noise_shape(32), device="cuda")
    assert relative_error(torch.compile(model, fullgraph=True, dynamic=False)(images), model(images)) < 1e-3
    operators = []

    def record(graph, inputs):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(model, backend=record, fullgraph=True, dynamic=False)(images)
    assert sum("block_chain" in name for name in operators) == 2


@pytest.mark.parametrize("how", ["eager", "compiled", "captured"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.filterwarnings("default")
def test_samples_around_an_origin_that_is_not_finite_are_nan(dims, how):
    """Only the second image has a predicted origin that is not finite."""
    if dims == 2:
        layer = ptn.PolarTransformer(ptn.PolarGrid(16, 16), origin="learned", in_chans=1)
    else:
        layer = ptn.CylindricalTransformer(ptn.PolarGrid(16, 16), ptn.layers.default_predictor(16))
    layer.cuda().eval()
    images = torch.rand(2, 1, *(16,) * dims, device="cuda")
    guide = images.clone()
    guide[1] = torch.nan
    with torch.no_grad():
        if how == "captured":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                layer(images, guide=guide)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                polar = layer(images, guide=guide)
            graph.replay()
        else:
            polar = (torch.compile(layer, fullgraph=True) if how == "compiled" else layer)(images, guide=guide)
    assert torch.isfinite(polar[0]).all()
    assert torch.isnan(polar[1]).all()
