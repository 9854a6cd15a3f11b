"""ModelNet from packed voxels, from the official zip, and from its folder."""

import shutil
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


@pytest.fixture
def small(store, monkeypatch):
    """A store in which ModelNet10 is complete with 20 and 10 shapes, ModelNet40 with 4 and 2."""
    counts = {10: {"train": 18, "valid": 2, "test": 10}, 40: {"train": 4, "valid": 0, "test": 2}}
    monkeypatch.setattr(modelnet, "SPLITS", counts)
    return store


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


def write_folder(store, members):
    for name, text in members.items():
        path = store.data / "ModelNet10" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def cache_files(store):
    return [path for path in store.cache.rglob("*") if path.is_file()]


def test_shapes_of_the_zip_are_voxelized_once(small, members):
    write_zip(small, members)
    calls = []
    load_modelnet("test", classes=10, progress=lambda *counts: calls.append(counts))
    assert calls == [(done, 10) for done in range(1, 11)]
    assert not list(small.data.parent.rglob("evil*"))
    mesh = parse_mesh(members["bed/test/bed_0003.off"].encode(), ".off", "bed")
    for occupancy in ("surface", "solid"):
        for size in (32, 64):
            options = {"classes": 10, "occupancy": occupancy, "size": size}
            dataset = load_modelnet("test", **options, progress=lambda *_: 1 / 0)
            assert (dataset.name, dataset.split, dataset.size) == ("modelnet10", "test", size)
            np.testing.assert_array_equal(dataset.images[1, 0], voxelize(*mesh, size=size, occupancy=occupancy))
    assert (dataset.classes, dataset.labels.tolist()) == (CLASSES, list(range(10)))
    assert dataset.meta["shape_names"] == [f"{name}_0003" for name in CLASSES]
    assert not dataset.meta["from_points"].any()


def test_folder_and_zip_give_the_same_set_and_hash(small, members):
    path = write_zip(small, members)
    zipped = load_modelnet("train", classes=10)
    path.unlink()
    write_folder(small, members)
    unpacked = load_modelnet("train", classes=10)
    assert (zipped.meta["source"], unpacked.meta["source"]) == ("ModelNet10.zip", "ModelNet10")
    assert torch.equal(zipped.packed, unpacked.packed)
    assert zipped.meta["sha256"] == unpacked.meta["sha256"]
    changed = small.data / "ModelNet10" / "bed/train/bed_0001.off"
    changed.write_text(tetrahedron(99))
    assert load_modelnet("train", classes=10).meta["sha256"] != zipped.meta["sha256"]


def test_bad_meshes_are_reported_together_and_nothing_is_cached(small, members):
    members["chair/train/chair_0002.off"] = "OFF\n8 12 0\n0 0 0\n"
    members["sofa/train/sofa_0001.off"] = "OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n"
    path = write_zip(small, members)
    with pytest.raises(InputError, match="2 of 20 meshes") as raised:
        load_modelnet("train", classes=10)
    message = str(raised.value)
    assert all(name in message for name in (str(path), "chair_0002.off", "sofa_0001.off"))
    assert "\n" not in message
    assert cache_files(small) == []


def test_a_damaged_member_and_a_truncated_zip_are_named(small, members):
    path = write_zip(small, members)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("ModelNet10/desk/test/desk_0003.off")
    content = bytearray(path.read_bytes())
    middle = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"1 of 10 meshes .*desk/test/desk_0003\.off"):
        load_modelnet("test", classes=10)
    path.write_bytes(content[:-200])
    with pytest.raises(InputError, match=f"{path} is not a readable zip"):
        load_modelnet("train", classes=10)


def test_an_incomplete_set_is_refused_before_voxelization(small, members):
    del members["bed/train/bed_0001.off"]
    write_folder(small, members)
    with pytest.raises(InputError, match="19 train shapes of 10 classes, not 20 of 10"):
        load_modelnet("train", classes=10, progress=lambda *_: 1 / 0)
    shutil.rmtree(small.data / "ModelNet10" / "bed")
    with pytest.raises(InputError, match="9 test shapes of 9 classes, not 10 of 10"):
        load_modelnet("test", classes=10, progress=lambda *_: 1 / 0)


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


def test_packed_voxels_are_read_from_the_file_of_their_size(small):
    arrays, fine = packed_arrays(), packed_arrays(64)
    write_packed(small, arrays)
    write_packed(small, fine, "surf64.npz")
    for occupancy, array in (("surface", "surf"), ("solid", "solid")):
        dataset = load_modelnet("test", occupancy=occupancy)
        bits = np.unpackbits(arrays[array][[2, 5]], axis=1).reshape(2, 1, 32, 32, 32)
        np.testing.assert_array_equal(dataset.images, bits)
    assert dataset.labels.tolist() == [2, 39]
    assert dataset.meta["shape_names"] == ["shape_2", "shape_5"]
    assert dataset.meta["from_points"].tolist() == [False, True]
    assert dataset.meta["source"] == "vox32.npz"
    np.testing.assert_array_equal(load_modelnet("train", size=64).packed, fine["surf64"][[0, 1, 3, 4]])


@pytest.mark.parametrize(
    "change",
    [
        {"surf": np.zeros((6, 4095), dtype=np.uint8)},
        {"surf": np.zeros((6, 4096))},
        {"surf": np.zeros((4, 4096), dtype=np.uint8)},
        {"labels": np.zeros(5, dtype=np.uint8)},
        {"labels": np.full(6, 40, dtype=np.uint8)},
        {"split": np.zeros(6, dtype=np.uint8)},
        {"classes": np.array(["a", "b"])},
    ],
)
def test_a_packed_file_with_wrong_arrays_is_refused(small, change):
    write_packed(small, packed_arrays() | change)
    with pytest.raises(InputError):
        load_modelnet("train")


def test_the_solid_at_64_is_the_packed_surface_filled_once(small):
    arrays = packed_arrays(64)
    x = np.stack(np.meshgrid(*3 * [np.arange(64) - 31.5])).astype(float)
    distance = np.sqrt((x**2).sum(axis=0))
    shell = (distance > 18) & (distance < 22)
    arrays["surf64"][:] = np.packbits(shell)
    arrays["surf64"][2] = np.packbits(shell & (x[0] < 15))  # open: nothing to fill
    write_packed(small, arrays, "surf64.npz")
    calls = []
    both = load_modelnet("test", size=64, occupancy="surface+solid", progress=lambda *counts: calls.append(counts))
    assert calls[-1] == (2, 2)
    assert both.channels == 2
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
