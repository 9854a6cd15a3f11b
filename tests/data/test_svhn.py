"""SVHN from each of its sources, upright and turned."""

import io
import math
import struct
import tarfile
import zlib

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from ptn.data.svhn import held_out_digits, load_svhn
from ptn.data.svhn_tiles import cut_tile
from ptn.errors import InputError

COUNT = 70  # more than one row of an atlas
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 10, COUNT).astype(np.uint8)


def write_atlas(store, tiles, *, split="train", labels=LABELS):
    """Tiles (N, 48, 48, 3) as an atlas of 64 columns."""
    folder = store.data / "svhn"
    folder.mkdir(exist_ok=True)
    rows = math.ceil(len(tiles) / 64)
    grid = np.zeros((rows * 64, 48, 48, 3), dtype=np.uint8)
    grid[: len(tiles)] = tiles
    pixels = grid.reshape(rows, 64, 48, 48, 3).transpose(0, 2, 1, 3, 4).reshape(rows * 48, 64 * 48, 3)
    Image.fromarray(pixels).save(folder / f"{split}_00.jpg", quality=100, subsampling=0)
    np.savez(
        folder / f"{split}_labels.npz",
        y=labels,
        image_id=np.arange(1, len(labels) + 1, dtype=np.int32),
        frac_outside=np.linspace(0, 0.5, len(labels), dtype=np.float32),
    )


def waves(x, y, phase):
    """Slow waves of three colours at pixels (x, y), which JPEG and interpolation keep well."""
    colours = [np.sin(x / 12 + phase), np.sin(y / 10 + 2 * phase), np.sin((x + y) / 16 + 3 * phase)]
    return 127 + 120 * np.stack(colours, axis=-1)


def smooth_tiles(count=COUNT):
    """Tiles of waves, each with its own phase."""
    y, x = np.mgrid[:48, :48]
    return waves(x, y, np.arange(count)[:, None, None]).round().astype(np.uint8)


def write_crops(store, split="train"):
    folder = store.data / "svhn"
    folder.mkdir(exist_ok=True)
    crops = RANDOM.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    scipy.io.savemat(folder / f"{split}_32x32.mat", {"X": crops, "y": np.array([[10], [6], [2], [9]])})
    return crops


def write_photos(folder, write_digit_struct):
    """Two photos, with one and two digits."""
    folder.mkdir(parents=True)
    y, x = np.mgrid[:64, :96]
    photo = np.stack([2 * x, 3 * y, x + y], axis=-1).astype(np.uint8)
    Image.fromarray(photo).save(folder / "1.png")
    Image.fromarray(photo[::-1].copy()).save(folder / "2.png")
    boxes = {
        "1.png": [(33.0, 17.0, 16.0, 32.0, 10.0)],
        "2.png": [(41.0, 21.0, 20.0, 16.0, 6.0), (1.0, 1.0, 32.0, 32.0, 3.0)],
    }
    write_digit_struct(folder / "digitStruct.mat", boxes)
    return photo


def test_tiles_come_in_order_and_the_crop_is_their_middle(store):
    tiles = smooth_tiles()
    write_atlas(store, tiles)
    whole, crop = load_svhn("train", size=48), load_svhn("train")
    assert whole.images.shape == (COUNT, 3, 48, 48)
    assert crop.images.shape == (COUNT, 3, 32, 32)
    difference = whole.images.permute(0, 2, 3, 1).int() - torch.from_numpy(tiles).int()
    assert difference.abs().max() <= 6
    assert torch.equal(crop.images, whole.images[:, :, 8:40, 8:40])
    assert crop.labels.tolist() == LABELS.tolist()
    assert crop.meta["image_id"].tolist() == list(range(1, COUNT + 1))
    assert crop.meta["frac_outside"][-1] == 0.5
    assert crop.meta["source"] == "context tiles"
    assert (crop.name, crop.split, crop.classes) == ("svhn", "train", tuple("0123456789"))


def test_the_second_load_reads_the_cache(store):
    write_atlas(store, smooth_tiles())
    first = load_svhn("train", rotated=True)
    made = {path.name: path.stat().st_mtime_ns for path in (store.cache / "generated").iterdir()}
    again = load_svhn("train", rotated=True)
    assert torch.equal(first.images, again.images)
    assert {path.name: path.stat().st_mtime_ns for path in (store.cache / "generated").iterdir()} == made


def test_rotation_turns_each_digit_by_its_angle(store):
    write_atlas(store, smooth_tiles())
    data = load_svhn("train", rotated=True)
    angles = data.meta["rotation"].double().numpy()[:, None, None]
    assert (data.name, data.images.shape) == ("rotsvhn", (COUNT, 3, 32, 32))
    assert data.labels.tolist() == LABELS.tolist()
    assert angles.min() >= 0
    assert angles.max() < 2 * math.pi
    # What is at p from the middle of the tile is at R(angle) p from the middle of the image.
    y, x = np.mgrid[:32, :32] - 15.5
    from_x = np.cos(angles) * x + np.sin(angles) * y + 23.5
    from_y = np.cos(angles) * y - np.sin(angles) * x + 23.5
    expected = waves(from_x, from_y, np.arange(COUNT)[:, None, None])
    assert np.abs(data.images.permute(0, 2, 3, 1).numpy() - expected).max() < 8


def test_rotated_images_show_no_border(store):
    """Where the tile is bright throughout, a sample from beyond it would be dark."""
    write_atlas(store, np.full((COUNT, 48, 48, 3), 200, dtype=np.uint8))
    images = load_svhn("train", rotated=True).images
    assert (int(images.min()), int(images.max())) == (200, 200)


def test_seeds_and_splits_have_angles_of_their_own(store):
    for split in ("train", "test"):
        write_atlas(store, smooth_tiles(), split=split)
    angles = [
        load_svhn(split, rotated=True, seed=seed).meta["rotation"]
        for split, seed in (("train", 0), ("train", 1), ("test", 0), ("train", 0))
    ]
    assert torch.equal(angles[0], angles[3])
    assert not torch.equal(angles[0], angles[1])
    assert not torch.equal(angles[0], angles[2])


@pytest.mark.parametrize("rotated", [False, True])
def test_minus_leaves_out_six_and_nine_and_renumbers(store, rotated):
    write_atlas(store, smooth_tiles())
    whole, minus = load_svhn("train", rotated=rotated), load_svhn("train", rotated=rotated, minus=True)
    kept = [index for index, label in enumerate(LABELS) if label not in (6, 9)]
    assert minus.name == ("rotsvhn-minus" if rotated else "svhn-minus")
    assert minus.classes == ("0", "1", "2", "3", "4", "5", "7", "8")
    assert [int(minus.classes[label]) for label in minus.labels] == [LABELS[index] for index in kept]
    assert torch.equal(minus.images, whole.images[kept])
    assert torch.equal(minus.meta["image_id"], whole.meta["image_id"][kept])
    if rotated:
        assert torch.equal(minus.meta["rotation"], whole.meta["rotation"][kept])


def test_each_variant_has_a_hash_of_its_own(store):
    write_atlas(store, smooth_tiles())
    variants = [{}, {"size": 48}, {"minus": True}, {"rotated": True}, {"rotated": True, "seed": 1}]
    variants += [{"rotated": True, "minus": True}, {"rotated": True, "size": 48}]
    variants += [{"rotated": True, "scale": (0.6, 1.0)}, {"rotated": True, "scale": (0.7, 1.0)}]
    assert len({load_svhn("train", **variant).meta["sha256"] for variant in variants}) == len(variants)


def test_official_crops_come_first_for_upright_digits(store):
    write_atlas(store, smooth_tiles())
    crops = write_crops(store)
    data = load_svhn("train")
    assert data.meta["source"] == "official crops"
    assert np.array_equal(data.images.numpy(), crops.transpose(3, 2, 0, 1))
    assert data.labels.tolist() == [0, 6, 2, 9]
    assert load_svhn("train", rotated=True).meta["source"] == "context tiles"


@pytest.mark.parametrize("options", [{"rotated": True}, {"size": 48}])
def test_official_crops_alone_cannot_be_turned(store, options):
    write_crops(store)
    with pytest.raises(InputError, match=r"get svhn/train.tar.gz with: ptn data fetch rotsvhn$"):
        load_svhn("train", **options)


def test_a_tile_shows_the_box_in_its_middle():
    y, x = np.mgrid[:200, :300]
    photo = np.stack([x // 2, y, np.zeros_like(x)], axis=-1).astype(np.uint8)
    tile, outside = cut_tile(photo, np.array([100.0, 60.0, 40.0, 64.0]))
    # The box is 64 high, so a pixel of the tile is 2 of the photo, and its middle is (120, 92).
    assert tile.shape == (3, 48, 48)
    assert outside == 0
    assert tile[0, 24, 24] == pytest.approx(121 / 2, abs=1)
    assert tile[1, 24, 24] == pytest.approx(93, abs=1)
    assert tile[1, 8, 24] == pytest.approx(61, abs=1)  # the top of the box
    assert tile[1, 39, 24] == pytest.approx(123, abs=1)  # the bottom


@pytest.mark.parametrize("side", [20.0, 32.0, 75.0])
def test_a_tile_is_cut_as_if_the_whole_photo_were_resampled(side):
    photo = RANDOM.integers(0, 256, (240, 260, 3), dtype=np.uint8)
    tile, _ = cut_tile(photo, np.array([100.3, 90.6, side, side - 7]))
    reach, x, y = 0.75 * side, 100.3 + side / 2, 90.6 + (side - 7) / 2
    area = (x - reach, y - reach, x + reach, y + reach)
    whole = Image.fromarray(photo).resize((48, 48), Image.Resampling.BICUBIC, box=area)
    assert np.abs(tile.transpose(1, 2, 0) - np.asarray(whole).astype(int)).max() <= 1


def test_beyond_the_photo_its_edge_is_repeated():
    photo = np.full((40, 40, 3), 90, dtype=np.uint8)
    photo[:, 0] = 200
    tile, outside = cut_tile(photo, np.array([-4.0, 4.0, 32.0, 32.0]))
    assert outside == pytest.approx(1 - (36 * 40) / 48**2)
    assert (tile[:, :, :11] == 200).all()
    assert (tile[:, :, 15:] == 90).all()


def test_photos_and_their_archive_give_the_same_tiles(store, tmp_path, write_digit_struct, monkeypatch):
    photos = tmp_path / "elsewhere" / "train"
    photo = write_photos(photos, write_digit_struct)
    (store.data / "svhn").mkdir()
    with tarfile.open(store.data / "svhn" / "train.tar.gz", "w:gz") as archive:
        archive.add(photos, "train")
    packed = load_svhn("train", size=48)
    photos.rename(store.data / "svhn" / "train")
    loose = load_svhn("train", size=48)
    assert torch.equal(packed.images, loose.images)
    assert packed.meta["source"] == loose.meta["source"] == "full numbers"
    assert loose.labels.tolist() == [0, 6, 3]
    assert loose.meta["image_id"].tolist() == [1, 2, 2]
    assert loose.meta["frac_outside"].tolist() == pytest.approx([0, 0, 1 - (40 / 48) ** 2])
    # A box 32 high is cut pixel by pixel: its own corner (33, 17) is column 32, row 16 of the photo.
    assert np.array_equal(loose.images[0, :, 8:40, 8:40].numpy(), photo[16:48, 24:56].transpose(2, 0, 1))
    assert list((store.cache / "unpacked").iterdir()) == []


def test_a_changed_photo_changes_the_hash_even_at_the_same_size(store, write_digit_struct):
    folder = store.data / "svhn" / "train"
    write_photos(folder, write_digit_struct)
    before = load_svhn("train", size=48)
    content = bytearray((folder / "1.png").read_bytes())
    Image.fromarray(np.zeros((64, 96, 3), dtype=np.uint8)).save(folder / "1.png")
    black = (folder / "1.png").read_bytes()
    assert len(black) < len(content)
    # a chunk that readers pass over makes up the size
    fill = len(content) - len(black) - 12
    chunk = b"teSt" + bytes(fill)
    black += struct.pack(">I", fill) + chunk + struct.pack(">I", zlib.crc32(chunk))
    (folder / "1.png").write_bytes(black)
    after = load_svhn("train", size=48)
    assert after.meta["sha256"] != before.meta["sha256"]
    assert before.images[0].any()
    assert not after.images[0].any()


def test_an_archive_is_read_without_a_writable_cache(store, tmp_path, write_digit_struct, monkeypatch):
    write_photos(tmp_path / "train", write_digit_struct)
    (store.data / "svhn").mkdir()
    with tarfile.open(store.data / "svhn" / "train.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "train", "train")
    monkeypatch.setenv("PTN_CACHE", "/dev/null/cache")
    assert load_svhn("train").labels.tolist() == [0, 6, 3]


def test_an_archive_without_boxes_is_named(store):
    (store.data / "svhn").mkdir()
    with tarfile.open(store.data / "svhn" / "train.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("train/1.png"), io.BytesIO(b""))
    with pytest.raises(InputError, match=r"train.tar.gz holds no digitStruct.mat"):
        load_svhn("train")


def test_a_missing_photo_is_named_and_nothing_cached(store, write_digit_struct):
    folder = store.data / "svhn" / "train"
    write_photos(folder, write_digit_struct)
    (folder / "2.png").unlink()
    with pytest.raises(InputError, match=r"cannot read .*2\.png"):
        load_svhn("train")
    assert not (store.cache / "generated").exists()


@pytest.mark.parametrize(
    ("tiles", "labels", "words"),
    [
        (COUNT, LABELS[:64], "train_00.jpg is 3072×96 pixels, not 64×1 tiles"),
        (64, LABELS, "train_00.jpg is 3072×48 pixels, not 64×2 tiles"),
        (COUNT, np.zeros(5000, dtype=np.uint8), "about 5000 digits; 1 atlases"),
    ],
)
def test_labels_that_do_not_match_the_tiles_are_named(store, tiles, labels, words):
    write_atlas(store, smooth_tiles(tiles), labels=labels)
    with pytest.raises(InputError, match=words):
        load_svhn("train")


def test_a_truncated_atlas_is_named(store):
    write_atlas(store, smooth_tiles())
    path = store.data / "svhn" / "train_00.jpg"
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(InputError, match=r"cannot read .*train_00.jpg"):
        load_svhn("train")


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({"split": "train"}, "ptn data fetch svhn$"),
        ({"split": "test", "rotated": True}, "ptn data fetch rotsvhn$"),
        ({"split": "extra"}, "ptn data fetch svhn-extra$"),
    ],
)
def test_without_files_the_error_says_how_to_get_them(store, options, command):
    with pytest.raises(InputError, match=command):
        load_svhn(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 40}, "no images of size 40: take 32 or 48"),
        ({"scale": (0.6, 1.0)}, "only rotated SVHN is scaled"),
        ({"rotated": True, "scale": (1.0, 0.6)}, "two factors in order"),
        ({"rotated": True, "scale": (0.6, 1.2)}, "at most 1"),
    ],
)
def test_sizes_and_scales_that_there_are_not_are_refused(store, options, says):
    with pytest.raises(InputError, match=says):
        load_svhn("train", **options)


def test_an_unknown_split_is_refused(store):
    with pytest.raises(InputError, match=r"unknown split 'vali'; did you mean 'valid'"):
        load_svhn("vali")


def test_the_wider_field_turned_is_seen_through_the_disc_that_the_tile_covers(store):
    write_atlas(store, np.full((COUNT, 48, 48, 3), 200, dtype=np.uint8))
    images = load_svhn("train", rotated=True, size=48).images
    y, x = np.mgrid[:48, :48] - 23.5
    covered = torch.from_numpy(np.hypot(x, y) <= 23.5)
    assert images.shape == (COUNT, 3, 48, 48)
    assert torch.equal(images, 200 * covered.byte().expand_as(images))


def test_the_wider_field_turned_has_the_usual_one_in_its_middle(store):
    write_atlas(store, smooth_tiles())
    wide, crop = load_svhn("train", rotated=True, size=48), load_svhn("train", rotated=True)
    assert torch.equal(wide.images[:, :, 8:40, 8:40], crop.images)
    assert torch.equal(wide.meta["rotation"], crop.meta["rotation"])


def test_a_shrunk_tile_shows_more_at_the_same_angle(store):
    write_atlas(store, smooth_tiles())
    data = load_svhn("train", rotated=True, scale=(0.6, 1.0))
    assert torch.equal(data.meta["rotation"], load_svhn("train", rotated=True).meta["rotation"])
    angles, factors = (data.meta[key].double().numpy()[:, None, None] for key in ("rotation", "scale"))
    assert factors.min() < 0.65
    assert 0.95 < factors.max() <= 1
    y, x = np.mgrid[:32, :32] - 15.5
    from_x = (np.cos(angles) * x + np.sin(angles) * y) / factors
    from_y = (np.cos(angles) * y - np.sin(angles) * x) / factors
    expected = waves(from_x + 23.5, from_y + 23.5, np.arange(COUNT)[:, None, None])
    radius = np.hypot(x, y) / factors
    images = data.images.permute(0, 2, 3, 1).numpy()
    assert np.abs(images - expected)[radius < 21].max() < 8
    assert (images[radius > 23.6] == 0).all()


def test_what_is_held_out_is_the_rest_of_the_training_digits(store):
    write_atlas(store, smooth_tiles())
    whole, fit, valid = (load_svhn(split, rotated=True) for split in ("train", "fit", "valid"))
    assert (fit.split, valid.split, len(valid)) == ("fit", "valid", 60)  # of so few one block
    ids = torch.cat((fit.meta["image_id"], valid.meta["image_id"]))
    assert torch.equal(ids.sort().values, whole.meta["image_id"])
    assert torch.equal(valid.images, whole.images[valid.meta["image_id"] - 1])
    assert len({part.meta["sha256"] for part in (whole, fit, valid)}) == 3
    minus = load_svhn("valid", rotated=True, minus=True)
    assert set(minus.meta["image_id"].tolist()) <= set(valid.meta["image_id"].tolist())


def test_of_the_real_count_6000_digits_are_held_out_in_blocks():
    held_out = held_out_digits(73_257)
    assert int(held_out.sum()) == 6_000
    assert int((held_out[1:] != held_out[:-1]).sum()) <= 200
    assert torch.equal(held_out, held_out_digits(73_257))


def test_training_tiles_are_for_the_splits_that_are_trained_on(store):
    for split in ("train", "test"):
        write_atlas(store, smooth_tiles(), split=split)
    tiles = load_svhn("train", size=48).images
    for options in ({}, {"rotated": True}, {"rotated": True, "scale": (0.6, 1.0)}):
        assert torch.equal(load_svhn("train", training_tiles=True, **options).images, tiles)
        for split in ("valid", "test"):
            plain, same = (load_svhn(split, training_tiles=on, **options) for on in (False, True))
            assert torch.equal(plain.images, same.images)
            assert plain.meta["sha256"] == same.meta["sha256"]
    assert len(load_svhn("fit", training_tiles=True)) == 10


HISTOGRAMS = {
    "train": [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    "test": [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
}


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_real_svhn_has_its_known_counts(real_data, split):
    data = load_svhn(split)
    assert len(data) == {"train": 73257, "test": 26032}[split]
    assert data.images.shape[1:] == (3, 32, 32)
    assert data.labels.bincount().tolist() == HISTOGRAMS[split]
    assert (data.images.min(), data.images.max()) == (0, 255)
    assert data.images.float().mean().item() == pytest.approx({"train": 115, "test": 117}[split], abs=3)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_real_rotsvhn_is_turned_all_round(real_data, split):
    data = load_svhn(split, rotated=True)
    assert data.labels.bincount().tolist() == HISTOGRAMS[split]
    turns = (data.meta["rotation"] / (2 * math.pi) * 8).long().bincount(minlength=8)
    assert turns.min() > 0.9 * len(data) / 8
    minus = load_svhn(split, rotated=True, minus=True)
    assert len(minus) == len(data) - HISTOGRAMS[split][6] - HISTOGRAMS[split][9]
