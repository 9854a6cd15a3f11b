"""Compiles every kernel that networks launch, without a GPU. Arguments: CAPABILITY PRECISION NETWORKS…"""

import os
import sys

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import ptn
from ptn.layers import Blocks, fused_kernels
from ptn.layers.fused_ops import run_blocks

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", int: "i32", float: "fp32"}
SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
compiled = set()


class CompileOnly:
    """Replaces a kernel: compiles it where it would be launched, once for each kind of launch."""

    def __init__(self, kernel: triton.JITFunction) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> "CompileOnly":
        assert all(0 < count < 2**31 for count in grid)
        return self

    def __call__(self, *arguments: object, num_warps: int = 4, num_stages: int = 3, **constants: object) -> None:
        names = self.kernel.arg_names
        types = [TYPES[a.dtype if isinstance(a, torch.Tensor) else type(a)] for a in arguments]
        signature = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
        key = (self.kernel.__name__, *types, num_warps, num_stages, *sorted(constants.items()))
        if key in compiled:
            return
        compiled.add(key)
        values = {(names.index(name),): value for name, value in constants.items()}
        pointers = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind.startswith("*")}
        binary = triton.compile(
            ASTSource(self.kernel, signature=signature, constexprs=values, attrs=pointers),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": num_warps, "num_stages": num_stages},
        )
        limit = SHARED_MEMORY[capability]
        assert binary.metadata.shared <= limit, (self.kernel.__name__, binary.metadata.shared, constants)


def find_chains(network: str) -> list[tuple[Blocks, tuple[int, ...]]]:
    """Every chain of a network, and the shape of its input."""
    if network.startswith("cylindrical"):
        model = ptn.create_model(network, image_size=16).train()
        return [
            (model.classifier.features, (1, 16, 16, 16)),
            (model.transformer.polar.predictor.body, (16, 16, 16)),
        ]
    model = ptn.create_model(network, image_size=32 if "resnet" in network else 28).train()
    channels, height, width = model.input_shape
    polar = (channels, 2 * height if network == "ptn_l" else height, width)
    return [(model.classifier.features, polar), (model.transformer.predictor.body, (channels, height, width))]


if __name__ == "__main__":
    for name, kernel in list(vars(fused_kernels).items()):
        if isinstance(kernel, triton.JITFunction) and not name.startswith("_"):
            setattr(fused_kernels, name, CompileOnly(kernel))
    capability = int(sys.argv[1])
    dtype = torch.bfloat16 if sys.argv[2] == "bf16" else torch.float32
    for network in sys.argv[3:]:
        for blocks, shape in find_chains(network):
            x = torch.zeros(4, *shape, dtype=dtype, requires_grad=True)
            run_blocks(list(blocks), x).float().sum().backward()
    print(f"{len(compiled)} kernels")
