import shutil
import zipfile

import numpy as np
import pytest
import torch

from ptn.data import modelnet
from ptn.data.catalog import load_dataset
from ptn.data.dataset import VoxelDataset, unpack_voxels
from ptn.data.formats.off import read_off
from ptn.data.modelnet import held_out, load_modelnet
from ptn.data.voxelize import fill, halve_solid, voxelize
from ptn.errors import InputError

CLASSES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")


def tetrahedron(seed):
    """An OFF file, with the broken header of the originals every other time."""
    corners = np.random.default_rng(seed).normal(size=(4, 3)).tolist()
    header = "OFF4 4 0\n" if seed % 2 else "OFF\n4 4 0\n"
    faces = "3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"
    return header + "".join(" ".join(map(repr, row)) + "\n" for row in corners) + faces


@pytest.fixture
def members():
    """ModelNet10 in small: two shapes of each class to train on and one to test on."""
    names = [
        f"{name}/{split}/{name}_{number:04d}.off"
        for name in CLASSES
        for split, numbers in (("train", (1, 2)), ("test", (3,)))
        for number in numbers
    ]
    return {name: tetrahedron(seed) for seed, name in enumerate(names)}


@pytest.fixture
def small(store, monkeypatch):
    """A store of its own, in which ModelNet10 is whole with 20 and 10 shapes, and ModelNet40 with 4 and 2."""
    monkeypatch.setattr(modelnet, "SHAPES", {10: {"train": 20, "test": 10}, 40: {"train": 4, "test": 2}})
    return store


def write_zip(store, members, **others):
    path = store.data / "ModelNet10.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ModelNet10/README.txt", "to be ignored")
        archive.writestr("__MACOSX/ModelNet10/bed/test/._bed_0003.off", b"\x00\x05\x16\x07")
        archive.writestr("ModelNet10/bed/test/._bed_0003.off", b"\x00\x05\x16\x07")
        for name, text in members.items():
            archive.writestr(f"ModelNet10/{name}", text)
        for name, text in others.items():
            archive.writestr(name, text)
    return path


def write_folder(store, members):
    for name, text in members.items():
        path = store.data / "ModelNet10" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def cache_files(store):
    return sorted(path.name for path in store.cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("occupancy", ["surface", "solid"])
def test_zip_is_voxelised_shape_by_shape(small, members, occupancy, size):
    write_zip(small, members)
    dataset = load_modelnet("train", classes=10, occupancy=occupancy, size=size, workers=1)
    assert isinstance(dataset, VoxelDataset)
    assert (dataset.name, dataset.split, dataset.size) == ("modelnet10", "train", size)
    assert dataset.classes == CLASSES
    assert dataset.labels.tolist() == [label for label in range(10) for _ in range(2)]
    expected_names = [f"{name}_{number:04d}" for name in CLASSES for number in (1, 2)]
    assert dataset.meta["shape_names"] == expected_names
    assert dataset.meta["source"] == "ModelNet10.zip"
    assert dataset.meta["from_points"].tolist() == [False] * 20
    assert dataset.images.shape == (20, 1, size, size, size)
    mesh = read_off(members["bed/train/bed_0002.off"].encode())
    np.testing.assert_array_equal(dataset.images[3, 0], voxelize(*mesh, size=size, occupancy=occupancy))


def test_second_load_voxelises_nothing_and_serves_every_grid(small, members):
    write_zip(small, members)
    told = []
    load_modelnet("test", classes=10, workers=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 10) for done in range(1, 11)]
    for occupancy in ("surface", "solid"):
        for size in (32, 64):
            load_modelnet("test", classes=10, occupancy=occupancy, size=size, progress=lambda *_: 1 / 0)


def test_folder_and_zip_give_the_same_set_and_hash(small, members):
    path = write_zip(small, members)
    zipped = load_modelnet("train", classes=10, workers=2)
    path.unlink()
    write_folder(small, members)
    unpacked = load_modelnet("train", classes=10, workers=1)
    assert (zipped.meta["source"], unpacked.meta["source"]) == ("ModelNet10.zip", "ModelNet10")
    assert torch.equal(zipped.packed, unpacked.packed)
    assert zipped.meta["sha256"] == unpacked.meta["sha256"]


def test_hash_tells_meshes_occupancies_sizes_and_splits_apart(small, members):
    write_zip(small, members)
    loads = [
        load_modelnet(split, classes=10, occupancy=occupancy, size=size, workers=1)
        for split in ("train", "test")
        for occupancy in ("surface", "solid")
        for size in (32, 64)
    ]
    members["bed/train/bed_0001.off"] = tetrahedron(99)
    write_zip(small, members)
    changed = load_modelnet("train", classes=10, workers=1)
    assert len({dataset.meta["sha256"] for dataset in [*loads, changed]}) == 9
    assert not torch.equal(changed.packed, loads[0].packed)


def test_bad_meshes_are_named_together_and_nothing_is_cached(small, members):
    members["chair/train/chair_0002.off"] = "OFF\n8 12 0\n0 0 0\n"
    members["sofa/train/sofa_0001.off"] = "OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n"
    path = write_zip(small, members)
    with pytest.raises(InputError) as raised:
        load_modelnet("train", classes=10, workers=2)
    message = str(raised.value)
    assert message.startswith(f"{path}: 2 of 20 meshes")
    assert "chair/train/chair_0002.off declares 8 vertices" in message
    assert "sofa/train/sofa_0001.off: the mesh cannot be scaled" in message
    assert "\n" not in message
    assert cache_files(small) == []
    assert len(load_modelnet("test", classes=10, workers=1)) == 10


def test_member_whose_bytes_are_damaged_is_named(small, members):
    path = write_zip(small, members)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("ModelNet10/desk/test/desk_0003.off")
    content = bytearray(path.read_bytes())
    middle = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"1 of 10 meshes .* desk/test/desk_0003\.off is damaged"):
        load_modelnet("test", classes=10, workers=1)
    assert cache_files(small) == []


@pytest.mark.parametrize("evil", ["../../evil.off", "/etc/evil.off", "ModelNet10/../../evil.off", "..\\evil.off"])
def test_zip_that_points_outside_its_folder_is_refused(small, members, evil):
    path = write_zip(small, members, **{evil: "OFF"})
    with pytest.raises(InputError, match="outside its folder") as raised:
        load_modelnet("train", classes=10, workers=1)
    assert str(path) in str(raised.value)
    assert repr(evil) in str(raised.value)
    assert cache_files(small) == []
    assert [item.name for item in small.data.iterdir()] == ["ModelNet10.zip"]


def test_truncated_zip_is_named(small, members):
    path = write_zip(small, members)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="not a readable zip file") as raised:
        load_modelnet("train", classes=10)
    assert str(path) in str(raised.value)


def test_missing_shape_or_class_is_told_before_anything_is_voxelised(small, members):
    del members["bed/train/bed_0001.off"]
    write_folder(small, members)
    with pytest.raises(InputError, match="19 train shapes of 10 classes, not 20 of 10"):
        load_modelnet("train", classes=10, progress=lambda *_: 1 / 0)
    shutil.rmtree(small.data / "ModelNet10" / "bed")
    with pytest.raises(InputError, match="9 test shapes of 9 classes, not 10 of 10"):
        load_modelnet("test", classes=10, progress=lambda *_: 1 / 0)


def packed_arrays(size=32):
    """Packed voxels of six shapes in 40 classes, four of them to train on."""
    array = {32: ["surf", "solid"], 64: ["surf64"]}[size]
    rng = np.random.default_rng(size)
    return {name: rng.integers(0, 256, (6, size**3 // 8), dtype=np.uint8) for name in array} | {
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
    return path


@pytest.mark.parametrize(("occupancy", "array"), [("surface", "surf"), ("solid", "solid")])
def test_packed_voxels_unpack_in_numpy_order(small, occupancy, array):
    arrays = packed_arrays()
    write_packed(small, arrays)
    dataset = load_modelnet("test", occupancy=occupancy)
    bits = np.unpackbits(arrays[array][[2, 5]], axis=1).reshape(2, 1, 32, 32, 32)
    np.testing.assert_array_equal(dataset.images, bits)
    assert dataset.labels.tolist() == [2, 39]
    assert dataset.meta["shape_names"] == ["shape_2", "shape_5"]
    assert dataset.meta["from_points"].tolist() == [False, True]
    assert dataset.meta["source"] == "vox32.npz"


def test_size_64_is_read_from_its_own_file(small):
    arrays = packed_arrays(64)
    write_packed(small, packed_arrays())
    write_packed(small, arrays, "surf64.npz")
    dataset = load_modelnet("train", size=64)
    np.testing.assert_array_equal(dataset.packed, arrays["surf64"][[0, 1, 3, 4]])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"surf": np.zeros((6, 4095), dtype=np.uint8)}, r"surf is uint8 \(6, 4095\)"),
        ({"surf": np.zeros((6, 4096))}, "surf is float64"),
        ({"labels": np.zeros(5, dtype=np.uint8)}, r"labels is uint8 \(5,\)"),
        ({"labels": np.full(6, 40, dtype=np.uint8)}, "label 40 is outside the 40 classes"),
        ({"split": np.zeros(6, dtype=np.uint8)}, "6 train shapes"),
        ({"names": np.zeros(6, dtype=np.uint8)}, "names is uint8"),
        ({"classes": np.array(["a", "b"])}, "2 classes, not 4 of 40"),
        ({"names": np.array([None] * 6)}, "cannot read"),
    ],
)
def test_packed_file_with_wrong_arrays_is_refused(small, change, complaint):
    write_packed(small, packed_arrays() | change)
    with pytest.raises(InputError, match=complaint):
        load_modelnet("train")


def test_truncated_or_foreign_packed_file_is_named(small):
    path = write_packed(small, packed_arrays())
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not an archive"):
        path.write_bytes(content)
        with pytest.raises(InputError) as raised:
            load_modelnet("train")
        assert str(path) in str(raised.value)


def test_what_packed_voxels_lack_names_the_zip_to_fetch(small):
    write_packed(small, packed_arrays())
    with pytest.raises(InputError, match=r"no modelnet40/ModelNet40\.zip .*ptn data fetch modelnet40"):
        load_modelnet("test", size=64, occupancy="solid")
    with pytest.raises(InputError, match=r"no modelnet10/ModelNet10\.zip .*ptn data fetch modelnet10"):
        load_modelnet("test", classes=10)


def test_nothing_at_hand_says_how_to_get_it(store):
    with pytest.raises(InputError, match=r"ModelNet40\.zip in .*ptn data fetch modelnet40$"):
        load_modelnet("train")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"split": "vald"}, "unknown split 'vald'; did you mean 'valid'"),
        ({"split": "test", "classes": 20}, "40 classes or 10, not 20"),
        ({"split": "test", "size": 16}, "size 32 or 64, not 16"),
        ({"split": "test", "occupancy": "volume"}, "unknown occupancy 'volume'"),
    ],
)
def test_unknown_options_are_refused(options, complaint):
    with pytest.raises(InputError, match=complaint):
        load_modelnet(**options)


def test_the_solid_at_64_is_the_packed_surface_filled_once(small):
    arrays = packed_arrays(64)
    ball = np.stack(np.meshgrid(*3 * [np.arange(64) - 31.5])).astype(float)
    distance = np.sqrt((ball**2).sum(axis=0))
    arrays["surf64"][:] = np.packbits((distance > 18) & (distance < 22))
    arrays["surf64"][2] = np.packbits((distance > 18) & (distance < 22) & (ball[0] < 15))  # open: nothing to fill
    write_packed(small, arrays, "surf64.npz")
    told = []
    both = load_modelnet(
        "test", size=64, occupancy="surface+solid", progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (2, 2)
    assert (both.channels, both.packed.shape) == (2, (2, 2 * 64**3 // 8))
    open_ball, closed_ball = both.images
    assert torch.equal(open_ball[0], open_ball[1])
    assert torch.equal(closed_ball[1], torch.from_numpy(distance < 22).byte())
    assert torch.equal(both.images[:, :1], load_modelnet("test", size=64).images)
    kept = load_modelnet("test", size=64, occupancy="solid", progress=lambda *_: 1 / 0)
    assert torch.equal(kept.images, both.images[:, 1:])
    assert len({kept.meta["sha256"], both.meta["sha256"], load_modelnet("test", size=64).meta["sha256"]}) == 3


def test_surface_and_solid_are_two_channels_from_either_source(small, members):
    write_packed(small, packed_arrays())
    write_zip(small, members)
    for options in ({"classes": 40}, {"classes": 10, "workers": 1}):
        surface, solid, both = (
            load_modelnet("test", occupancy=kind, **options) for kind in ("surface", "solid", "surface+solid")
        )
        assert torch.equal(both.images, torch.cat((surface.images, solid.images), dim=1))


def test_a_tenth_of_each_class_is_held_out_whatever_the_order():
    names = [f"{kind}_{number:04d}" for kind, count in (("a", 64), ("b", 105)) for number in range(count)]
    labels = torch.tensor([0] * 64 + [1] * 105)
    chosen = held_out(labels, names)
    assert labels[chosen].bincount().tolist() == [6, 10]
    order = torch.randperm(len(names))
    again = held_out(labels[order], [names[row] for row in order])
    assert torch.equal(again, chosen[order])


def test_real_validation_shapes_are_apart_from_the_training_shapes(real_data):
    train, valid = load_modelnet("train"), load_modelnet("valid")
    assert not set(train.meta["shape_names"]) & set(valid.meta["shape_names"])
    share = valid.labels.bincount(minlength=40) / (valid.labels.bincount() + train.labels.bincount())
    assert 0.09 < share.min() <= share.max() < 0.11


def test_real_solid_at_64_pools_to_that_at_32(real_data):
    surface = unpack_voxels(load_modelnet("test", size=64).packed[::400], 64)[:, 0].bool().numpy()
    coarse = unpack_voxels(load_modelnet("test", occupancy="solid").packed[::400], 32)[:, 0].bool().numpy()
    for fine, wanted in zip(surface, coarse, strict=True):
        np.testing.assert_array_equal(halve_solid(fine, fill(fine)), wanted)


@pytest.mark.parametrize(("split", "count"), [("train+valid", 9843), ("test", 2468)])
def test_real_counts_classes_and_histogram(real_data, split, count):
    dataset = load_dataset("modelnet40", split)
    assert len(dataset) == count
    assert len(dataset.classes) == 40
    histogram = dict(zip(dataset.classes, dataset.labels.bincount(minlength=40).tolist(), strict=True))
    known = {
        "train+valid": {"airplane": 626, "chair": 889, "bowl": 64},
        "test": {"airplane": 100, "desk": 86, "bowl": 20},
    }
    assert histogram.items() >= known[split].items()
    assert min(histogram.values()) >= 20
    names = dataset.meta["shape_names"]
    assert len(set(names)) == count
    labels = [dataset.classes[label] for label in dataset.labels]
    assert all(name.rpartition("_")[0] == label for name, label in zip(names, labels, strict=True))


def test_real_solid_contains_the_surface_and_both_stay_in_the_cylinder(real_data):
    surface, solid = (load_modelnet("test", occupancy=kind).packed for kind in ("surface", "solid"))
    assert torch.equal(surface & solid, surface)
    assert surface.any(dim=1).all()
    images = unpack_voxels(solid[::10], 32)
    assert set(images.unique().tolist()) == {0, 1}
    across = torch.hypot(*torch.meshgrid(torch.arange(32) - 15.5, torch.arange(32) - 15.5, indexing="ij"))
    assert not images.amax(dim=(0, 1, 4))[across > 15 + 0.5**0.5].any()


def test_real_voxels_at_64_pool_to_those_at_32(real_data):
    fine, coarse = (load_modelnet("test", size=size) for size in (64, 32))
    assert fine.meta["shape_names"] == coarse.meta["shape_names"]
    pooled = torch.nn.functional.max_pool3d(unpack_voxels(fine.packed[::50], 64).float(), 2)
    assert torch.equal(pooled.to(torch.uint8), unpack_voxels(coarse.packed[::50], 32))


def test_real_shapes_made_from_points_are_marked(real_data):
    marked = [int(load_modelnet(split).meta["from_points"].sum()) for split in ("train", "valid", "test")]
    assert sum(marked) == 141
