"""The fused chain of 3-D blocks against the blocks themselves in float64, on the CPU by Triton's interpreter."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import ptn
from ptn.layers import Blocks, ConvBlock, ResidualBlock, fuse_blocks

pytest.importorskip("triton", reason="triton is not installed")

from ptn.layers import fused_ops
from ptn.layers.fused_ops import can_run, can_fuse, run_blocks

pytestmark = pytest.mark.usefixtures("_poisoned")


def make_chain(*blocks: nn.Module) -> Blocks:
    """A chain whose norms and biases are not those of a beginning."""
    chain = Blocks(*blocks)
    for module in chain.modules():
        if isinstance(module, nn.BatchNorm3d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
        if isinstance(module, nn.Conv3d) and module.bias is not None:
            nn.init.normal_(module.bias)
    return chain


def plain(wrap: bool) -> Blocks:
    return make_chain(
        ConvBlock(1, 8, dims=3, wrap=wrap),
        ConvBlock(8, 12, dims=3, wrap=wrap, stride=2),
        ConvBlock(12, 20, dims=3, wrap=wrap, kernel=5, stride=(1, 2, 1)),
    )


def residual(wrap: bool) -> Blocks:
    return make_chain(
        ConvBlock(2, 6, dims=3, wrap=wrap, kernel=5, stride=2),
        ResidualBlock(6, 6, dims=3, wrap=wrap),
        ResidualBlock(6, 12, dims=3, wrap=wrap, stride=2),
        ResidualBlock(12, 12, dims=3, wrap=wrap),
    )


def begins_with_a_shortcut(wrap: bool) -> Blocks:
    return make_chain(ResidualBlock(2, 4, dims=3, wrap=wrap, stride=2), ResidualBlock(4, 4, dims=3, wrap=wrap))


def apart(found: Tensor, wanted: Tensor) -> float:
    """The difference, as a share of what is wanted."""
    return float((found.detach().double() - wanted.detach().double()).norm() / wanted.detach().double().norm())


@pytest.mark.parametrize("size", [(8, 6, 4), (7, 5, 3)])
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("make", [plain, residual, begins_with_a_shortcut])
def test_outputs_gradients_and_averages_are_those_of_the_blocks(make, wrap, size, monkeypatch):
    # so small that programs have several tiles, and some of the last one none
    monkeypatch.setattr(fused_ops, "_VOLUME_ELEMENTS", 64)
    monkeypatch.setattr(fused_ops, "_VOLUME_PROGRAMS", 5)
    chain = make(wrap)
    exact = copy.deepcopy(chain).double()
    channels = next(m for m in chain.modules() if isinstance(m, nn.Conv3d)).in_channels
    given = torch.randn(3, channels, *size, requires_grad=True)
    wanted_from = given.detach().double().requires_grad_()
    found, wanted = run_blocks(list(chain), given), exact(wanted_from)
    assert found.shape == wanted.shape
    grad = torch.randn_like(wanted)
    found.backward(grad.float())
    wanted.backward(grad)
    theirs = dict(exact.named_parameters()) | dict(exact.named_buffers())
    differences = {"output": apart(found, wanted), "input": apart(given.grad, wanted_from.grad)}
    differences |= {
        n: apart(p.grad, theirs[n].grad) for n, p in chain.named_parameters() if not n.endswith("conv.bias")
    }
    differences |= {n: apart(b, theirs[n]) for n, b in chain.named_buffers()}
    assert {n: d for n, d in differences.items() if not d < 1e-5} == {}


def test_a_large_mean_does_not_cost_the_variance_its_digits():
    y = torch.randn(2, 9, 7, 5, 3) * 0.01 + 10
    sums = fused_ops._sum_channels(y)
    count = y.numel() // 3
    assert torch.allclose(sums.values[0].sum(dim=1) / count, y.double().mean(dim=(0, 1, 2, 3)).float(), rtol=1e-6)
    assert sums.values.shape[2] == 1
    variance = sums.values[1].sum(dim=1) / count
    assert torch.allclose(variance.double(), y.double().var(dim=(0, 1, 2, 3), correction=0), rtol=1e-3)


def test_half_precision_stays_near():
    chain = plain(wrap=True)
    x = torch.randn(2, 1, 8, 6, 4)
    assert apart(run_blocks(list(copy.deepcopy(chain)), x.bfloat16()), chain.double()(x.double())) < 3e-2


def test_without_training_it_uses_the_running_averages():
    chain = residual(wrap=True).eval()
    x = torch.randn(2, 2, 8, 6, 4)
    state = copy.deepcopy(chain.state_dict())
    with torch.no_grad():
        assert apart(run_blocks(list(chain), x), chain(x)) < 1e-5
    assert all(torch.equal(value, state[name]) for name, value in chain.state_dict().items())


def test_equal_inputs_give_equal_bits():
    x = torch.randn(2, 2, 8, 6, 4)
    chain = residual(wrap=True)
    grads = []
    for _ in range(2):
        chain.zero_grad()
        run_blocks(list(chain), x).square().sum().backward()
        grads.append([p.grad.clone() for p in chain.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("name", ["cylindrical", "cylindrical_l", "ccnn_3d"])
def test_every_chain_of_our_networks_can_be_fused(name):
    model = ptn.create_model(name, image_size=16)
    fuse_blocks(model)
    chains = [module for module in model.modules() if isinstance(module, Blocks)]
    assert chains
    assert all(chain.fused and can_fuse(chain) for chain in chains)


def test_it_is_an_operator_that_torch_can_compile():
    chain = list(plain(wrap=True))
    x = torch.randn(2, 1, 8, 6, 4, requires_grad=True)
    names = []

    def look(graph, inputs):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(lambda x: run_blocks(chain, x), backend=look, fullgraph=True)(x)
    assert any("block_chain" in name for name in names)
    arguments = (
        x.detach(),
        [block.conv.weight.detach() for block in chain],
        [block.norm.weight.detach() for block in chain],
        [block.norm.bias.detach() for block in chain],
        [],
        [1e-5] * 3,
        [False] * 3,
        [1, 1, 1, 2, 2, 2, 1, 2, 1],
        [True] * 3,
        "ieee",
    )
    torch.library.opcheck(torch.ops.ptn.block_chain, arguments, test_utils=("test_schema", "test_faketensor"))


def test_single_precision_on_a_gpu_is_left_to_the_blocks():
    chain = list(plain(wrap=True))
    with FakeTensorMode():
        x = torch.zeros(2, 1, 8, 6, 4, device="cuda")
        assert x.is_cuda
        assert not can_run(chain, x)
        assert can_run(chain, x.bfloat16())
