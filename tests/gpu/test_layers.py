"""The fused chain of blocks on a GPU: against float64, under autocast and compiled, and equal bit for bit."""

import copy

import pytest
import torch

import ptn
from ptn.layers import fuse_blocks
from ptn.layers import Blocks

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

CONVOLUTIONS = torch.nn.Conv2d, torch.nn.Conv3d
NETWORKS = {
    "ptn_b": 28,
    "ptn_b two_stream": 28,
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


def create(name):
    """A network by its name and options, and the size of its images or voxels."""
    model, *options = name.split()
    size = (NETWORKS | VOXEL_NETWORKS)[name]
    return ptn.create_model(model, image_size=size, **dict.fromkeys(options, True)), size


def gradients(model, images, labels):
    model.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(images).float(), labels).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def chains(model):
    return [(name, module) for name, module in model.named_modules() if isinstance(module, Blocks)]


def apart(found, wanted):
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))


def outcome(chain, images, grad):
    """The output of a chain, its gradients and its running averages, by name.

    The bias of a convolution is left out: the norm after it takes it away, its gradient is nothing but rounding.
    """
    given = images.clone().requires_grad_()
    output = chain(given)
    output.backward(grad.to(output))
    biases = {f"{name}.bias" for name, module in chain.named_modules() if isinstance(module, CONVOLUTIONS)}
    found = {"output": output, "input": given.grad} | dict(chain.named_buffers())
    return found | {name: p.grad for name, p in chain.named_parameters() if name not in biases}


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_each_chain_agrees_with_float64(name, precision):
    """At least half as well as PyTorch's own kernels do; with TF32, which those may leave unused, as in bfloat16.

    A value near zero that rounding takes to the other side of a ReLU changes gradients by far more than rounding
    does, so no fixed tolerance tells an error from chance; a pixel left out at the border would be 3% off or more.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    model, size = create(name)
    model.cuda().train()
    for where, chain in chains(model):
        first = next(m for m in chain.modules() if isinstance(m, CONVOLUTIONS))
        exact, plain = copy.deepcopy(chain).double(), copy.deepcopy(chain)
        fuse_blocks(chain)
        images = torch.randn(16, first.in_channels, *(size,) * len(first.kernel_size), device="cuda")
        grad = torch.randn_like(plain.eval()(images).detach())
        plain.train()
        wanted = outcome(exact, images.double(), grad)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            ours = outcome(chain, images, grad)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision != "ieee"):
            theirs = outcome(plain, images, grad)
        apart_by = {n: (apart(ours[n], wanted[n]), apart(theirs[n], wanted[n])) for n in wanted}
        assert apart_by["output"][0] < {"ieee": 1e-5, "tf32": 1e-2, "bf16": 6e-2}[precision], where
        assert {n: (a, b) for n, (a, b) in apart_by.items() if not a < max(2 * b, 5e-3)} == {}, where


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_inputs_give_equal_bits_and_evaluation_agrees(name):
    torch.backends.cudnn.allow_tf32 = False
    model, size = create(name)
    model.cuda().train()
    fuse_blocks(model)
    images, labels = torch.rand(64, 1, size, size, device="cuda"), torch.arange(64, device="cuda") % 10
    for random in ptn.layers.random_layers(model):
        random.noise = torch.rand(random.noise_shape(64), device="cuda")
    state = copy.deepcopy(model.state_dict())
    first = gradients(model, images, labels)
    model.load_state_dict(state)
    again = gradients(model, images, labels)
    assert [
        n for n in first if n.startswith(("classifier", "cartesian")) and not torch.equal(first[n], again[n])
    ] == []
    model.eval()
    with torch.no_grad():
        ours = model(images)
        fuse_blocks(model, False)
        assert apart(ours, model(images)) < 1e-3


@pytest.mark.parametrize("two_stream", [False, True])
@pytest.mark.filterwarnings("default")
def test_it_compiles_into_one_graph(two_stream):
    model = ptn.create_model("ptn_b", two_stream=two_stream).cuda().train()
    fuse_blocks(model)
    images = torch.rand(32, 1, 28, 28, device="cuda")
    for random in ptn.layers.random_layers(model):
        random.noise = torch.rand(random.noise_shape(32), device="cuda")
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    assert apart(compiled(images), model(images)) < 1e-3


def test_compiled_it_is_still_fused():
    chain = chains(ptn.create_model("ptn_b").cuda().train())[0][1]
    fuse_blocks(chain)
    operators = []

    def look(graph, inputs):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(chain, backend=look, fullgraph=True)(torch.rand(8, 1, 28, 28, device="cuda"))
    assert any("block_chain" in name for name in operators)
