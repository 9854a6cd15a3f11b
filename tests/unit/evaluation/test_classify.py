"""Scores, test-time augmentation and test errors, against cases computed by hand."""

import math

import pytest
import torch
from torch import nn

import ptn
from ptn.data.dataset import Dataset, VoxelDataset
from ptn.errors import InputError
from ptn.evaluation import (
    DivergedError,
    accuracy_by_angle,
    evaluate,
    match_classes,
    origin_changes_px,
    origin_error_px,
    origin_offsets_px,
    scores,
)
from ptn.layers.origin import Location

NAMES = ("ant", "bee", "cow")


class Lookup(nn.Module):
    """Logits from a table: an image whose pixels all have the value k gets row k."""

    def __init__(self, table):
        super().__init__()
        self.table = torch.tensor(table, dtype=torch.float32)
        self.sizes = []

    def forward(self, images):
        self.sizes.append(len(images))
        return self.table[(images.flatten(1).mean(dim=1) * 255).round().long()]


class Moments(nn.Module):
    """Logits that are the first moments of an image or a volume along some axes."""

    def __init__(self, size, axes):
        super().__init__()
        self.register_buffer("ramp", torch.linspace(-1, 1, size, dtype=torch.float64))
        self.axes = axes

    def forward(self, images):
        sums = [images.sum(dim=[dim for dim in range(1, images.dim()) if dim != axis]) for axis in self.axes]
        return torch.stack([values.to(self.ramp.dtype) @ self.ramp for values in sums], dim=1)


def numbered(count):
    """Images of 2×2 pixels, all of value k in the k-th image."""
    return torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)


def labeled(labels, names=NAMES, **meta):
    return Dataset("toy", "test", numbered(len(labels)), torch.tensor(labels, dtype=torch.int64), names, meta)


def packed(volumes, labels, names=NAMES):
    bits = volumes.reshape(len(volumes), volumes.shape[-1] ** 3 // 8, 8)
    rows = (bits.long() * 2 ** torch.arange(7, -1, -1)).sum(dim=2).byte()
    return VoxelDataset("solids", "test", rows, volumes.shape[-1], labels, names)


def test_scores_are_the_softmax_of_the_logits_for_any_batch_size():
    table = torch.randn(7, 3)
    model = Lookup(table.tolist())
    for batch, sizes in ((None, [7]), (3, [3, 3, 1])):
        model.sizes.clear()
        done = []
        result = scores(model, numbered(7), batch=batch, progress=lambda *counts, done=done: done.append(counts))
        assert model.sizes == sizes
        assert done == [(sum(sizes[: k + 1]), 7) for k in range(len(sizes))]
        assert (result.dtype, result.device.type) == (torch.float32, "cpu")
        torch.testing.assert_close(result, table.softmax(dim=1))
    for images in (numbered(7).float() / 255, labeled([0, 1, 2, 0, 0, 0, 0])):
        assert torch.equal(scores(model, images), result)


@pytest.mark.parametrize("shape", [(5, 1, 8, 8), (3, 1, 8, 8, 8)])
def test_tta_averages_the_softmax_over_rotations_about_z(shape):
    images = torch.rand(shape, dtype=torch.float64)
    model = Moments(8, axes=range(2, len(shape)))
    expected = torch.stack([model(torch.rot90(images, k, dims=(2, 3))).softmax(dim=1) for k in range(4)])
    torch.testing.assert_close(scores(model, images, rotations=4), expected.mean(dim=0).float())


def test_packed_voxels_give_the_scores_of_unpacked_ones():
    volumes = (torch.rand(7, 1, 8, 8, 8) > 0.7).byte()
    model = Moments(8, axes=(2, 3, 4))
    expected = model(volumes.double()).softmax(dim=1).float()
    torch.testing.assert_close(scores(model, packed(volumes, torch.zeros(7, dtype=torch.int64)), batch=3), expected)
    torch.testing.assert_close(scores(model, volumes), expected)  # uint8 voxels are 0 or 1


def test_scores_do_not_change_the_model():
    model = ptn.create_model("ptn_s", image_size=20, num_classes=3, dropout=0.9).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.rand(7, 1, 20, 20)
    first, second = (scores(model, images, batch=3) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(first, model.eval()(images).softmax(dim=1), atol=1e-6, rtol=0)


def test_an_empty_set_has_scores_of_shape_0_by_classes():
    model = ptn.create_model("ptn_s", image_size=20, num_classes=3)
    assert scores(model, torch.zeros(0, 1, 20, 20, dtype=torch.uint8), rotations=2).shape == (0, 3)


@pytest.mark.parametrize(
    ("model", "options", "word"),
    [
        (Lookup([[0.0]]), {"rotations": 0}, "rotations"),
        (Lookup([[0.0]]), {"batch": 0}, "batch"),
        (Lookup([[0.0]]), {"origins": 3}, "origins"),
        (Lookup([[0.0]]), {"origins": 5}, "polar transformer"),
        (ptn.create_model("stn_s", image_size=20), {"origins": 5}, "stn_s"),
    ],
)
def test_invalid_options_of_scores(model, options, word):
    with pytest.raises(InputError, match=word):
        scores(model, numbered(100), **options)


def lively(name, **options):
    """A network in evaluation mode whose predicted origins depend on the image."""
    model = ptn.create_model(name, **{"image_size": (20, 30), "num_classes": 3, **options}).eval()
    predictor = getattr(model.transformer, "polar", model.transformer).predictor
    if predictor is not None:
        nn.init.normal_(predictor.head.weight)
    return model


def test_a_neighboring_origin_is_a_shift_by_a_pixel():
    model = lively("pcnn_s")
    images = torch.zeros(4, 1, 20, 30)
    images[..., 1:-1, 1:-1] = torch.rand(4, 1, 18, 28)
    shifts = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)]
    expected = torch.stack([scores(model, images.roll(shift, dims=(2, 3))) for shift in shifts]).mean(dim=0)
    averaged = scores(model, images, origins=5)
    torch.testing.assert_close(averaged, expected)
    assert (averaged - scores(model, images)).abs().max() > 1e-4


@pytest.mark.parametrize(("name", "size"), [("ptn_s", (20, 30)), ("cylindrical", (8, 8))])
def test_the_neighbors_are_those_of_the_predicted_origin(name, size):
    model = lively(name, image_size=size if name == "ptn_s" else 8)
    images = torch.rand(5, *model.input_shape)
    origins = model.explain(images).origins
    assert name == "cylindrical" or origins.std(dim=0).min() > 1e-3
    x, y = 2 / size[1], 2 / size[0]
    steps = torch.tensor([(0, 0), (x, 0), (-x, 0), (0, y), (0, -y)])
    with torch.no_grad():
        expected = torch.stack([model(images, origin=origins + step).softmax(dim=1) for step in steps]).mean(dim=0)
    torch.testing.assert_close(scores(model, images, origins=5, batch=2), expected)
    torch.testing.assert_close(scores(ptn.for_inference(model), images, origins=5), expected)


def test_the_results_of_a_small_set():
    predictions = [0, 0, 1, 2, 2, 2]  # ant: 2 of 3, bee: 0 of 1, cow: 2 of 2
    model = Lookup(nn.functional.one_hot(torch.tensor(predictions), 3).tolist())
    result = evaluate(model, labeled([0, 0, 0, 1, 2, 2]), batch=4)
    assert (result.n, result.error) == (6, pytest.approx(100 * 2 / 6))
    assert result.accuracy == pytest.approx(100 * 4 / 6)
    assert result.per_class == pytest.approx((200 / 3, 0, 100))
    assert result.class_accuracy == pytest.approx((200 / 3 + 0 + 100) / 3)
    assert result.confusion.tolist() == [[2, 1, 0], [0, 0, 1], [0, 0, 2]]


def test_a_class_without_samples_is_left_out_of_the_mean():
    result = evaluate(torch.eye(3)[[0, 1, 2, 2]], labeled([0, 0, 2, 2]))
    assert (result.per_class, result.class_accuracy, result.accuracy) == ((50.0, None, 100.0), 75.0, 75.0)
    empty = evaluate(torch.zeros(0, 3), labeled([]))
    assert (empty.n, empty.error, empty.class_accuracy, empty.per_class) == (0, 0.0, 0.0, (None,) * 3)


def test_scores_that_cannot_be_evaluated():
    with pytest.raises(InputError, match=r"shape \(2, 4\)"):
        evaluate(torch.zeros(2, 4), labeled([0, 1]))
    with pytest.raises(InputError, match="rotations"):
        evaluate(torch.zeros(2, 3), labeled([0, 1]), rotations=8)
    with pytest.raises(DivergedError, match="1 of 2 images"):
        evaluate(Lookup([[0.0, 1.0, 0.0], [math.nan, 0.0, 0.0]]), labeled([0, 0]))


def test_labels_follow_the_order_of_the_classes_of_the_model():
    matched = match_classes(labeled([0, 1, 1], names=("cow", "ant")), NAMES)
    assert (matched.classes, matched.labels.tolist()) == (NAMES, [2, 0, 0])
    assert match_classes(matched, NAMES) is matched
    with pytest.raises(InputError, match="'ewe'"):
        match_classes(labeled([0], names=("ewe",)), NAMES)


class LeftOrRight(nn.Module):
    """Logits: the sums over the left and the right half."""

    def forward(self, images):
        left, right = images.chunk(2, dim=3)
        return torch.stack((left.flatten(1).sum(dim=1), right.flatten(1).sum(dim=1)), dim=1)


def test_accuracy_by_angle_takes_the_center_of_larger_images():
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    images[..., 4:] = 200
    digits = Dataset("halves", "test", images, torch.tensor([1]), ("left", "right"))
    model = LeftOrRight().train()
    assert accuracy_by_angle(model, digits, (0, 60, 180), size=(4, 4)) == [100, 100, 0]
    assert model.training


def test_origin_error_is_the_distance_in_pixels():
    # An untrained predictor returns the center; true centers are k pixels away, alternately along x and y.
    model = ptn.create_model("ptn_s", image_size=(20, 40), num_classes=3)
    offsets = torch.tensor([[k, 0.0] if k % 2 else [0.0, k] for k in range(1, 11)])
    images = torch.randint(0, 255, (10, 1, 20, 40), dtype=torch.uint8)
    meta = {"center": offsets / torch.tensor([20.0, 10.0])}
    dataset = Dataset("toy", "test", images, torch.zeros(10, dtype=torch.int64), NAMES, meta)
    assert origin_error_px(model, dataset) == pytest.approx((5.5, 9.1), abs=1e-5)
    model.transformer.locate = lambda images: Location(torch.tensor([[0.5, -0.5]]).expand(len(images), 2), None)
    torch.testing.assert_close(origin_offsets_px(model, dataset)[0], torch.tensor([10.0, -5.0]).double())


def test_origins_that_rotate_with_the_image_do_not_change():
    images = (255 * torch.rand(5, 1, 20, 20)).byte()
    for turns, limit in ((4, 1e-4), (1, None)):
        model = ptn.create_model("ptn_s", image_size=20, origin_turns=turns)
        torch.nn.init.normal_(model.transformer.predictor.head.weight)
        changes = origin_changes_px(model, images)
        assert changes.shape == (5,)
        assert changes.max() < limit if limit else changes.max() > 1e-3
    assert origin_changes_px(ptn.create_model("ccnn_s", image_size=20), images) is None
