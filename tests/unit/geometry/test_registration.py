"""register: the known similarity of real photographs, confidence, sizes, refused input."""

import math

import pytest
import torch

import ptn
from experiments.registration import errors, make_pairs
from ptn import InputError, Similarity, register, similarity_warp

pytest.importorskip("skimage")


def check(count, size=256, seed=0, share=0.98):
    moving, fixed, truth = make_pairs(count, size, seed)
    result = register(moving, fixed)
    rotation, scale, shift = errors(result, truth)
    assert rotation.median() < 0.3
    assert scale.median() < 0.5
    assert shift.median() < 0.5
    right = (rotation < 1) & (scale < 2) & (shift < 2)
    assert right.float().mean() >= share
    return moving, fixed, result, right


def test_it_finds_rotation_scale_and_shift_of_photographs():
    moving, fixed, result, right = check(24, share=0.95)
    expected = similarity_warp(moving, result.pose)
    assert (result.warped - expected).abs().max() < 1e-3
    # the same photographs, but other pairs of them
    unrelated = register(moving, fixed.roll(1, 0)).confidence
    assert result.confidence[right].min() > 0.7 > unrelated.max()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(256, 0), (256, 2), (400, 3)])
def test_it_finds_rotation_scale_and_shift_of_240_pairs(size, seed):
    _, _, result, right = check(240, size, seed)
    assert (result.confidence[~right] > 0.85).sum() <= 1


@pytest.mark.parametrize(("height", "width"), [(200, 320), (131, 97), (64, 90)])
def test_images_of_any_size_and_of_two_sizes(photographs, height, width):
    picture = torch.nn.functional.interpolate(photographs[:1], scale_factor=3, mode="bicubic").clamp(0, 1)
    zoom = 1.2 * max(height / 360, width / 480)
    truth = Similarity(0.5, 1.3, (0.1 * width, -0.05 * height))
    fixed = similarity_warp(picture, Similarity(scale=zoom), size=(height, width))
    before = truth.inverse().compose(Similarity(scale=zoom))
    for size in ((height, width), (height + 31, width - 12)):
        result = register(similarity_warp(picture, before, size=size), fixed)
        rotation, scale, shift = errors(
            result, Similarity(truth.rotation, truth.scale, torch.tensor([truth.shift_px]))
        )
        assert result.warped.shape == fixed.shape
        assert (rotation < 0.5) & (scale < 1) & (shift < 0.5)


def test_a_batch_and_single_pairs_give_the_same():
    moving, fixed, _ = make_pairs(11, 128)
    whole = register(moving, fixed)
    for index in (0, 10):
        alone = register(moving[index : index + 1], fixed[index : index + 1])
        assert alone.confidence.item() == pytest.approx(whole.confidence[index].item(), abs=1e-4)
        assert alone.pose.rotation.item() == pytest.approx(whole.pose.rotation[index].item(), abs=1e-4)


def test_the_inverse_pose_registers_the_other_way():
    moving, fixed, _ = make_pairs(6)
    there, back = register(moving, fixed).pose, register(fixed, moving).pose
    identity = back.compose(there)
    assert (torch.remainder(identity.rotation + math.pi, 2 * math.pi) - math.pi).abs().median() < 0.01
    assert (identity.scale - 1).abs().median() < 0.01


def test_an_empty_batch_and_flat_images_are_no_errors():
    empty = register(torch.rand(0, 1, 32, 32), torch.rand(0, 1, 32, 32))
    assert empty.warped.shape == (0, 1, 32, 32)
    flat = register(torch.full((1, 3, 64, 64), 0.5), torch.rand(1, 3, 64, 64))
    assert flat.confidence.item() < 0.5
    assert torch.isfinite(flat.warped).all()


@pytest.mark.parametrize(
    ("moving", "fixed", "word"),
    [
        (torch.rand(2, 1, 9, 9), torch.rand(1, 1, 9, 9), "same number"),
        (torch.rand(1, 1, 9, 9), torch.rand(1, 3, 9, 9), "channels"),
        (torch.rand(1, 9, 9), torch.rand(1, 9, 9), "got shape"),
        (torch.zeros(1, 1, 9, 9, dtype=torch.uint8), torch.rand(1, 1, 9, 9), "divide"),
    ],
)
def test_bad_input_is_refused(moving, fixed, word):
    with pytest.raises(InputError, match=word):
        ptn.register(moving, fixed)
