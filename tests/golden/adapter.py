"""Access to ptn for the golden tests.

This is the only file of these tests that imports ptn. When the library renames or moves something, change this
file and leave the tests and the recorded values unchanged.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ptn

Facts = dict[str, Any]

# API


def public_names() -> list[str]:
    """The public names of the package, sorted."""
    return sorted(ptn.__all__)


def public_signatures(*, annotations: bool) -> dict[str, str]:
    """The signature of every public name as text; of a class, that of its constructor.

    The text names a class of ptn without its module, so that moving a module does not change it.
    """
    signatures = {}
    for name in public_names():
        try:
            signature = inspect.signature(getattr(ptn, name))
        except ValueError:  # an exception class without a constructor of its own
            signatures[name] = "(...)"
            continue
        if not annotations:
            plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
            signature = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
        signatures[name] = re.sub(r"\bptn\.(?:\w+\.)*(\w+)", r"\1", str(signature))
    return signatures


def dataset_facts() -> dict[str, Facts]:
    """Splits, classes, image shape and options of every data set of the catalog."""
    return {
        info.name: {
            "splits": dict(info.splits),
            "classes": info.classes,
            "shape": list(info.shape),
            "options": list(info.options),
        }
        for info in ptn.list_datasets()
    }


# Networks


def model_names() -> list[str]:
    """The names of all networks."""
    return ptn.list_models()


def model_options(name: str) -> list[str]:
    """The options of a network beyond classes, image size and channels."""
    from ptn.models.zoo import list_options

    return list_options(name)


def create_seeded(name: str, *, seed: int, **settings: Any) -> nn.Module:
    """A freshly initialised network in evaluation mode."""
    torch.manual_seed(seed)
    return ptn.create_model(name, **settings).eval()


def released_tags() -> list[str]:
    """The names of all released weights, such as "ptn_b.rotmnist"."""
    return ptn.list_pretrained()


def load_released(tag: str) -> nn.Module:
    """A network with released weights, in evaluation mode."""
    return ptn.create_model(tag).eval()


def input_shape(model: nn.Module) -> tuple[int, ...]:
    """The shape of one input of a network, without the batch dimension."""
    return model.input_shape


def logits(model: nn.Module, images: Tensor) -> Tensor:
    """The logits of a network, without gradients."""
    with torch.no_grad():
        return model(images)


def origins(model: nn.Module, images: Tensor) -> Tensor | None:
    """The predicted origins (N, 2), or None for a network without an origin."""
    return model.explain(images).origins


def for_inference(model: nn.Module) -> nn.Module:
    """The copy of a network that is optimised for inference."""
    return ptn.for_inference(model)


# Files of networks


def save_and_load(model: nn.Module, folder: Path, form: str) -> nn.Module:
    """Save a network and load it again; `form` is "file" or "folder"."""
    if form == "file":
        ptn.save_weights(model, folder / "model.safetensors")
        return ptn.load_model(folder / "model.safetensors")
    ptn.save_pretrained(model, folder / "model")
    return ptn.load_model(folder / "model")


def export_and_run(model: nn.Module, folder: Path, form: str, images: Tensor) -> Tensor:
    """The logits of an exported file; `form` is "onnx" or "torch"."""
    if form == "onnx":
        path = folder / "model.onnx"
        ptn.export(model, path)
        return ptn.OnnxModel(path)(images)
    path = folder / "model.pt2"
    ptn.export(model, path)
    with torch.no_grad():
        return torch.export.load(path).module()(images)


# Data


def load_split(name: str, split: str, *, count: int, **options: Any) -> Facts:
    """The first `count` images and labels of a split, its length, classes, hash and source."""
    return _facts(ptn.load_dataset(name, split, **options), count)


def load_folder(root: Path, split: str, *, count: int, **options: Any) -> Facts:
    """Like `load_split`, for a folder of images."""
    return _facts(ptn.load_folder(root, split, **options), count)


def _facts(dataset: Any, count: int) -> Facts:
    if hasattr(dataset, "packed"):
        from ptn.data.dataset import unpack_voxels

        images = unpack_voxels(dataset.packed[:count], dataset.size)
    else:
        images = dataset.images[:count]
    poses = {key: dataset.meta[key][:count] for key in ("rotation", "scale", "center") if key in dataset.meta}
    return {
        "images": images,
        "labels": dataset.labels[:count],
        "length": len(dataset),
        "classes": list(dataset.classes),
        "sha256": dataset.meta["sha256"],
        "source": dataset.meta["source"],
        "poses": poses,
    }


def write_example(name: str, root: Path) -> None:
    """Write an example folder of images: "coins" or "textures"."""
    from ptn.data.examples import write_example

    write_example(name, root)


def draw_example(name: str, kind: str, split: str, *, count: int, seed: int) -> Tensor:
    """Images of one class of an example, floats (count, 64, 64)."""
    from ptn.data.examples import EXAMPLES

    return EXAMPLES[name].draw(kind, split, count, torch.Generator().manual_seed(seed))


def voxelize_mesh(path: Path, *, size: int, occupancy: str) -> Tensor:
    """The voxels of a mesh file, (1, size, size, size)."""
    from ptn.data.voxelize import read_voxels

    return read_voxels(path, size=size, occupancy=occupancy)


def read_idx(path: Path) -> np.ndarray:
    """The array of an idx file."""
    from ptn.data.mnist import read_idx

    return read_idx(path)


def read_amat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of an .amat file."""
    from ptn.data.mnist import read_amat

    return read_amat(path)


# Reports


def report_rows(results: Path) -> list[Facts]:
    """The rows that `python -m experiments report --json` prints, without their ids."""
    from experiments.tables import build_tables, load_records, to_json

    rows = to_json(build_tables(load_records(results)))
    return [{key: value for key, value in row.items() if key != "id"} for row in rows]


# Geometry


def polar_sample(images: Tensor, origin: Tensor, grid: Facts, **options: Any) -> Tensor:
    return ptn.polar_sample(images, origin, ptn.PolarGrid(**grid), **options)


def polar_unsample(polar: Tensor, origin: Tensor, grid: Facts, size: tuple[int, int], **options: Any) -> Tensor:
    return ptn.polar_unsample(polar, origin, ptn.PolarGrid(**grid), size, **options)


def cylindrical_sample(volumes: Tensor, axis: Tensor, grid: Facts, **options: Any) -> Tensor:
    return ptn.cylindrical_sample(volumes, axis, ptn.PolarGrid(**grid), **options)


def similarity_warp(images: Tensor, **options: Any) -> Tensor:
    pose = {name: options.pop(name) for name in ("rotation", "scale", "shift_px") if name in options}
    return ptn.similarity_warp(images, ptn.Similarity(**pose), **options)


def wrap_pad(x: Tensor, pad: Any) -> Tensor:
    return ptn.wrap_pad(x, pad)


def heatmap_centroid(heatmap: Tensor, activation: str) -> Tensor:
    return ptn.heatmap_centroid(heatmap, activation)
