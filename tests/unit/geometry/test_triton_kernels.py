"""The Triton kernels compile to machine code for an H200 with their launch parameters, without a GPU."""

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("triton")

# replaces the driver of an H200: compiles what would be launched, and prints the code
PROGRAM = """
import json, sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from ptn.geometry import triton_ops

class Driver:
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

driver.set_active(Driver())
compiled, run = [], JITFunction.run

def compile_only(self, *arguments, grid, warmup, **options):
    kernel = run(self, *arguments, grid=grid, warmup=True, **options)
    conversions = kernel.asm["ttgir"].count("ttg.convert_layout")
    sizes = {"code": len(kernel.asm["cubin"]), "conversions": conversions}
    compiled.append({"name": self.fn.__name__, "ptx": kernel.asm["ptx"], **sizes})

JITFunction.run = compile_only
shape, law, mode, padding, layout, dtype, rotated = json.loads(sys.argv[1])
images = torch.zeros(shape, dtype=getattr(torch, dtype))
points = triton_ops.Points(law, 32, 24, 1.0, 0.1, mode, padding)
size = (32, 24) if len(shape) == 4 else (24, 32, shape[4]) if law == "plane" else (32, 24, shape[4])
out = torch.zeros(*shape[:2], *size, dtype=images.dtype)
if layout == "channels_last":
    images, out = (t.to(memory_format=torch.channels_last) for t in (images, out))
numbers = torch.ones(shape[0]) if rotated else None
matrix = torch.ones(shape[0], 6) if rotated == "matrix" else None
pose = torch.zeros(shape[0], 2), *((numbers, numbers) if matrix is None else (None, None)), matrix
triton_ops.sample(images, *pose, *points)
triton_ops.sample_grad_images(out, *pose, shape, layout == "channels_last", *points)
triton_ops.sample_grad_pose(out, images, *pose, *points)
print(json.dumps(compiled))
"""


def compile_kernels(folder, *case):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", PROGRAM, json.dumps(case)]
    out = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert out.returncode == 0, out.stderr
    kernels = {kernel["name"]: kernel for kernel in json.loads(out.stdout)}
    if case[2] != "nearest":  # it has no gradient of the pose
        assert {"image_gradient_kernel", "pose_gradient_kernel", "sample_kernel"} <= {*kernels}
    assert all(kernel["code"] for kernel in kernels.values())
    return kernels


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ([4, 3, 28, 28], "log", "bilinear", "zeros", "contiguous", "float32", True),
        ([4, 1, 28, 28], "linear", "nearest", "zeros", "contiguous", "float16", False),
        ([4, 5, 28, 28], "log", "bicubic", "border", "channels_last", "bfloat16", True),
        ([4, 2, 16, 16, 16], "linear", "bilinear", "zeros", "contiguous", "float32", False),
        ([4, 1, 16, 16, 16], "plane", "bilinear", "border", "contiguous", "bfloat16", True),
        ([4, 1, 28, 28], "log", "bicubic", "zeros", "contiguous", "float32", False),
        ([4, 1, 28, 28], "plane", "bicubic", "zeros", "contiguous", "float32", True),
        ([4, 1, 28, 28], "plane", "bicubic", "zeros", "contiguous", "float32", "matrix"),
        ([4, 1, 28, 28], "log", "bilinear", "zeros", "contiguous", "float32", "matrix"),
        ([4, 5, 28, 28], "linear", "bicubic", "border", "channels_last", "bfloat16", "matrix"),
    ],
)
def test_the_kernels_compile_for_a_gpu(tmp_path, case):
    compile_kernels(tmp_path, *case)


@pytest.mark.slow
def test_one_channel_is_loaded_before_the_first_store_without_layout_conversions(tmp_path):
    case = ([4, 1, 96, 96], "log", "bilinear", "zeros", "contiguous", "float32", False)
    kernels = compile_kernels(tmp_path, *case)
    assert [kernel["conversions"] for kernel in kernels.values()] == [0, 0, 0]
    ptx = kernels["sample_kernel"]["ptx"]
    assert "local" not in ptx
    accesses = re.findall(r"\b(ld|st)\.global", ptx)
    assert "".join(accesses).endswith("ld" * 12 + "st" * 3)  # 24 columns are three tiles


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_many_channels_are_loaded_stored_and_added_as_vectors(tmp_path, layout):
    kernels = compile_kernels(tmp_path, [4, 64, 32, 32], "log", "bilinear", "zeros", layout, "float32", False)
    assert "add.v4.f32" in kernels["image_gradient_kernel"]["ptx"]
    copied = kernels["split_channels_kernel" if layout == "contiguous" else "sample_kernel"]["ptx"]
    assert "ld.global.v4" in copied
    assert "st.global.v4" in copied
