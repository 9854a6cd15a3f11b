"""SVHN from each of its sources, upright and rotated."""

import math
import tarfile

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from ptn.data.svhn import cut_tile, load_svhn, validation_mask
from ptn.errors import InputError

from .conftest import write_atlas, write_digit_struct

COUNT = 70  # more than one row of an atlas
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 10, COUNT).astype(np.uint8)
CROPS = RANDOM.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
PHOTOS = [
    ("1.png", [(33.0, 17.0, 16.0, 32.0, 10.0)]),
    ("2.png", [(41.0, 21.0, 20.0, 16.0, 6.0), (1.0, 1.0, 32.0, 32.0, 3.0)]),
]


def waves(x, y):
    """Low frequencies at positions (x, y) of each tile, which JPEG and interpolation preserve."""
    phase = np.arange(COUNT)[:, None, None]
    colors = [np.sin(x / 12 + phase), np.sin(y / 10 + 2 * phase), np.sin((x + y) / 16 + 3 * phase)]
    return 127 + 120 * np.stack(colors, axis=-1)


SMOOTH = waves(*np.meshgrid(np.arange(48), np.arange(48))).round().astype(np.uint8)


@pytest.fixture
def tiles(store):
    """A store with an atlas of smooth tiles."""
    write_atlas(store.data / "svhn", "train", SMOOTH, LABELS)
    return store


def write_photos(folder):
    folder.mkdir(parents=True)
    y, x = np.mgrid[:64, :96]
    photo = np.stack([2 * x, 3 * y, x + y], axis=-1).astype(np.uint8)
    Image.fromarray(photo).save(folder / "1.png")
    Image.fromarray(photo[::-1].copy()).save(folder / "2.png")
    write_digit_struct(folder / "digitStruct.mat", PHOTOS, userblock_size=512)  # as MATLAB
    return photo


@pytest.mark.usefixtures("tiles")
def test_tiles_come_in_order_and_the_crop_is_their_middle():
    whole, crop = load_svhn("train", size=48), load_svhn("train")
    difference = whole.images.permute(0, 2, 3, 1).int() - torch.from_numpy(SMOOTH).int()
    assert difference.abs().max() <= 6
    assert torch.equal(crop.images, whole.images[:, :, 8:40, 8:40])
    assert crop.labels.tolist() == LABELS.tolist()
    assert crop.meta["image_id"].tolist() == list(range(1, COUNT + 1))
    assert crop.meta["frac_outside"][-1] == 0.5
    assert (crop.name, crop.meta["source"], crop.classes) == ("svhn", "context tiles", tuple("0123456789"))


@pytest.mark.parametrize(("count", "labels"), [(COUNT, LABELS[:64]), (64, LABELS)])
def test_labels_that_do_not_match_the_tiles_are_refused(store, count, labels):
    write_atlas(store.data / "svhn", "train", SMOOTH[:count], labels)
    with pytest.raises(InputError, match=r"labels for \d+ tiles"):
        load_svhn("train")


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("scale", [None, (0.6, 1.0)])
def test_each_digit_is_rotated_and_scaled_and_black_outside_its_disc(scale):
    data = load_svhn("train", rotated=True, scale=scale)
    assert (data.name, data.images.shape) == ("rotsvhn", (COUNT, 3, 32, 32))
    assert data.labels.tolist() == LABELS.tolist()
    angles = data.meta["rotation"].double().numpy()[:, None, None]
    factors = data.meta["scale"].double().numpy()[:, None, None] if scale else np.ones((COUNT, 1, 1))
    assert 0 <= angles.min() < angles.max() < 2 * math.pi
    if scale:
        assert 0.6 <= factors.min() < 0.65 < 0.95 < factors.max() <= 1
    y, x = np.mgrid[:32, :32] - 15.5
    x, y = (np.cos(angles) * x + np.sin(angles) * y) / factors, (np.cos(angles) * y - np.sin(angles) * x) / factors
    images = data.images.permute(0, 2, 3, 1).numpy()
    assert np.abs(images - waves(x + 23.5, y + 23.5))[np.hypot(x, y) < (21 if scale else 23)].max() < 8
    assert (images[np.hypot(x, y) > 23.6] == 0).all()


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("rotated", [False, True])
def test_minus_leaves_out_six_and_nine_and_renumbers(rotated):
    whole, minus = (load_svhn("train", rotated=rotated, minus=minus) for minus in (False, True))
    kept = [index for index, label in enumerate(LABELS) if label not in (6, 9)]
    assert minus.classes == ("0", "1", "2", "3", "4", "5", "7", "8")
    assert [int(minus.classes[label]) for label in minus.labels] == [LABELS[index] for index in kept]
    assert torch.equal(minus.images, whole.images[kept])
    assert torch.equal(minus.meta["image_id"], whole.meta["image_id"][kept])


@pytest.mark.usefixtures("tiles")
def test_each_variant_has_its_own_hash():
    variants = [{}, {"size": 48}, {"minus": True}, {"rotated": True}, {"rotated": True, "seed": 1}]
    variants += [{"rotated": True, "minus": True}, {"rotated": True, "size": 48}]
    variants += [{"rotated": True, "scale": (0.6, 1.0)}, {"rotated": True, "scale": (0.7, 1.0)}]
    assert len({load_svhn("train", **variant).meta["sha256"] for variant in variants}) == len(variants)


@pytest.mark.usefixtures("tiles")
def test_fit_and_valid_partition_the_training_digits():
    whole, fit, valid = (load_svhn(split, rotated=True) for split in ("train", "fit", "valid"))
    assert (fit.split, valid.split, len(valid)) == ("fit", "valid", 60)
    ids = torch.cat((fit.meta["image_id"], valid.meta["image_id"]))
    assert torch.equal(ids.sort().values, whole.meta["image_id"])
    assert torch.equal(valid.images, whole.images[valid.meta["image_id"] - 1])
    assert len({part.meta["sha256"] for part in (whole, fit, valid)}) == 3
    minus = load_svhn("valid", rotated=True, minus=True)
    assert set(minus.meta["image_id"].tolist()) <= set(valid.meta["image_id"].tolist())
    mask = validation_mask(73_257)
    assert int(mask.sum()) == 6_000
    assert int((mask[1:] != mask[:-1]).sum()) <= 200  # in blocks


def test_training_tiles_change_only_the_splits_that_are_trained_on(tiles):
    write_atlas(tiles.data / "svhn", "test", SMOOTH, LABELS)
    upright = load_svhn("train", size=48).images
    for options in ({}, {"rotated": True}, {"rotated": True, "scale": (0.6, 1.0)}):
        assert torch.equal(load_svhn("train", training_tiles=True, **options).images, upright)
        for split in ("valid", "test"):
            plain, same = (load_svhn(split, training_tiles=on, **options) for on in (False, True))
            assert torch.equal(plain.images, same.images)
            assert plain.meta["sha256"] == same.meta["sha256"]
    assert len(load_svhn("fit", training_tiles=True)) == 10


def test_official_crops_come_first_for_upright_digits_and_cannot_be_rotated(tiles):
    for name in ("train_32x32.mat", "test_32x32.mat"):
        scipy.io.savemat(tiles.data / "svhn" / name, {"X": CROPS, "y": np.array([[10], [6], [2], [9]])})
    data = load_svhn("train")
    assert data.meta["source"] == "official crops"
    assert np.array_equal(data.images.numpy(), CROPS.transpose(3, 2, 0, 1))
    assert data.labels.tolist() == [0, 6, 2, 9]
    assert load_svhn("train", rotated=True).meta["source"] == "context tiles"
    for options in ({"rotated": True}, {"size": 48}):
        with pytest.raises(InputError, match=r"svhn/test.tar.gz .*ptn data fetch rotsvhn$"):
            load_svhn("test", **options)
    (tiles.data / "svhn" / "train_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    with pytest.raises(InputError, match=r"cannot read .*train_32x32\.mat"):
        load_svhn("train")


@pytest.mark.parametrize("side", [20.0, 32.0, 75.0])
def test_a_tile_is_cut_as_from_a_resampling_of_the_whole_photo(side):
    photo = RANDOM.integers(0, 256, (240, 260, 3), dtype=np.uint8)
    tile, _ = cut_tile(photo, np.array([100.3, 90.6, side, side - 7]))
    reach, x, y = 0.75 * side, 100.3 + side / 2, 90.6 + (side - 7) / 2
    area = (x - reach, y - reach, x + reach, y + reach)
    whole = Image.fromarray(photo).resize((48, 48), Image.Resampling.BICUBIC, box=area)
    assert np.abs(tile.transpose(1, 2, 0) - np.asarray(whole).astype(int)).max() <= 1


def test_outside_the_photo_its_edge_is_repeated():
    photo = np.full((40, 40, 3), 90, dtype=np.uint8)
    photo[:, 0] = 200
    tile, outside = cut_tile(photo, np.array([-4.0, 4.0, 32.0, 32.0]))
    assert outside == pytest.approx(1 - (36 * 40) / 48**2)
    assert (tile[:, :, :11] == 200).all()
    assert (tile[:, :, 15:] == 90).all()


def pack(store, photos):
    with tarfile.open(store.data / "svhn" / "train.tar.gz", "w:gz") as archive:
        archive.add(photos, "train")


def test_tiles_are_cut_from_the_photos_of_an_archive(store, tmp_path):
    (store.data / "svhn").mkdir()
    photo = write_photos(tmp_path / "train")
    pack(store, tmp_path / "train")
    data = load_svhn("train", size=48)
    assert data.meta["source"] == "full numbers"
    assert data.labels.tolist() == [0, 6, 3]
    assert data.meta["image_id"].tolist() == [1, 2, 2]
    assert data.meta["frac_outside"].tolist() == pytest.approx([0, 0, 1 - (40 / 48) ** 2])
    # A box 32 high is cut pixel by pixel: (33, 17) in the file is column 32, row 16.
    assert np.array_equal(data.images[0, :, 8:40, 8:40].numpy(), photo[16:48, 24:56].transpose(2, 0, 1))
    (tmp_path / "train").rename(store.data / "svhn" / "train")
    unpacked = load_svhn("train", size=48)
    assert torch.equal(unpacked.images, data.images)
    Image.fromarray(photo[::-1].copy()).save(store.data / "svhn" / "train" / "1.png")
    assert load_svhn("train", size=48).meta["sha256"] != unpacked.meta["sha256"]


def test_a_bad_archive_and_a_missing_photo_are_named(store, tmp_path):
    (store.data / "svhn").mkdir()
    with tarfile.open(store.data / "svhn" / "train.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../out.png"))
    with pytest.raises(InputError, match=r"cannot read .*train\.tar\.gz.*out\.png.* outside"):
        load_svhn("train")
    write_photos(tmp_path / "train")
    (tmp_path / "train" / "2.png").unlink()
    pack(store, tmp_path / "train")
    with pytest.raises(InputError, match=r"cannot read .*2\.png"):
        load_svhn("train")
    (tmp_path / "train" / "digitStruct.mat").write_bytes(b"not HDF5")
    pack(store, tmp_path / "train")
    with pytest.raises(InputError, match=r"cannot read .*digitStruct\.mat"):
        load_svhn("train")
    assert not (store.cache / "generated").exists()
