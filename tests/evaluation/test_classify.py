"""Scores, averages over rotations and models, and the numbers that follow from them, against hand-made cases."""

import math

import pytest
import torch
from torch import nn

import ptn
from ptn.data.dataset import Dataset, VoxelDataset
from ptn.errors import InputError
from ptn.evaluation import (
    DivergedError,
    classify,
    ensemble_scores,
    evaluate,
    origin_error_px,
    origins_from_middle_px,
    scores,
)
from ptn.evaluation.classify import match_classes
from ptn.layers.origin import Location

NAMES = ("ant", "bee", "cow")


class Lookup(nn.Module):
    """Logits from a table: an image whose pixels are all the byte k gets row k."""

    def __init__(self, table):
        super().__init__()
        self.table = torch.tensor(table, dtype=torch.float32)
        self.sizes = []

    def forward(self, images):
        self.sizes.append(len(images))
        return self.table[(images.flatten(1).mean(dim=1) * 255).round().long()]


class Direction(nn.Module):
    """Logits that tell where the mass of an image or a volume lies: its first moment along each axis."""

    def __init__(self, size, axes):
        super().__init__()
        self.register_buffer("ramp", torch.linspace(-1, 1, size, dtype=torch.float64))
        self.axes = axes

    def forward(self, images):
        moments = []
        for axis in self.axes:
            others = [dim for dim in range(1, images.dim()) if dim != axis]
            moments.append(images.sum(dim=others) @ self.ramp)
        return torch.stack(moments, dim=1)


def numbered(count):
    """Images of 2×2 pixels, the k-th of which is k all over."""
    return torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)


def labelled(labels, names=NAMES, **meta):
    return Dataset("toy", "test", numbered(len(labels)), torch.tensor(labels, dtype=torch.int64), names, meta)


def packed(volumes, labels):
    """Volumes (N, 1, s, s, s) of zeros and ones as a packed data set."""
    bits = volumes.reshape(len(volumes), volumes.shape[-1] ** 3 // 8, 8)
    powers = 2 ** torch.arange(7, -1, -1)
    rows = (bits.long() * powers).sum(dim=2).byte()
    return VoxelDataset("solids", "test", rows, volumes.shape[-1], labels, NAMES)


def test_scores_are_the_softmax_of_the_logits_however_they_are_batched():
    table = torch.randn(7, 3)
    expected = table.softmax(dim=1)
    model = Lookup(table.tolist())
    for batch, sizes in ((None, [7]), (3, [3, 3, 1]), (7, [7])):
        model.sizes.clear()
        found = scores(model, numbered(7), batch=batch)
        assert model.sizes == sizes
        assert (found.dtype, found.device.type) == (torch.float32, "cpu")
        assert not found.is_inference()
        torch.testing.assert_close(found, expected)


def test_bytes_floats_and_data_sets_give_the_same_scores():
    model = Lookup(torch.randn(4, 3).tolist())
    as_bytes = scores(model, numbered(4))
    assert torch.equal(as_bytes, scores(model, numbered(4).float() / 255))
    assert torch.equal(as_bytes, scores(model, labelled([0, 1, 2, 0])))


def test_averaging_sums_softmax_over_quarter_turns():
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    model = Direction(8, axes=(2, 3))
    turns = [model(torch.rot90(images, k, dims=(2, 3))).softmax(dim=1) for k in range(4)]
    expected = torch.stack(turns).mean(dim=0).float()
    torch.testing.assert_close(scores(model, images, rotations=4), expected)


@pytest.mark.parametrize("rotations", [4, 8])
def test_averaging_makes_a_direction_sensitive_model_blind_to_quarter_turns(rotations):
    images = torch.rand(5, 1, 9, 9, dtype=torch.float64)
    turned = torch.rot90(images, 1, dims=(2, 3))
    model = Direction(9, axes=(2, 3))
    assert (scores(model, images) - scores(model, turned)).abs().max() > 0.1
    averaged = scores(model, images, rotations=rotations)
    torch.testing.assert_close(averaged, scores(model, turned, rotations=rotations))


def test_voxels_are_turned_about_z():
    volumes = torch.rand(3, 1, 8, 8, 8, dtype=torch.float64)
    model = Direction(8, axes=(2, 3, 4))
    turns = [model(torch.rot90(volumes, k, dims=(2, 3))).softmax(dim=1) for k in range(4)]
    expected = torch.stack(turns).mean(dim=0).float()
    torch.testing.assert_close(scores(model, volumes, rotations=4), expected)


def test_packed_voxels_are_unpacked_a_batch_at_a_time(monkeypatch):
    volumes = (torch.rand(7, 1, 8, 8, 8) > 0.7).byte()
    model = Direction(8, axes=(2, 3, 4))
    expected = model(volumes.double()).softmax(dim=1).float()
    unpacked = []

    def watched(rows, size):
        unpacked.append(len(rows))
        return unpack(rows, size)

    unpack = classify.unpack_voxels
    monkeypatch.setattr(classify, "unpack_voxels", watched)
    found = scores(model, packed(volumes, torch.zeros(7, dtype=torch.int64)), batch=3)
    assert unpacked == [3, 3, 1]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(scores(model, volumes), expected)  # bytes of voxels are 0 or 1, not 0 to 255


def test_the_model_evaluates_and_then_trains_on():
    model = ptn.create_model("ptn_s", image_size=20, num_classes=3, dropout=0.9).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.randint(0, 255, (6, 1, 20, 20), dtype=torch.uint8)
    first, second = (scores(model, images) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_progress_counts_images():
    seen = []
    scores(Lookup([[0.0, 1.0]] * 5), numbered(5), batch=2, progress=lambda *counts: seen.append(counts))
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("name", ["ptn_s", "ccnn_s", "stn_s", "ptn_cnn_b"])
def test_no_images_have_no_scores_but_classes(name):
    model = ptn.create_model(name, image_size=20, num_classes=3)
    assert scores(model, torch.zeros(0, 1, 20, 20, dtype=torch.uint8), rotations=2).shape == (0, 3)


def test_no_voxels_have_no_scores_but_classes():
    model = ptn.create_model("cylindrical", image_size=8, num_classes=3)
    empty = packed(torch.zeros(0, 1, 8, 8, 8), torch.zeros(0, dtype=torch.int64))
    assert scores(model, empty, rotations=2).shape == (0, 3)
    assert evaluate(model, empty).n == 0


def test_bf16_is_close_to_fp32_and_its_scores_sum_to_one():
    model = ptn.create_model("ptn_s", image_size=20, num_classes=3)
    images = torch.rand(4, 1, 20, 20)
    exact, rough = scores(model, images), scores(model, images, precision="bf16")
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(exact, rough, atol=0.03, rtol=0)
    torch.testing.assert_close(rough.sum(dim=1), torch.ones(4))


@pytest.mark.parametrize("options", [{"rotations": 0}, {"batch": 0}])
def test_no_rotation_and_no_batch_is_a_mistake(options):
    with pytest.raises(InputError, match="must be at least 1"):
        scores(Lookup([[0.0]]), numbered(1), **options)


def test_running_out_of_memory_says_what_to_lower():
    class Greedy(nn.Module):
        def forward(self, images):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 PiB")

    with pytest.raises(InputError, match="ran out of memory with 40 images at a time: use a smaller batch"):
        scores(Greedy(), numbered(100), batch=40)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_scores_of_the_cpu():
    model = ptn.create_model("ptn_s", image_size=20, num_classes=3)
    images = torch.randint(0, 255, (9, 1, 20, 20), dtype=torch.uint8)
    expected = scores(model, images, rotations=8)
    for precision, tolerance in (("fp32", 1e-5), ("tf32", 5e-3), ("bf16", 3e-2)):
        found = scores(model, images, rotations=8, device="cuda", precision=precision)
        assert found.device.type == "cpu"
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_the_numbers_of_a_small_set_by_hand():
    #        ant: 2 of 3 right         bee: 0 of 1    cow: 2 of 2
    labels = [0, 0, 0, 1, 2, 2]
    answers = [0, 0, 1, 2, 2, 2]
    given = torch.nn.functional.one_hot(torch.tensor(answers), 3).float()
    result = evaluate(given, labelled(labels))
    assert result.n == 6
    assert result.error == pytest.approx(100 * 2 / 6)
    assert result.accuracy == pytest.approx(100 * 4 / 6)
    assert result.per_class == pytest.approx((200 / 3, 0, 100))
    assert result.class_accuracy == pytest.approx((200 / 3 + 0 + 100) / 3)
    assert result.confusion.dtype == torch.int64
    assert result.confusion.tolist() == [[2, 1, 0], [0, 0, 1], [0, 0, 2]]


def test_a_model_is_evaluated_by_its_scores():
    model = Lookup([[3.0, 1, 0], [0, 1, 0], [0, 9, 0], [0, 0, 1]])
    result = evaluate(model, labelled([0, 1, 2, 2]), batch=3)
    assert (result.error, result.confusion.tolist()) == (25.0, [[1, 0, 0], [0, 1, 0], [0, 1, 1]])


def test_a_class_without_samples_has_no_accuracy_and_no_say():
    result = evaluate(torch.eye(3)[[0, 1, 2, 2]], labelled([0, 0, 2, 2]))
    assert result.per_class == (50.0, None, 100.0)
    assert result.class_accuracy == 75.0
    assert result.accuracy == 75.0


def test_an_empty_set_has_zeros_rather_than_nan():
    result = evaluate(torch.zeros(0, 3), labelled([]))
    assert (result.n, result.error, result.accuracy, result.class_accuracy) == (0, 0.0, 0.0, 0.0)
    assert result.per_class == (None, None, None)
    assert result.confusion.tolist() == [[0] * 3] * 3


def test_scores_that_do_not_fit_the_set_are_refused():
    with pytest.raises(InputError, match=r"toy test has 2 samples of 3 classes; the scores are \(2, 4\)"):
        evaluate(torch.zeros(2, 4), labelled([0, 1]))
    with pytest.raises(InputError, match="rotations would do nothing"):
        evaluate(torch.zeros(2, 3), labelled([0, 1]), rotations=8)


def test_a_diverged_model_is_not_given_an_error():
    with pytest.raises(DivergedError, match="the scores of 1 of 2 images are not finite"):
        evaluate(Lookup([[0.0, 1.0, 0.0], [math.nan, 0.0, 0.0]]), labelled([0, 0]))


def test_models_vote_by_the_sum_of_their_scores():
    # two of three prefer ant by a little, one bee by a lot
    votes = [torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([[0.0, 0.9, 0.1]])]
    together = ensemble_scores(votes)
    torch.testing.assert_close(together, torch.tensor([[1.0, 1.7, 0.3]]) / 3)
    assert evaluate(together, labelled([1])).error == 0
    assert evaluate(votes[0], labelled([1])).error == 100


def test_a_vote_needs_voters_on_the_same_question():
    with pytest.raises(InputError, match="at least one"):
        ensemble_scores([])
    with pytest.raises(InputError, match=r"got \(1, 3\), \(1, 4\)"):
        ensemble_scores([torch.zeros(1, 3), torch.zeros(1, 4)])


def test_a_sum_of_networks_is_the_ensemble_of_its_members():
    model = ptn.create_model("ptn_cnn_b", image_size=20, num_classes=3).eval()
    images = torch.rand(3, 1, 20, 20)
    members = [scores(member, images) for member in model.members]
    torch.testing.assert_close(scores(model, images), ensemble_scores(members))


def test_labels_follow_the_order_of_the_models_classes():
    dataset = labelled([0, 1, 1], names=("cow", "ant"))
    matched = match_classes(dataset, NAMES)
    assert matched.classes == NAMES
    assert matched.labels.tolist() == [2, 0, 0]
    assert match_classes(matched, NAMES) is matched
    with pytest.raises(InputError, match="toy has a class 'ewe' that the model does not know"):
        match_classes(labelled([0], names=("ewe",)), NAMES)


def test_origin_error_is_the_distance_in_pixels():
    # an untrained predictor points at the middle; centres lie k pixels from it, alternately along x and y
    model = ptn.create_model("ptn_s", image_size=(20, 40), num_classes=3)
    offsets = torch.tensor([[k, 0.0] if k % 2 else [0.0, k] for k in range(1, 11)])
    images = torch.randint(0, 255, (10, 1, 20, 40), dtype=torch.uint8)
    meta = {"center": offsets / torch.tensor([20.0, 10.0])}
    dataset = Dataset("toy", "test", images, torch.zeros(10, dtype=torch.int64), NAMES, meta)
    median, p90 = origin_error_px(model, dataset, batch=4)
    assert median == pytest.approx(5.5, abs=1e-5)
    assert p90 == pytest.approx(9.1, abs=1e-5)


def test_origins_are_counted_from_the_middle_of_any_image():
    images = torch.randint(0, 255, (3, 1, 20, 40), dtype=torch.uint8)
    dataset = Dataset("toy", "test", images, torch.zeros(3, dtype=torch.int64), NAMES)
    model = ptn.create_model("ptn_s", image_size=(20, 40))
    assert origins_from_middle_px(model, dataset).abs().max() < 1e-5
    model.transformer.locate = lambda images: Location(torch.tensor([[0.5, -0.5]]).expand(len(images), 2), None)
    assert torch.allclose(origins_from_middle_px(model, dataset), torch.tensor([10.0, -5.0], dtype=torch.float64))


def test_origins_need_a_truth_and_a_model_that_has_them():
    images = torch.zeros(2, 1, 20, 20, dtype=torch.uint8)
    labels = torch.zeros(2, dtype=torch.int64)
    known = Dataset("toy", "test", images, labels, NAMES, {"center": torch.zeros(2, 2)})
    with pytest.raises(InputError, match="ccnn_s has no origin"):
        origin_error_px(ptn.create_model("ccnn_s", image_size=20), known)
    with pytest.raises(InputError, match="toy test has no true centres"):
        origin_error_px(ptn.create_model("ptn_s", image_size=20), Dataset("toy", "test", images, labels, NAMES))


def test_scores_leave_a_network_as_it_is_and_give_its_own_answers():
    model = ptn.create_model("ptn_s").train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.rand(7, 1, 28, 28)
    answers = scores(model, images, batch=3)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with torch.no_grad():
        assert torch.allclose(answers, model.eval()(images).softmax(dim=1), atol=1e-6)
