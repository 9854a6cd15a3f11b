"""The fused chain of blocks against the blocks themselves in float64: on the CPU through Triton's interpreter."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ptn
from ptn.layers import Blocks, ConvBlock, ResidualBlock, fuse_blocks

pytest.importorskip("triton", reason="triton is not installed")

from ptn.layers.fused_ops import can_fuse, can_run, run_blocks

pytestmark = pytest.mark.usefixtures("_poisoned")


def make_blocks(channels: Iterable[int], strides: Iterable[object], *, wrap: bool, kernel: int = 3) -> Blocks:
    """A chain whose norms and biases are not those of a beginning."""
    channels = list(channels)
    pairs = zip(channels, channels[1:], strides, strict=False)
    chain = Blocks(*(ConvBlock(c, d, stride=stride, wrap=wrap, kernel=kernel) for c, d, stride in pairs))
    for block in chain:
        nn.init.normal_(block.norm.weight, 1, 0.3)
        nn.init.normal_(block.norm.bias, 0, 0.3)
        nn.init.normal_(block.conv.bias)
        nn.init.normal_(block.norm.running_mean)
        nn.init.uniform_(block.norm.running_var, 0.5, 2)
    return chain


def apart(found: Tensor, wanted: Tensor) -> float:
    """The difference, as a share of what is wanted."""
    return float((found.detach().double() - wanted.detach().double()).norm() / wanted.detach().double().norm())


def compare(
    chain: Blocks, x: Tensor, tolerance: float, device: str = "cpu", dtype: torch.dtype | None = None
) -> None:
    exact = copy.deepcopy(chain).double()
    chain = chain.to(device)
    given = x.clone().to(device).requires_grad_()
    wanted_from = x.double().requires_grad_()
    found, wanted = run_blocks(list(chain), given if dtype is None else given.to(dtype)), exact(wanted_from)
    assert found.shape == wanted.shape
    grad = torch.randn_like(wanted)
    found.backward(grad.to(found))
    wanted.backward(grad)
    differences = {"output": apart(found.cpu(), wanted), "input grad": apart(given.grad.cpu(), wanted_from.grad)}
    theirs = dict(exact.named_parameters())
    for name, parameter in chain.named_parameters():
        if not name.endswith("conv.bias"):  # which batch norm takes off again
            differences[name] = apart(parameter.grad.cpu(), theirs[name].grad)
    theirs = dict(exact.named_buffers())
    for name, buffer in chain.named_buffers():
        differences[name] = apart(buffer.cpu(), theirs[name])
    assert {name: value for name, value in differences.items() if not value < tolerance} == {}


CHAINS = {
    "one channel": ((1, 16, 20), (1, 2), 3, (12, 10)),
    "odd sizes, stride 2": ((3, 20, 20, 32), (2, 1, 2), 3, (11, 9)),
    "5×5, stride along the angle": ((2, 24, 48), ((2, 1), 1), 5, (12, 6)),
    "more pixels than one program has": ((1, 8, 4), (1, 1), 3, (17, 13)),
}


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("size", [(10, 8), (9, 7)])
def test_residual_blocks_too(wrap, size):
    stem = make_blocks((3, 8), (1,), wrap=wrap)[0]
    chain = Blocks(
        stem,
        ResidualBlock(8, 8, wrap=wrap),
        ResidualBlock(8, 20, stride=2, wrap=wrap),
        ResidualBlock(20, 20, wrap=wrap),
    )
    compare(chain, torch.randn(2, 3, *size), 1e-5)


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_outputs_gradients_and_averages_are_those_of_the_blocks(name, wrap):
    channels, strides, kernel, size = CHAINS[name]
    chain = make_blocks(channels, strides, wrap=wrap, kernel=kernel)
    compare(chain, torch.randn(2, channels[0], *size), 1e-5)


def test_half_precision_stays_near():
    compare(make_blocks((1, 16, 20), (1, 2), wrap=True), torch.randn(4, 1, 12, 10), 3e-2, dtype=torch.float16)


def test_a_large_mean_does_not_cost_the_variance_its_digits():
    chain = make_blocks((1, 16), (1,), wrap=True)
    compare(chain, torch.randn(2, 1, 12, 12) * 0.01 + 10, 1e-3)


def test_without_training_it_uses_the_running_averages():
    chain = make_blocks((1, 16, 20), (1, 2), wrap=True).eval()
    x = torch.randn(2, 1, 10, 8)
    state = copy.deepcopy(chain.state_dict())
    with torch.no_grad():
        assert apart(run_blocks(list(chain), x), chain(x)) < 1e-5
    assert all(torch.equal(value, state[name]) for name, value in chain.state_dict().items())


def test_equal_inputs_give_equal_bits():
    chain = make_blocks((1, 16, 20), (1, 2), wrap=True)
    x = torch.randn(2, 1, 12, 10)
    grads = []
    for _ in range(2):
        chain.zero_grad()
        run_blocks(list(chain), x).square().sum().backward()
        grads.append([p.grad.clone() for p in chain.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_the_input_needs_no_gradient():
    chain = make_blocks((1, 16), (1,), wrap=True)
    run_blocks(list(chain), torch.randn(2, 1, 6, 6)).sum().backward()
    assert chain[0].conv.weight.grad is not None


def test_on_a_cpu_the_blocks_run_themselves(monkeypatch):
    chain = make_blocks((1, 16), (1,), wrap=True)
    fuse_blocks(chain)
    assert chain.fused
    monkeypatch.setattr("ptn.layers.fused_ops.run_blocks", None)
    assert chain(torch.randn(2, 1, 6, 6)).shape == (2, 16, 6, 6)


def test_other_blocks_stay_as_they_are():
    mixed = Blocks(ConvBlock(1, 4), ConvBlock(4, 4, dims=3))
    moving = make_blocks((1, 4), (1,), wrap=True)
    moving[0].norm.momentum = None
    for chain in (mixed, moving, Blocks(nn.Conv2d(1, 4, 3)), Blocks()):
        assert not can_fuse(chain)
        fuse_blocks(chain)
        assert not chain.fused


def test_whether_it_can_run_does_not_change_when_it_is_compiled():
    chain = make_blocks((1, 16), (1,), wrap=True)

    def known(x):
        return x + 1 if can_run(list(chain), x) else x

    for x in (torch.zeros(2, 1, 6, 6), torch.zeros(2, 1, 6, 6, dtype=torch.float64)):
        assert torch.equal(torch.compile(known, backend="eager", fullgraph=True, dynamic=False)(x), known(x))
    assert known(torch.zeros(2, 1, 6, 6)).sum() > 0
    chain.eval()
    assert known(torch.zeros(2, 1, 6, 6)).sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("90", "bf16", "ptn_b", "ptn_resnet32", "cylindrical", "cylindrical_l"), ("80", "fp32", "ptn_s")]
)
def test_every_kernel_compiles_for_a_gpu(arguments):
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) > 10
