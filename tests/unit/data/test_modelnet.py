"""ModelNet from packed voxels and from the official zip."""

import os
import zipfile

import numpy as np
import pytest
import torch

from ptn.data import modelnet
from ptn.data.modelnet import load_modelnet, validation_mask
from ptn.data.voxelize import parse_mesh, voxelize
from ptn.errors import InputError

CLASSES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")


def tetrahedron(seed):
    """An OFF file, every other one with the merged header of some originals."""
    corners = np.random.default_rng(seed).normal(size=(4, 3)).tolist()
    header = "OFF4 4 0\n" if seed % 2 else "OFF\n4 4 0\n"
    faces = "3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"
    return header + "".join(" ".join(map(repr, row)) + "\n" for row in corners) + faces


@pytest.fixture
def members():
    """A small ModelNet10: two training shapes and one test shape per class."""
    names = [
        f"{name}/{split}/{name}_{number:04d}.off"
        for name in CLASSES
        for split, numbers in (("train", (1, 2)), ("test", (3,)))
        for number in numbers
    ]
    return {name: tetrahedron(seed) for seed, name in enumerate(names)}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """ModelNet10 is complete with 20 and 10 shapes, ModelNet40 with 4 and 2."""
    small = {10: {"train": 18, "valid": 2, "test": 10}, 40: {"train": 4, "valid": 0, "test": 2}}
    monkeypatch.setattr(modelnet, "SPLITS", small)


def write_zip(store, members):
    path = store.data / "ModelNet10.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for ignored in ("ModelNet10/README.txt", "__MACOSX/ModelNet10/bed/test/._bed_0003.off"):
            archive.writestr(ignored, b"\x00\x05\x16\x07")
        archive.writestr("ModelNet10/bed/test/._bed_0003.off", b"\x00\x05\x16\x07")
        archive.writestr("ModelNet10/../../evil/train/evil.off", "OFF")
        for name, text in members.items():
            archive.writestr(f"ModelNet10/{name}", text)
    return path


def test_shapes_of_the_zip_are_voxelized_once(store, members):
    write_zip(store, members)
    calls = []
    load_modelnet("test", classes=10, progress=lambda *counts: calls.append(counts))
    assert calls == [(done, 10) for done in range(1, 11)]
    assert not list(store.data.parent.rglob("evil*"))
    mesh = parse_mesh(members["bed/test/bed_0003.off"].encode(), ".off")
    for occupancy in ("surface", "solid"):
        for size in (32, 64):
            options = {"classes": 10, "occupancy": occupancy, "size": size}
            dataset = load_modelnet("test", **options, progress=lambda *_: 1 / 0)
            assert (dataset.name, dataset.split, dataset.size) == ("modelnet10", "test", size)
            np.testing.assert_array_equal(dataset.images[1, 0], voxelize(*mesh, size=size, occupancy=occupancy))
    assert (dataset.classes, dataset.labels.tolist()) == (CLASSES, list(range(10)))
    assert dataset.meta["shape_names"] == [f"{name}_0003" for name in CLASSES]
    assert not dataset.meta["from_points"].any()


def test_a_bad_mesh_and_a_truncated_zip_are_named_and_nothing_is_cached(store, members):
    before = load_hash(store, members)
    members["bed/train/bed_0001.off"] = tetrahedron(99)
    assert load_hash(store, members) != before
    members["chair/train/chair_0002.off"] = "OFF\n8 12 0\n0 0 0\n"
    files = sorted(store.cache.rglob("*"))
    path = write_zip(store, members)
    with pytest.raises(InputError, match=r"ModelNet10\.zip:.*chair_0002\.off.*truncated"):
        load_modelnet("train", classes=10)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=f"cannot read {path}"):
        load_modelnet("train", classes=10)
    assert sorted(store.cache.rglob("*")) == files


def test_an_unpacked_folder_gives_the_voxels_of_the_zip(store, members):
    path = write_zip(store, members)
    zipped = load_modelnet("train", classes=10)
    for name, text in members.items():
        (store.data / "ModelNet10" / name).parent.mkdir(parents=True, exist_ok=True)
        (store.data / "ModelNet10" / name).write_text(text)
    path.unlink()
    unpacked = load_modelnet("train", classes=10)
    assert torch.equal(zipped.packed, unpacked.packed)
    for key in ("shape_names", "sha256"):
        assert zipped.meta[key] == unpacked.meta[key]
    for path in store.data.rglob("*.off"):
        os.utime(path, (0, 0))
    assert load_modelnet("train", classes=10).meta["sha256"] == zipped.meta["sha256"]
    (store.data / "ModelNet10" / "bed/train/bed_0001.off").write_text(tetrahedron(99))
    assert load_modelnet("train", classes=10).meta["sha256"] != unpacked.meta["sha256"]
    (store.data / "ModelNet10" / "bed/train/bed_0001.off").unlink()
    with pytest.raises(InputError, match="19 train shapes of 10 classes, not 20 of 10"):
        load_modelnet("train", classes=10)


def load_hash(store, members):
    write_zip(store, members)
    return load_modelnet("train", classes=10).meta["sha256"]


def packed_arrays(size=32):
    """Packed voxels of six shapes in 40 classes, four of them for training."""
    random = np.random.default_rng(size)
    arrays = {32: ["surf", "solid"], 64: ["surf64"]}[size]
    return {name: random.integers(0, 256, (6, size**3 // 8), dtype=np.uint8) for name in arrays} | {
        "labels": np.array([0, 1, 2, 39, 0, 39], dtype=np.uint8),
        "split": np.array([0, 0, 1, 0, 0, 1], dtype=np.uint8),
        "names": np.array([f"shape_{row}" for row in range(6)]),
        "classes": np.array([f"class_{label:02d}" for label in range(40)]),
        "from_points": np.array([0, 1, 0, 0, 1, 1], dtype=np.uint8),
    }


def write_packed(store, arrays, name="vox32.npz"):
    path = store.data / "modelnet40" / name
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **arrays)


def test_packed_voxels_are_read_from_the_file_of_their_size(store):
    arrays, fine = packed_arrays(), packed_arrays(64)
    write_packed(store, arrays)
    write_packed(store, fine, "surf64.npz")
    for occupancy, array in (("surface", "surf"), ("solid", "solid")):
        dataset = load_modelnet("test", occupancy=occupancy)
        bits = np.unpackbits(arrays[array][[2, 5]], axis=1).reshape(2, 1, 32, 32, 32)
        np.testing.assert_array_equal(dataset.images, bits)
    assert dataset.labels.tolist() == [2, 39]
    assert dataset.meta["shape_names"] == ["shape_2", "shape_5"]
    assert dataset.meta["from_points"].tolist() == [False, True]
    assert dataset.meta["source"] == "vox32.npz"
    np.testing.assert_array_equal(load_modelnet("train", size=64).packed, fine["surf64"][[0, 1, 3, 4]])
    write_packed(store, {name: array[:5] for name, array in arrays.items()} | {"classes": arrays["classes"]})
    with pytest.raises(InputError, match=r"vox32\.npz is incomplete: it has 1 test shapes of 40"):
        load_modelnet("test")


def test_the_solid_at_64_is_the_packed_surface_filled_once(store):
    arrays = packed_arrays(64)
    x = np.stack(np.meshgrid(*3 * [np.arange(64) - 31.5])).astype(float)
    distance = np.sqrt((x**2).sum(axis=0))
    shell = (distance > 18) & (distance < 22)
    arrays["surf64"][:] = np.packbits(shell)
    arrays["surf64"][2] = np.packbits(shell & (x[0] < 15))  # open: nothing to fill
    write_packed(store, arrays, "surf64.npz")
    calls = []
    both = load_modelnet("test", size=64, occupancy="surface+solid", progress=lambda *counts: calls.append(counts))
    assert calls[-1] == (2, 2)
    assert both.image_shape[0] == 2
    open_ball, closed_ball = both.images
    assert torch.equal(open_ball[0], open_ball[1])
    assert torch.equal(closed_ball[1], torch.from_numpy(distance < 22).byte())
    surface = load_modelnet("test", size=64)
    solid = load_modelnet("test", size=64, occupancy="solid", progress=lambda *_: 1 / 0)
    assert torch.equal(both.images, torch.cat((surface.images, solid.images), dim=1))
    assert len({dataset.meta["sha256"] for dataset in (both, surface, solid)}) == 3


def test_a_tenth_of_each_class_is_held_out_in_any_order():
    names = [f"{kind}_{number:04d}" for kind, count in (("a", 64), ("b", 105)) for number in range(count)]
    labels = torch.tensor([0] * 64 + [1] * 105)
    mask = validation_mask(labels, names)
    assert labels[mask].bincount().tolist() == [6, 10]
    order = torch.randperm(len(names))
    assert torch.equal(validation_mask(labels[order], [names[row] for row in order]), mask[order])
