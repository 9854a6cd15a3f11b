"""Folders of images: layouts, splits, damaged files, options."""

import logging

import numpy as np
import pytest
from PIL import Image

from ptn.data.folder import list_flat, load_folder, read_flat
from ptn.errors import InputError

RANDOM = np.random.default_rng(0)


def save(path, value=None, *, size=(8, 6), mode="L", **options):
    """Write an image of one value, or of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = len(Image.new(mode, (1, 1)).getbands())
    shape = (*size, channels) if channels > 1 else size
    pixels = RANDOM.integers(0, 256, shape) if value is None else np.full(shape, value)
    Image.fromarray(pixels.astype(np.uint8)).save(path, **options)


@pytest.fixture
def flat(tmp_path):
    """A folder of two classes with 20 and 40 images, each of its own gray level."""
    for index in range(60):
        save(tmp_path / "pets" / ("cat" if index < 20 else "dog") / f"{index:02}.png", index)
    return tmp_path / "pets"


def levels(data):
    return data.images[:, 0, 0, 0].tolist()


def test_a_folder_of_classes_is_split_class_by_class_without_overlap(flat):
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


def test_names_that_are_not_unicode_are_refused(flat):
    (flat / "cat").rename(flat / "c\udcfft")
    with pytest.raises(InputError, match="Unicode"):
        load_folder(flat, "train", image_size=4)
    with pytest.raises(InputError, match="Unicode"):
        load_folder(
            (flat / "c\udcfft").rename(flat / "cat").parent.rename(flat.parent / "\udcff"), "train", image_size=4
        )


@pytest.mark.parametrize("valid_name", ["valid", "val"])
def test_splits_with_folders_have_the_images_of_their_folders(tmp_path, valid_name):
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


def test_a_small_class_keeps_a_training_image(tmp_path):
    save(tmp_path / "one" / "a.png")
    for index in range(10):
        save(tmp_path / "many" / f"{index}.png")
    data = load_folder(tmp_path, "train", image_size=4, valid_fraction=0.45, test_fraction=0.5)
    assert data.labels.bincount().tolist() == [1, 1]
    with pytest.raises(InputError, match="no images for valid: add images, or folders train and valid"):
        load_folder(tmp_path, "valid", image_size=4, valid_fraction=0.01)


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


def test_color_depends_on_all_splits_and_can_be_chosen(tmp_path):
    for name in ("train/a/1.png", "train/b/2.png", "test/a/3.png"):
        save(tmp_path / name, 50)
    save(tmp_path / "test/b/4.png", (200, 100, 0), mode="RGB")
    assert load_folder(tmp_path, "train", image_size=4).images.shape == (2, 3, 4, 4)
    gray = load_folder(tmp_path, "test", image_size=4, channels=1)
    assert gray.images.shape == (2, 1, 4, 4)
    assert levels(gray) == [50, round(0.299 * 200 + 0.587 * 100)]
    assert load_folder(tmp_path, "train", image_size=4, channels=3).images[0, :, 0, 0].tolist() == [50] * 3


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["1.png", "2.png"], "it has 0"),
        (["only/1.png"], "it has 1"),
        (["a/1.png", "b/readme.txt"], "b has no images"),
        (["train/a/1.png", "train/b/2.png", "test/c/3.png"], "test/c is a class that .*train does not have"),
        (["test/a/1.png", "test/b/2.png"], "no folder train"),
    ],
)
def test_a_folder_without_a_usable_layout_is_explained(tmp_path, files, words):
    for name in files:
        save(tmp_path / name, format="PNG")
    with pytest.raises(InputError, match=words):
        load_folder(tmp_path, "train", image_size=4)
    with pytest.raises(InputError, match=r"no folder at .*nowhere"):
        load_folder(tmp_path / "nowhere", "train", image_size=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"image_size": size}, "image_size must be") for size in (0, (8, -1), "abc", [16])),
        ({"channels": 2}, "unknown value of channels 2"),
        ({"split": "all"}, "unknown split 'all'"),
        ({"fit": "crop"}, "unknown value of fit 'crop'"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "test_fraction must be"),
    ],
)
def test_impossible_options_are_refused(flat, options, words):
    with pytest.raises(InputError, match=words):
        load_folder(flat, **({"split": "train", "image_size": 4} | options))
    assert load_folder(flat, "train", image_size=np.int64(4)).images.shape == (42, 1, 4, 4)


def test_images_directly_in_a_folder_are_listed_and_read(tmp_path):
    for index in (2, 1):
        save(tmp_path / f"{index}.png", index)
    save(tmp_path / ".hidden.png")
    (tmp_path / "bad.png").write_text("no image")
    files = list_flat(tmp_path)
    assert [path.name for path in files] == ["1.png", "2.png", "bad.png"]
    assert read_flat(files, (4, 4), 1, "resize")[:, 0, 0, 0].tolist() == [1, 2]
    save(tmp_path / "class" / "3.png")
    assert list_flat(tmp_path) == []
