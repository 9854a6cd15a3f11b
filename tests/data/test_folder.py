"""A user's own images, in all the ways people keep them."""

import logging

import numpy as np
import pytest
import torch
from PIL import Image

from ptn.data.folder import load_folder
from ptn.errors import InputError

RANDOM = np.random.default_rng(0)


def save(path, value=None, *, size=(8, 6), mode="L", **options):
    """An image file of one value, or of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = len(Image.new(mode, (1, 1)).getbands())
    shape = (*size, channels) if channels > 1 else size
    pixels = RANDOM.integers(0, 256, shape) if value is None else np.full(shape, value)
    Image.fromarray(pixels.astype(np.uint8)).save(path, **options)


@pytest.fixture
def flat(tmp_path):
    """One folder of two classes, 20 and 40 images, each of a grey level of its own."""
    for index in range(60):
        save(tmp_path / "pets" / ("cat" if index < 20 else "dog") / f"{index:02}.png", index)
    return tmp_path / "pets"


def levels(data):
    return data.images[:, 0, 0, 0].tolist()


def test_a_flat_folder_is_split_class_by_class_without_overlap(flat):
    parts = {split: load_folder(flat, split, image_size=4) for split in ("train", "valid", "test")}
    assert [part.labels.bincount().tolist() for part in parts.values()] == [[14, 28], [3, 6], [3, 6]]
    assert sorted(level for part in parts.values() for level in levels(part)) == list(range(60))
    for part in parts.values():
        assert part.classes == ("cat", "dog")
        assert part.name == "pets"
        assert part.images.shape[1:] == (1, 4, 4)
        assert [int(name[4:6]) for name in part.meta["files"]] == levels(part)
        assert all((level >= 20) == bool(label) for level, label in zip(levels(part), part.labels, strict=True))


def test_the_split_depends_on_the_seed_and_not_on_the_listing(flat, monkeypatch):
    before = load_folder(flat, "valid", image_size=4)
    other = load_folder(flat, "valid", image_size=4, seed=1)
    assert before.meta["files"] != other.meta["files"]
    listed = type(flat).rglob
    monkeypatch.setattr(type(flat), "rglob", lambda path, pattern: reversed(list(listed(path, pattern))))
    after = load_folder(flat, "valid", image_size=4)
    assert after.meta["files"] == before.meta["files"]
    assert after.meta["sha256"] == before.meta["sha256"]


def test_fractions_of_zero_leave_everything_to_train_on(flat):
    assert len(load_folder(flat, "train", image_size=4, valid_fraction=0, test_fraction=0)) == 60
    with pytest.raises(InputError, match=r"no images for valid: add a folder valid, or raise valid_fraction"):
        load_folder(flat, "valid", image_size=4, valid_fraction=0)


@pytest.mark.parametrize("valid_name", ["valid", "val"])
def test_splits_with_folders_are_taken_as_they_are(tmp_path, valid_name):
    for index, split in enumerate(["train"] * 6 + [valid_name] * 4 + ["test"] * 2):
        save(tmp_path / split / ("a" if index % 2 else "b") / f"{index}.png", index)
    for split, expected in (("train", range(6)), ("valid", range(6, 10)), ("test", range(10, 12))):
        data = load_folder(tmp_path, split, image_size=4)
        assert sorted(levels(data)) == list(expected)
        assert data.labels.bincount().tolist() == [len(expected) // 2] * 2


def test_a_split_without_a_folder_is_drawn_from_train_alone(tmp_path):
    for index in range(50):
        save(tmp_path / ("train" if index < 40 else "test") / ("a" if index % 2 else "b") / f"{index}.png", index)
    train, valid, test = (load_folder(tmp_path, split, image_size=4) for split in ("train", "valid", "test"))
    assert sorted(levels(train) + levels(valid)) == list(range(40))
    assert len(valid) == 6
    assert sorted(levels(test)) == list(range(40, 50))


def test_a_tiny_class_keeps_an_image_to_train_on(tmp_path):
    save(tmp_path / "one" / "a.png")
    for index in range(10):
        save(tmp_path / "many" / f"{index}.png")
    data = load_folder(tmp_path, "train", image_size=4, valid_fraction=0.45, test_fraction=0.5)
    assert data.labels.bincount().tolist() == [1, 1]


def test_nested_files_count_and_hidden_and_other_files_do_not(tmp_path):
    save(tmp_path / "a" / "deep" / "deeper" / "1.PNG", 1)
    save(tmp_path / "b" / "2.png", 2)
    save(tmp_path / "b" / ".hidden.png", 3)
    save(tmp_path / "b" / ".cache" / "4.png", 4)
    save(tmp_path / ".git" / "5.png", 5)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    data = load_folder(tmp_path, "train", image_size=4)
    assert data.meta["files"] == ("a/deep/deeper/1.PNG", "b/2.png")
    assert data.meta["skipped"] == ()


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_corrupt_files_are_named_and_skipped(flat, suffix, caplog):
    bad = [flat / "cat" / f"empty.{suffix}", flat / "cat" / f"half.{suffix}", flat / "dog" / f"text.{suffix}"]
    bad[0].touch()
    save(bad[1], size=(64, 64))
    bad[1].write_bytes(bad[1].read_bytes()[:-1000])
    bad[2].write_text("no image")
    with caplog.at_level(logging.WARNING, "ptn"):
        data = load_folder(flat, "train", image_size=4, valid_fraction=0, test_fraction=0)
    assert sorted(levels(data)) == list(range(60))
    assert set(data.meta["skipped"]) == {path.relative_to(flat).as_posix() for path in bad}
    for path in bad:
        assert str(path) in caplog.text


def test_a_class_whose_images_are_all_corrupt_is_an_error(tmp_path):
    save(tmp_path / "good" / "1.png")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "1.png").write_text("no image")
    with pytest.raises(InputError, match=r"no image of class bad can be read"):
        load_folder(tmp_path, "train", image_size=4)


def one_image(tmp_path, image, name="x.png", **options):
    """What `load_folder` makes of one image."""
    save(tmp_path / "other" / "1.png", 0)
    (tmp_path / "this").mkdir()
    image.save(tmp_path / "this" / name)
    data = load_folder(tmp_path, "train", **({"image_size": image.size[::-1]} | options))
    return data.images[data.labels == 1][0]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("L", (4, 4), 77), [77]),
        (Image.new("1", (4, 4), 1), [255]),
        (Image.new("RGB", (4, 4), (10, 20, 30)), [10, 20, 30]),
        (Image.new("RGBA", (4, 4), (10, 20, 30, 0)), [255, 255, 255]),
        (Image.new("RGBA", (4, 4), (10, 20, 30, 255)), [10, 20, 30]),
        (Image.new("LA", (4, 4), (0, 0)), [255]),
        (Image.new("RGB", (4, 4), (255, 0, 0)).quantize(), [255, 0, 0]),
        (Image.fromarray(np.full((4, 4), 65535, dtype=np.uint16)), [255]),
        (Image.fromarray(np.full((4, 4), 257 * 100, dtype=np.uint16)), [100]),
    ],
)
def test_any_mode_becomes_grey_or_colour(tmp_path, image, expected):
    pixels = one_image(tmp_path, image)
    assert pixels[:, 2, 2].tolist() == expected


def test_colour_is_decided_by_all_splits_and_can_be_chosen(tmp_path):
    for name in ("train/a/1.png", "train/b/2.png", "test/a/3.png"):
        save(tmp_path / name, 50)
    save(tmp_path / "test/b/4.png", (200, 100, 0), mode="RGB")
    assert load_folder(tmp_path, "train", image_size=4).images.shape == (2, 3, 4, 4)
    grey = load_folder(tmp_path, "test", image_size=4, channels=1)
    assert grey.images.shape == (2, 1, 4, 4)
    assert levels(grey) == [50, round(0.299 * 200 + 0.587 * 100)]
    assert load_folder(tmp_path, "train", image_size=4, channels=3).images[0, :, 0, 0].tolist() == [50] * 3


def test_the_orientation_of_the_camera_is_applied(tmp_path):
    image = Image.new("L", (6, 4), 0)
    image.paste(255, (0, 0, 6, 1))  # a bright top row
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned: to be shown a quarter turn clockwise
    (tmp_path / "this").mkdir()
    image.save(tmp_path / "this" / "x.png", exif=exif)
    save(tmp_path / "other" / "1.png", 0)
    data = load_folder(tmp_path, "train", image_size=(6, 4))
    shown = data.images[data.labels == 1][0, 0]
    assert (shown[:, 3] == 255).all()
    assert (shown[:, :3] == 0).all()


def test_resize_stretches_and_pad_keeps_the_shape(tmp_path):
    wide = Image.new("L", (40, 20), 200)
    stretched = one_image(tmp_path / "a", wide, image_size=10)
    assert (stretched == 200).all()
    padded = one_image(tmp_path / "b", wide, image_size=10, fit="pad")
    assert padded.shape == (1, 10, 10)
    assert (padded[:, 2:7] == 200).all()
    assert (padded[:, :2] == 0).all()
    assert (padded[:, 7:] == 0).all()


def test_shrinking_averages_instead_of_skipping_pixels(tmp_path):
    lines = np.zeros((64, 64), dtype=np.uint8)
    lines[:, ::8] = 240  # one bright column in eight, away from the middles of the new pixels
    pixels = one_image(tmp_path, Image.fromarray(lines), image_size=8)
    assert pixels.float().mean().item() == pytest.approx(30, abs=3)


def test_an_image_of_the_right_size_is_not_touched(tmp_path):
    noise = RANDOM.integers(0, 256, (9, 7, 3), dtype=np.uint8)
    for fit in ("resize", "pad"):
        pixels = one_image(tmp_path / fit, Image.fromarray(noise), fit=fit)
        assert torch.equal(pixels, torch.from_numpy(noise).permute(2, 0, 1))


def test_a_changed_file_changes_the_hash(flat):
    before = load_folder(flat, "train", image_size=4, valid_fraction=0, test_fraction=0).meta["sha256"]
    save(flat / "cat" / "00.png", 99)
    assert load_folder(flat, "train", image_size=4, valid_fraction=0, test_fraction=0).meta["sha256"] != before


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "has no class: put the images into a folder for each class"),
        (["1.png", "2.png"], "has no class"),
        (["only/1.png"], "has only the class only"),
        (["a/1.png", "b/readme.txt"], "b has no images: every class needs some"),
        (["train/a/1.png", "train/b/2.png", "test/c/3.png"], "test/c is a class that .*train does not have"),
        (["test/a/1.png", "test/b/2.png"], "has test but no folder train beside it"),
    ],
)
def test_a_folder_without_a_usable_layout_is_explained(tmp_path, files, words):
    for name in files:
        path = tmp_path / name
        if path.suffix == ".png":
            save(path)
        else:
            path.parent.mkdir(parents=True)
            path.touch()
    with pytest.raises(InputError, match=words) as caught:
        load_folder(tmp_path, "train", image_size=4)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("split", "options", "words"),
    [
        ("all", {}, "unknown split 'all'"),
        ("train", {"fit": "crop"}, "unknown fit 'crop'"),
        ("train", {"image_size": 0}, "image_size must be positive"),
        ("train", {"image_size": (8, -1)}, "image_size must be positive"),
        ("train", {"image_size": None}, "image_size must be a whole number, or two: height and width; got None"),
        ("train", {"image_size": (8,)}, r"or two: height and width; got \(8,\)"),
        ("train", {"image_size": (8, 8, 3)}, "or two: height and width"),
        ("train", {"image_size": 8.0}, "must be a whole number"),
        ("train", {"image_size": "8"}, "must be a whole number"),
        ("train", {"image_size": True}, "must be a whole number"),
        ("train", {"seed": "abc"}, "seed must be a whole number"),
        ("train", {"channels": 4}, "channels must be 1 or 3"),
        ("train", {"valid_fraction": 0.5, "test_fraction": 0.5}, "must leave images to train on"),
    ],
)
def test_options_that_make_no_sense_are_refused(flat, split, options, words):
    with pytest.raises(InputError, match=words):
        load_folder(flat, split, **({"image_size": 4} | options))


@pytest.mark.parametrize("size", [np.int64(8), (np.int32(8), 8), [8, 8], np.array([8, 8])], ids=repr)
def test_a_size_may_come_from_numpy(flat, size):
    assert load_folder(flat, "test", image_size=size).images.shape[2:] == (8, 8)


def test_images_without_a_known_white_are_named_and_skipped(flat, caplog):
    depth = flat / "cat" / "depth.tif"
    Image.fromarray(np.full((8, 6), 100_000, dtype=np.int32)).save(depth)
    with caplog.at_level(logging.WARNING, "ptn"):
        data = load_folder(flat, "train", image_size=4, valid_fraction=0, test_fraction=0)
    assert data.meta["skipped"] == ("cat/depth.tif",)
    assert f"skipped {depth}: mode I, 32-bit integers" in caplog.text


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no folder at .*nowhere"):
        load_folder(tmp_path / "nowhere", "train", image_size=4)
