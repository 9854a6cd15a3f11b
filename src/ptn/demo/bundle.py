"""The page as static files: the networks as ONNX files, run by ONNX Runtime in the browser, without a server."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..files import atomic_path, write_text
from ..models.export import onnx_program, sample_images, trace
from .inspect import run_pair
from .models import STATIC, Pair, encode_sheet, load_samples
from .server import readme, sample_kinds, setup

RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


class PairGraph(nn.Module):
    """`run_pair` as a module: images (N, C, H, W) -> the values, in the order of `outputs`."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair, self.polar, self.plain = pair, pair.polar, pair.plain  # parameters must be those of submodules
        with torch.no_grad():
            self.outputs = list(run_pair(pair, torch.zeros(1, *pair.polar.input_shape)))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(run_pair(self.pair, images).values())


def write_page(pairs: Sequence[Pair], folder: Path, runtime: Path, *, documentation: str | None = None) -> None:
    """Writes the page for `pairs` into `folder`; it can be served by any web server.

    Args:
        runtime: the folder `dist` of the npm package onnxruntime-web.
        documentation: address of the documentation, which the page links.
    """
    for name in RUNTIME:
        if not (runtime / name).is_file():
            raise InputError(f"no {name} in {runtime}: install onnxruntime-web with npm, and name its folder dist")
    for path in (*STATIC.iterdir(), *(runtime / name for name in RUNTIME)):
        with atomic_path(folder / path.name) as temporary:
            shutil.copyfile(path, temporary)
    for kind in sample_kinds(pairs):
        with atomic_path(folder / f"{kind}.png") as temporary:
            temporary.write_bytes(encode_sheet(load_samples(kind)))
    facts = setup(pairs) | {"runtime": True}
    facts["links"] |= {"Documentation": documentation} if documentation else {}
    write_text(folder / "readme.txt", readme())
    for number, (pair, model) in enumerate(zip(pairs, facts["models"], strict=True)):
        grid = pair.transformer.grid
        model["onnx"] = f"network-{number}.onnx"
        model["grid"] = {name: getattr(grid, name) for name in ("angles", "radii", "law")}
        model["grid"] |= {"r_min_px": grid.inner_radius, "r_max_px": grid.outer_radius(pair.size)}
        with atomic_path(folder / model["onnx"]) as temporary:
            temporary.write_bytes(encode_pair(pair))
    write_text(folder / "setup.json", json.dumps(facts))


def encode_pair(pair: Pair) -> bytes:
    """Returns `PairGraph` as an ONNX file."""
    graph = PairGraph(pair).eval()
    with torch.no_grad():
        program = trace(graph, sample_images(pair.polar.input_shape, 3))
    return onnx_program(program, {}, graph.outputs).SerializeToString()
