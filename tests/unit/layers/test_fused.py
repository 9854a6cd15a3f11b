"""Tests of fused blocks against the blocks in float64, on a CPU with Triton's interpreter."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import ptn
from ptn.layers import Blocks, ConvBlock, ResidualBlock, fuse_blocks

pytest.importorskip("triton", reason="triton is not installed")

from ptn.layers import fused_launch
from ptn.layers.fused_ops import can_fuse, can_run, run_blocks

pytestmark = pytest.mark.slow  # the interpreter is


@pytest.fixture(autouse=True)
def _nan_memory(monkeypatch):
    """Fills new memory with NaN, so that reading it before it is written shows."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1).isnan().all()


def randomize(chain: Blocks) -> Blocks:
    """Gives biases, norms and running statistics values that differ from their initial ones."""
    for module in chain.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
        if isinstance(module, nn.Conv2d | nn.Conv3d) and module.bias is not None:
            nn.init.normal_(module.bias)
    return chain


def conv_blocks(channels, strides, *, kernel=3, wrap=True, dims=2) -> Blocks:
    sizes = zip(channels, channels[1:], strides, strict=False)
    return randomize(
        Blocks(*(ConvBlock(c, d, stride=stride, kernel=kernel, wrap=wrap, dims=dims) for c, d, stride in sizes))
    )


def residual_blocks(**options) -> Blocks:
    blocks = ConvBlock(2, 6, **options), ResidualBlock(6, 6, **options), ResidualBlock(6, 12, stride=2, **options)
    return randomize(Blocks(*blocks))


def first_block_residual(**options) -> Blocks:
    return randomize(Blocks(ResidualBlock(2, 4, stride=2, **options), ResidualBlock(4, 4, **options)))


def volume_blocks(**options) -> Blocks:
    return conv_blocks((2, 8, 12, 20), (1, 2, (1, 2, 1)), kernel=5, **options)


def relative_error(result: Tensor, expected: Tensor) -> float:
    result, expected = result.detach().double(), expected.detach().double()
    return float((result - expected).norm() / expected.norm())


def check(chain: Blocks, x: Tensor, tolerance: float, dtype: torch.dtype = torch.float32) -> None:
    """Compares output, all gradients and running statistics with those of the blocks in float64."""
    exact = copy.deepcopy(chain).double()
    x = x.requires_grad_()
    exact_x = x.detach().double().requires_grad_()
    output, expected = run_blocks(list(chain), x.to(dtype)), exact(exact_x)
    assert output.shape == expected.shape
    grad = torch.randn_like(expected)
    output.backward(grad.to(output))
    expected.backward(grad)
    errors = {"output": relative_error(output, expected), "input": relative_error(x.grad, exact_x.grad)}
    parameters, buffers = dict(exact.named_parameters()), dict(exact.named_buffers())
    for name, parameter in chain.named_parameters():
        if not name.endswith("conv.bias"):  # batch norm cancels it: its gradient is rounding only
            errors[name] = relative_error(parameter.grad, parameters[name].grad)
    errors |= {name: relative_error(buffer, buffers[name]) for name, buffer in chain.named_buffers()}
    assert {name: error for name, error in errors.items() if not error < tolerance} == {}


CHAINS = {
    "one channel": ((1, 16, 20), (1, 2), 3, (12, 10)),
    "odd sizes, stride 2": ((3, 20, 20, 32), (2, 1, 2), 3, (11, 9)),
    "5×5, stride along the angle": ((2, 12, 20), ((2, 1), 1), 5, (12, 6)),
    "5×3, stride along the angle": ((2, 16, 20), ((2, 1), 1), (5, 3), (12, 6)),
    "more pixels than one program": ((1, 8, 4), (1, 1), 3, (17, 13)),
}


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_image_chains_equal_their_blocks(name, wrap):
    channels, strides, kernel, size = CHAINS[name]
    chain = conv_blocks(channels, strides, kernel=kernel, wrap=wrap)
    check(chain, torch.randn(2, channels[0], *size), 1e-5)


@pytest.mark.parametrize(("size", "wrap"), [((8, 6), True), ((7, 5), True), ((8, 5), False)])
@pytest.mark.parametrize("make", [residual_blocks, first_block_residual])
def test_residual_image_chains_equal_their_blocks(make, size, wrap):
    check(make(wrap=wrap), torch.randn(2, 2, *size), 1e-5)


@pytest.mark.parametrize(("size", "wrap"), [((7, 5, 3), True), ((8, 6, 4), False)])
@pytest.mark.parametrize("make", [volume_blocks, residual_blocks, first_block_residual])
def test_volume_chains_equal_their_blocks(make, size, wrap, monkeypatch):
    # so small that programs take several steps, and some have no pixels in the last one
    monkeypatch.setattr(fused_launch, "_VOLUME_ELEMENTS", 64)
    monkeypatch.setattr(fused_launch, "_VOLUME_PROGRAMS", 5)
    check(make(wrap=wrap, dims=3), torch.randn(2, 2, *size), 1e-5)


@pytest.mark.parametrize(("dims", "dtype"), [(2, torch.float16), (3, torch.bfloat16)])
def test_half_precision_is_close(dims, dtype):
    chain = conv_blocks((1, 16, 20), (1, 2), dims=dims)
    check(chain, torch.randn(4, 1, *(12, 10, 4)[:dims]), 3e-2 if dtype == torch.float16 else 2e-1, dtype)


@pytest.mark.parametrize("dims", [2, 3])
def test_variance_is_exact_for_a_large_mean(dims):
    check(conv_blocks((1, 16), (1,), dims=dims), torch.randn(2, 1, *(12,) * dims) * 0.01 + 10, 1e-3)


@pytest.mark.parametrize("dims", [2, 3])
def test_evaluation_uses_the_running_statistics(dims):
    chain = residual_blocks(wrap=True, dims=dims).eval()
    x = torch.randn(2, 2, *(8, 6, 4)[:dims])
    state = copy.deepcopy(chain.state_dict())
    with torch.no_grad():
        assert relative_error(run_blocks(list(chain), x), chain(x)) < 1e-5
    assert all(torch.equal(value, state[name]) for name, value in chain.state_dict().items())


@pytest.mark.parametrize("dims", [2, 3])
def test_equal_inputs_give_equal_bits(dims):
    chain = residual_blocks(wrap=True, dims=dims)
    x = torch.randn(2, 2, *(8, 6, 4)[:dims])
    grads = []
    for _ in range(2):
        chain.zero_grad()
        run_blocks(list(chain), x).square().sum().backward()  # the input needs no gradient
        grads.append([p.grad.clone() for p in chain.parameters() if p.grad is not None])
    assert len(grads[0]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("dims", [2, 3])
def test_the_operators_pass_opcheck_and_compile(dims):
    chain = list(conv_blocks((1, 8, 12), (1, 2), dims=dims))
    x = torch.randn(2, 1, *(8, 6, 4)[:dims], requires_grad=True)
    operators = []

    def record(graph, inputs):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(lambda x: run_blocks(chain, x), backend=record, fullgraph=True)(x)
    assert any("block_chain" in name for name in operators)
    weights = [block.conv.weight.detach() for block in chain]
    scales, offsets = [b.norm.weight.detach() for b in chain], [b.norm.bias.detach() for b in chain]
    layout = [0, 1, *[1] * dims, 0, 1, *[2] * dims]
    tests = ("test_schema", "test_faketensor")
    arguments = (x.detach(), weights, scales, offsets, [], 1e-5, layout)
    torch.library.opcheck(torch.ops.ptn.block_chain, arguments, test_utils=tests)
    output, *saved = torch.ops.ptn.block_chain(*arguments)
    backward = (torch.randn_like(output), output, weights, saved, list(x.shape[2:]), layout, True)
    torch.library.opcheck(torch.ops.ptn.block_chain_backward, backward, test_utils=tests)


@pytest.mark.parametrize("name", ["ptn_b", "ptn_l", "ptn_resnet32", "stn_s", "cylindrical_l", "ccnn_3d"])
def test_every_chain_of_our_networks_can_be_fused(name):
    model = ptn.create_model(name)
    fuse_blocks(model)
    fused = [module.fused for module in model.modules() if isinstance(module, Blocks)]
    assert fused
    assert all(fused)


def test_unsupported_blocks_are_not_fused():
    mixed = Blocks(ConvBlock(1, 4), ConvBlock(4, 4, dims=3))
    cumulative = conv_blocks((1, 4), (1,))
    cumulative[0].norm.momentum = None
    other_eps = conv_blocks((1, 4, 4), (1, 1))
    other_eps[0].norm.eps = 0.1
    for chain in (mixed, cumulative, other_eps, Blocks(nn.Conv2d(1, 4, 3)), Blocks()):
        assert not can_fuse(chain)
        fuse_blocks(chain)
        assert not chain.fused


def test_can_run_gives_the_same_result_when_compiled():
    chain = conv_blocks((1, 16), (1,))

    def add_one_if_supported(x):
        return x + 1 if can_run(list(chain), x) else x

    compiled = torch.compile(add_one_if_supported, backend="eager", fullgraph=True, dynamic=False)
    for x in (torch.zeros(2, 1, 6, 6), torch.zeros(2, 1, 6, 6, dtype=torch.float64)):
        assert torch.equal(compiled(x), add_one_if_supported(x))
    assert can_run(list(chain), torch.zeros(2, 1, 6, 6))
    chain.eval()
    assert not can_run(list(chain), torch.zeros(2, 1, 6, 6))  # it has no gradient in evaluation mode


def test_volumes_in_float32_on_a_gpu_are_not_fused():
    chain = list(conv_blocks((1, 8), (1,), dims=3))
    with FakeTensorMode():
        x = torch.zeros(2, 1, 8, 6, 4, device="cuda")
        assert not can_run(chain, x)
        assert can_run(chain, x.bfloat16())


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("90", "bf16", "ptn_b", "ptn_l", "ptn_resnet32", "cylindrical", "cylindrical_l"), ("80", "fp32", "ptn_s")],
)
def test_every_kernel_compiles_for_a_gpu(arguments):
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) > 10
