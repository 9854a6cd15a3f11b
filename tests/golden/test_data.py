"""The first images and labels of every split, of folders of images, and of files of each format."""

import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import golden
import ptn
from ptn.data import VoxelDataset
from ptn.data.dataset import unpack_voxels
from ptn.data.examples import EXAMPLES, write_example
from ptn.data.mnist import read_amat, read_idx
from ptn.data.voxelize import read_voxels

COUNT = 64  # images of a split that are recorded
MEAN_TOLERANCE = 0.05  # of the mean of an image on another machine, in gray levels


def key_of(name: str, split: str, options: dict[str, Any]) -> str:
    return " ".join([name, split, *(f"{key}={value}" for key, value in options.items())])


def data_facts(data: Any) -> dict[str, Any]:
    """Facts about a split and its first images; `means` are those of the first eight."""
    packed = isinstance(data, VoxelDataset)
    images = unpack_voxels(data.packed[:COUNT], data.size) if packed else data.images[:COUNT]
    poses = {key: data.meta[key][:COUNT] for key in ("rotation", "scale", "center") if key in data.meta}
    return {
        "length": len(data),
        "classes": list(data.classes),
        "sha256": data.meta["sha256"],
        "source": data.meta["source"],
        "shape": list(images.shape),
        "dtype": str(images.dtype),
        "labels": data.labels[:COUNT].tolist(),
        "means": [round(value, 4) for value in images[:8].double().flatten(1).mean(dim=1).tolist()],
        "images": golden.sha256(images),
        "poses": {name: golden.sha256(tensor) for name, tensor in poses.items()},
    }


# Splits of the catalog; all but the quickstart need PTN_DATA

QUICK: list[tuple[str, str, dict[str, Any]]] = [
    *(("quickstart", split, {}) for split in ("train", "test")),
    ("quickstart", "train", {"perturbed": False}),
    ("quickstart", "test", {"seed": 1}),
    *(("mnist", split, {}) for split in ("train", "test")),
    *(("rotmnist", split, {}) for split in ("train", "valid", "test", "train+valid")),
    ("rotmnist", "valid", {"seed": 1, "source": "regenerated"}),
    *((name, split, {}) for name in ("mnist-r", "mnist-rts") for split in ("train", "test")),
    *(("mnist-anywhere", split, {}) for split in ("train", "valid", "test")),
    ("mnist-anywhere", "test", {"poses": "shifted"}),
    *(("sim2mnist", split, {}) for split in ("train", "valid")),
    ("sim2mnist", "valid", {"clutter": 0}),
    ("sim2mnist", "valid", {"clutter": 5, "clutter_px": 6}),
    ("sim2mnist-larger", "valid", {}),
    ("sim2mnist-turned", "valid", {}),
    *((name, split, {}) for name in ("svhn", "svhn-minus") for split in ("train", "fit", "valid", "test")),
    *((name, "test", {}) for name in ("rotsvhn", "rotsvhn-minus")),
    ("svhn", "test", {"size": 48}),
    ("svhn", "fit", {"training_tiles": True}),
    *(("modelnet40", split, {}) for split in ("train", "valid", "test")),
    ("modelnet40", "test", {"occupancy": "solid"}),
]
SLOW: list[tuple[str, str, dict[str, Any]]] = [
    ("sim2mnist", "test", {}),
    *((name, split, {}) for name in ("sim2mnist-larger", "sim2mnist-turned") for split in ("train", "test")),
    *((name, split, {}) for name in ("rotsvhn", "rotsvhn-minus") for split in ("train", "fit", "valid")),
    ("rotsvhn", "test", {"size": 48}),
    ("rotsvhn", "test", {"scale": [0.5, 1.0]}),
    ("rotsvhn", "test", {"seed": 1}),
    ("rotsvhn-minus", "fit", {"training_tiles": True}),
    ("modelnet40", "test", {"size": 64}),
    ("modelnet40", "valid", {"size": 64}),
    ("modelnet40", "test", {"occupancy": "surface+solid", "size": 64}),
]


def split_facts(name: str, split: str, options: dict[str, Any]) -> dict[str, Any]:
    return data_facts(ptn.load_dataset(name, split, **options))


SPLITS = {key_of(*case): partial(split_facts, *case) for case in (*QUICK, *SLOW)}


# Folders of images, drawn examples, and files

FOLDER_CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("textures", "train", {"image_size": 64}),
    ("textures", "valid", {"image_size": 32, "channels": 3}),
    ("textures", "test", {"image_size": (40, 56), "fit": "pad"}),
    ("plain", "train", {"image_size": 16}),
    ("plain", "valid", {"image_size": 16, "seed": 3, "valid_fraction": 0.3}),
    ("plain", "test", {"image_size": 16}),
    ("coins", "train", {"image_size": 64}),
    ("coins", "test", {"image_size": 64}),
]
MESHES = [("cup_0080", 32, "surface"), ("cup_0080", 32, "solid"), ("bowl_0078", 64, "surface")]


def folder_facts(name: str, split: str, options: dict[str, Any]) -> dict[str, Any]:
    """Facts about an example, or about "plain": two classes of 20 colour images."""
    root = Path(os.environ["PTN_CACHE"], "folders", name)
    if name != "plain" and not root.exists():
        write_example(name, root)
    elif not root.exists():
        pictures = (255 * golden.fixed_images((3, 12, 20), count=40, seed=4)).round().byte().permute(0, 2, 3, 1)
        for index, picture in enumerate(pictures.numpy()):
            path = root / ("left", "right")[index % 2] / f"{index:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)
    return data_facts(ptn.load_folder(root, split, **options))


def example_facts() -> dict[str, Any]:
    """A few images of each example, at a quarter of their resolution."""
    facts = {}
    for name, kind in (("coins", "helmet"), ("textures", "gravel")):
        images = EXAMPLES[name].draw(kind, "test", 4, torch.Generator().manual_seed(0))
        facts[f"{name} {kind}"] = golden.measure(torch.nn.functional.avg_pool2d(images[:, None], 4))
    return facts


def format_facts() -> dict[str, str]:
    """Hashes of what the readers of idx and amat files return for small files."""
    images = np.random.default_rng(5).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    rows = np.concatenate([images.reshape(3, -1) / 255, [[7], [0], [3]]], axis=1)
    with tempfile.TemporaryDirectory() as folder:
        idx, amat = Path(folder, "images.idx"), Path(folder, "images.amat")
        idx.write_bytes(struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes())
        np.savetxt(amat, rows, fmt="%.6f")
        arrays = [read_idx(idx), *read_amat(amat)]
    names = ("idx", "amat images", "amat labels")
    return {name: golden.sha256(torch.tensor(array)) for name, array in zip(names, arrays, strict=True)}


def mesh_facts(mesh: str, size: int, occupancy: str) -> dict[str, Any]:
    path = Path(os.environ["PTN_DATA"].split(os.pathsep)[0], "modelnet40", "meshes", f"{mesh}.off")
    voxels = read_voxels(path, size=size, occupancy=occupancy)
    return {"filled": int(voxels.sum()), "sha256": golden.sha256(voxels.byte())}


FOLDERS = {key_of(*case): partial(folder_facts, *case) for case in FOLDER_CASES}
FILES = {
    "formats": format_facts,
    "examples": example_facts,
    **{" ".join(map(str, case)): partial(mesh_facts, *case) for case in MESHES},
}
CASES: golden.Cases = {"data": SPLITS, "files": FOLDERS | FILES}


@pytest.fixture(scope="module", autouse=True)
def _empty_cache() -> Iterator[None]:
    """An empty cache, so that every set is generated."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", folder)
        yield


def parametrize(keys: Iterable[str], *, slow: list[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(key, marks=pytest.mark.slow) if key in slow else key for key in keys]
    return pytest.mark.parametrize("key", marked)


@parametrize(SPLITS, slow=[key_of(*case) for case in SLOW])
def test_split_is_the_recorded_one(key: str, request: pytest.FixtureRequest) -> None:
    if not key.startswith("quickstart"):
        request.getfixturevalue("real_data")
    golden.check("data", key, SPLITS[key](), atol=MEAN_TOLERANCE, bits=("images", "poses"))


@parametrize(FOLDERS, slow=[key for key in FOLDERS if key.startswith("coins")])
def test_folder_is_the_recorded_one(key: str) -> None:
    # "sha256" is that of the files, which depend on rounding and on the PNG encoder
    golden.check("files", key, FOLDERS[key](), atol=MEAN_TOLERANCE, bits=("images", "sha256"))


@pytest.mark.parametrize("key", FILES)
def test_file_is_read_as_recorded(key: str, request: pytest.FixtureRequest) -> None:
    if key not in ("formats", "examples"):
        request.getfixturevalue("real_data")
    golden.check("files", key, FILES[key](), bits=("sha256",) if key == "examples" else ())
